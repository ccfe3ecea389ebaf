"""The command `tap-spark-jdbc` and its options. Spark is not loaded before it is needed."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from singer_spark.core.config_file import FROM_ENVIRONMENT, expand, read_config, read_variables
from singer_spark.core.lean_imports import import_singer_sdk
from singer_spark.error_codes import RunCode
from singer_spark.errors import (
    ConfigurationError,
    SingerSparkError,
    SkippedStreamsError,
    SourceError,
    StorageError,
    one_line,
)
from singer_spark.program.frame import root_failure, stopped_before
from singer_spark.program.logs import LEVELS, set_up_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from singer_spark.state.source import StateSource

logger = logging.getLogger("tap-spark-jdbc")

PROGRAM = "tap-spark-jdbc"
SECONDS_TO_LEAVE = 10.0


@click.command(
    PROGRAM,
    help="Sends the tables of a JDBC database as Singer messages to standard output.",
    epilog=f"Example: {PROGRAM} --config tap.json --state-from target.json | target-spark-lake "
    "--config target.json",
)
@click.option(
    "--config",
    multiple=True,
    help="Config file, or ENV for environment variables; may be repeated.",
)
@click.option(
    "--catalog",
    type=click.Path(path_type=Path),
    help="Singer catalog: which streams and columns to send.",
)
@click.option(
    "--state",
    help="State to start from: a path or URL, also of a database. If no state exists yet, the "
    "run is a first run.",
)
@click.option(
    "--state-from",
    type=click.Path(path_type=Path),
    help="The target's config; the run starts from that target's state.",
)
@click.option(
    "--stream",
    multiple=True,
    metavar="NAME",
    help="Send only these streams (names or globs); the bookmarks of the others stay.",
)
@click.option("--full", is_flag=True, help="Send everything, whatever the state says.")
@click.option(
    "--replace",
    is_flag=True,
    help="With --full: replace the rows of append-only tables by the source's.",
)
@click.option(
    "--append-again",
    is_flag=True,
    help="With --full: append all rows to append-only tables once more.",
)
@click.option(
    "--no-resume", is_flag=True, help="Do not continue from the checkpoint of a run that died."
)
@click.option(
    "--incremental-table",
    multiple=True,
    metavar="SPEC",
    help="Incremental table, as in `incremental_tables` in the config.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be read, and read nothing.")
@click.option("--verbose", is_flag=True, help="With --dry-run: print the full SQL.")
@click.option("--discover", is_flag=True, help="Print the catalog.")
@click.option(
    "--test",
    is_flag=False,
    flag_value="all",
    default="",
    help="Send one record of each stream; with =schema, no records.",
)
@click.option("--about", is_flag=True, help="Print the settings and what the tap can do.")
@click.option(
    "--format", "about_format", type=click.Choice(["json", "markdown"]), help="Format of --about."
)
@click.option("--version", is_flag=True, help="Print the version.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    help="Level of the log on standard error.",
)
def command(**options: Any) -> None:
    """Dispatch to what the options ask for."""
    try:
        if options["version"] or options["about"]:
            _print_about(options)
        else:
            _run_and_leave_failure(options)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise SourceError(
            RunCode.OUTPUT_CLOSED,
            "the reader of standard output is gone: the target ended first, and its own message "
            "says why; only what it had committed is saved",
        ) from error


def run() -> int:
    """Run the command; raises `SingerSparkError`."""
    try:
        command.main(standalone_mode=False)
    except click.ClickException as error:
        raise ConfigurationError(RunCode.BAD_SETTING, error.format_message()) from error
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return 0


def _print_about(options: dict[str, Any]) -> None:
    import_singer_sdk()
    from tap_spark_jdbc.tap import TapSparkJdbc

    if options["version"]:
        TapSparkJdbc.print_version()
    else:
        TapSparkJdbc.print_about(options["about_format"])


def _run_and_leave_failure(options: dict[str, Any]) -> None:
    """Run the command.

    If it fails, it leaves the reason for the target, whose report would otherwise only know that
    the input ended.
    """
    try:
        _run(options)
    except (BrokenPipeError, SkippedStreamsError):
        raise
    except Exception as error:
        is_run = not (options["discover"] or options["dry_run"] or options["test"])
        if is_run and stopped_before(error) is None:
            # The user should not have to wait long for the error because the bucket does not
            # answer.
            leaving = Thread(
                target=_leave_failure, args=(options, root_failure(error)), daemon=True
            )
            leaving.start()
            leaving.join(SECONDS_TO_LEAVE)
        raise


def _leave_failure(options: dict[str, Any], error: Exception) -> None:
    from singer_spark.state.handover import leave_failure

    source: StateSource | None = None
    # A bucket that can't be read can't be written to either.
    with suppress(SingerSparkError, OSError, KeyError, TypeError, ValueError):
        config, target = _config(options["config"])[0], _target(options)
        if not isinstance(error, StorageError) and (
            opening := _state_source(options, config, target)
        ):
            source = opening()
    lake, pipeline = (None, "") if source is None else (source.lake, source.pipeline)
    leave_failure(one_line(error), lake, pipeline, os.environ)


def _run(options: dict[str, Any]) -> None:
    from tap_spark_jdbc.config.batch_settings import with_staging

    set_up_logs(PROGRAM, options["log_level"])
    config, from_environment = _config(options["config"])
    target = _target(options)
    config = with_staging(config, target)
    if options["incremental_table"]:
        config["incremental_tables"] = [
            *config.get("incremental_tables", []),
            *options["incremental_table"],
        ]
    again = _again(options)
    test = options["test"]
    catalog = read_config(options["catalog"], "--catalog") if options["catalog"] else None
    stateless = bool(test) or options["discover"]
    source = None if stateless else _state_source(options, config, target)
    if not from_environment:
        _begin_jvm(config)
    # Imported while the JVM starts: both take long.
    import_singer_sdk()
    from tap_spark_jdbc.extract.run_state import OpeningState
    from tap_spark_jdbc.tap import TapSparkJdbc

    opening = None
    if not stateless:
        opening = OpeningState.of(
            source() if source else None,
            full=options["full"],
            resume=not options["no_resume"],
            is_part=bool(options["stream"]),
            again=again,
        )
    tap = TapSparkJdbc(
        config=config,
        target=target,
        catalog=catalog,
        opening=opening,
        only=options["stream"],
        parse_env_config=from_environment,
        setup_mapper=False,
    )
    if not (stateless or options["dry_run"]):
        tap.check_staging()
    if not (options["discover"] or options["dry_run"] or test == "schema"):
        tap.begin_session()
    tap.progress.phase("connecting")
    try:
        if options["discover"]:
            sys.stdout.write(tap.catalog_json_text + "\n")
            return
        if options["dry_run"]:
            from tap_spark_jdbc.dry_run import describe

            sys.stdout.write(describe(tap, verbose=options["verbose"]))
            tap.finish_streams()
            return
        tap.streams  # noqa: B018  discovery, before anything is sent
        tap.setup_mapper()
        if test == "schema":
            tap.write_schemas()
        elif test:
            tap.run_connection_test()
        else:
            tap.run()
    finally:
        tap.progress.stop()
    # So that the server does not see a lost client.
    tap.database.close()
    _build_class_archive()


def _again(options: dict[str, Any]) -> str:
    """What the user wants to happen to append-only tables in a full run."""
    from singer_spark.core.messages import APPEND, ASK, REPLACE, UNASKED

    replace, append = options["replace"], options["append_again"]
    if replace and append:
        raise ConfigurationError(
            RunCode.BAD_FLAG, "give either --replace or --append-again, not both"
        )
    if (replace or append) and not options["full"]:
        raise ConfigurationError(
            RunCode.BAD_FLAG, "--replace and --append-again are for full runs: give --full, too"
        )
    if replace:
        return REPLACE
    if append:
        return APPEND
    if not options["full"]:
        return UNASKED
    # A script can't answer; its next full run must not double the table either.
    return ASK if sys.stdin.isatty() and sys.stderr.isatty() else REPLACE


def _begin_jvm(config: dict[str, Any]) -> None:
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.source.database import Database

    Database(TapSettings.from_config(config)).begin_jvm()


def _build_class_archive() -> None:
    from singer_spark.engine.class_archive import build_in_background

    if build_in_background():
        logging.getLogger(PROGRAM).info(
            "an archive of Spark's classes is being built, so that later runs start faster"
        )


def _target(options: dict[str, Any]) -> dict[str, Any] | None:
    """The target's config that `--state-from` names."""
    if not options["state_from"]:
        return None
    from tap_spark_jdbc.extract.run_state import read_target_config

    if options["state"]:
        raise ConfigurationError(
            RunCode.BAD_FLAG, "--state and --state-from both name the state: give one of them"
        )
    return read_target_config(options["state_from"])


def _state_source(
    options: dict[str, Any], config: dict[str, Any], target: dict[str, Any] | None
) -> Callable[[], StateSource | None] | None:
    """A function that opens the state's location.

    The options are checked before anything is started.
    """
    from singer_spark.state.handover import handed_over
    from singer_spark.state.source import check_state_url, open_state_source, source_of_target
    from tap_spark_jdbc.extract.run_state import settings_of_the_state

    if target is not None:
        settings = settings_of_the_state(target, options["state_from"])
        return lambda: source_of_target(settings)
    handed = handed_over(os.environ)
    if handed is not None:
        return lambda: source_under_meltano(options["state"], handed)
    if not options["state"]:
        return None
    given = {"storage_options": config.get("storage_options") or {}}
    storage_options = expand(given, {"storage_options": {"type": "object"}})["storage_options"]
    url = expand({"--state": options["state"]})["--state"]
    check_state_url(url)
    return lambda: open_state_source(url, storage_options)


def source_under_meltano(given: str | None, handed: Mapping[str, Any]) -> StateSource | None:
    """Where to read the state from, given Meltano's state file, if any, and what its state backend
    handed over; None: there is nothing to read.

    The state's own location is preferred, so that a checkpoint of its lake is found and a first run
    is recognised; the file is used if it differs.
    """
    from singer_spark.core.exact_json import rounded
    from singer_spark.state.source import open_state_source, source_of_target
    from singer_spark.state.store import same_state

    copy = None if given is None else open_state_source(given)
    try:
        source = source_of_target(handed)
        saved = source.saved
    except (ConfigurationError, StorageError) as error:
        logger.warning(
            "the state can't be read at its own location, so a run that died can't be "
            "continued: %s",
            error,
        )
        return copy
    if copy is None:
        return source
    found = copy.saved
    # Meltano's copy has floats where the state may have exact decimals.
    same = (
        found is not None
        and saved is not None
        and same_state(rounded(found.value), rounded(saved.value))
    )
    return source if same else copy


def _config(paths: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
    config: dict[str, Any] = {}
    for path in paths:
        if path == FROM_ENVIRONMENT:
            read_variables(Path())
        else:
            config.update(read_config(path, "--config", way_out="`spark-lake init` writes one"))
    return config, FROM_ENVIRONMENT in paths
