"""The command `tap-spark-jdbc`: options, signals, exit codes. No Spark is loaded before it is needed."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from singer_spark.errors import ConfigurationError, SourceError, redact_logs, run_command_line
from singer_spark.stdout import claim_stdout

if TYPE_CHECKING:
    from types import FrameType

PROGRAM = "tap-spark-jdbc"
SECONDS_TO_CLEAN_UP = 5
LEVELS = ["debug", "info", "warning", "error"]


@click.command(PROGRAM, help="Sends the tables of a JDBC database as Singer messages to standard output.")
@click.option("--config", multiple=True, help="Config file, or ENV for environment variables; may be repeated.")
@click.option("--catalog", type=click.Path(path_type=Path), help="Singer catalog: which streams and columns to send.")
@click.option("--state", help="State to start from: a path or URL; one that is not there yet means a first run.")
@click.option("--state-from", type=click.Path(path_type=Path), help="The target's config: the state that it keeps.")
@click.option("--full", is_flag=True, help="Send everything, whatever the state says.")
@click.option("--no-resume", is_flag=True, help="Do not continue a dead run's checkpoint.")
@click.option("--incremental-table", multiple=True, metavar="SPEC", help="Like `incremental_tables` in the config.")
@click.option("--dry-run", is_flag=True, help="Print what would be read, and read nothing.")
@click.option("--discover", is_flag=True, help="Print the catalog.")
@click.option(
    "--test", is_flag=False, flag_value="all", default="", help="Send one record of each stream, or with =schema none."
)
@click.option("--about", is_flag=True, help="Print the settings and what the tap can do.")
@click.option("--format", "about_format", type=click.Choice(["json", "markdown"]), help="Of --about.")
@click.option("--version", is_flag=True, help="Print the version.")
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="info", help="Of standard error.")
def command(**options: Any) -> None:
    """Chooses what to do."""
    from tap_spark_jdbc.tap import TapSparkJdbc

    try:
        if options["version"]:
            TapSparkJdbc.print_version()
        elif options["about"]:
            TapSparkJdbc.print_about(options["about_format"])
        else:
            _run(options)
        sys.stdout.flush()
    except BrokenPipeError as error:
        # What is still buffered can't go anywhere: the interpreter would complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SourceError("nobody reads standard output any more; look at why the target ended") from error


def main() -> None:
    """Entry point."""
    claim_stdout()
    _handle_signals()
    try:
        run_command_line(_guarded, PROGRAM)
    finally:
        _end_jvm()


def _guarded() -> int:
    try:
        command.main(standalone_mode=False)
    except click.ClickException as error:
        raise ConfigurationError(error.format_message()) from error
    return 0


def _run(options: dict[str, Any]) -> None:
    from tap_spark_jdbc.tap import TapSparkJdbc

    _log_to_stderr(options["log_level"])
    config, from_environment = _config(options["config"])
    if options["incremental_table"]:
        config["incremental_tables"] = [*config.get("incremental_tables", []), *options["incremental_table"]]
    test, catalog = options["test"], _json_of(options["catalog"], "--catalog") if options["catalog"] else None
    opening = None if test or options["discover"] else _opening(options, config)
    tap = TapSparkJdbc(
        config=config, catalog=catalog, opening=opening, parse_env_config=from_environment, setup_mapper=False
    )
    try:
        if options["discover"]:
            sys.stdout.write(tap.catalog_json_text + "\n")
            return
        if options["dry_run"]:
            from tap_spark_jdbc.dry_run import describe

            sys.stdout.write(describe(tap))
            return
        tap.streams  # noqa: B018  discovery, before anything is sent
        _handle_signals()
        tap.setup_mapper()
        if test == "schema":
            tap.write_schemas()
        elif test:
            tap.run_connection_test()
        else:
            tap.run()
    finally:
        tap.progress.stop()


def _opening(options: dict[str, Any], config: dict[str, Any]) -> Any:
    from tap_spark_jdbc.run_state import OpeningState, state_location

    location, storage_options = options["state"], config.get("storage_options") or {}
    if location and options["state_from"]:
        raise ConfigurationError("--state and --state-from both name the state: give one of them")
    if options["state_from"]:
        location, storage_options = state_location(options["state_from"])
    return OpeningState.read(location, storage_options, full=options["full"], resume=not options["no_resume"])


def _config(paths: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
    config: dict[str, Any] = {}
    for path in paths:
        if path != "ENV":
            config.update(_json_of(Path(path), "--config"))
    return config, "ENV" in paths


def _json_of(path: Path, option: str) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"{option} {path}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{option} {path}: it must hold a JSON object")
    return value


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("py4j", "botocore", "fsspec", "s3fs", "urllib3", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    redact_logs()


def _handle_signals() -> None:
    """Called again once Spark runs, which puts a handler of its own there."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    """Ends the run without a last STATE: what is not complete never happened."""
    sys.stderr.write(f"{PROGRAM}: stopped by {signal.Signals(number).name}\n")
    sys.exit(128 + number)


def _end_jvm() -> None:
    """Ends the JVM that this process started, without waiting for its jobs; its own clean-up gets a moment."""
    # Looked up and not imported: a run that never came to Spark has no JVM to end.
    pyspark = sys.modules.get("pyspark")
    context = getattr(pyspark, "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return
    # All is said; what still waits for an answer of the JVM would complain with traces.
    logging.disable()
    process.terminate()
    try:
        process.wait(SECONDS_TO_CLEAN_UP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
