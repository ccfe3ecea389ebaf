"""The command `spark-lake`, for who runs pipelines: look at runs and states, end dead runs, convert tables."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, redact, redact_logs
from singer_spark.program import run_program
from singer_spark.state_backend import open_state_store
from singer_spark.storage import Storage
from target_spark_lake import admin_tables, run_reports
from target_spark_lake.admin_help import EXIT_CODES, add_completion, completion, examples_text
from target_spark_lake.conversion import convert_to_delta
from target_spark_lake.init_command import add_arguments, run_init
from target_spark_lake.layout import Layout
from target_spark_lake.pipeline_status import AgeLimits, status
from target_spark_lake.recovery import free
from target_spark_lake.settings import DELTA, TargetSettings
from target_spark_lake.snapshot_view import ENGINES, snapshot_view
from target_spark_lake.source_lag import to_read, with_lag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from singer_spark.state_store import StateStore

PROGRAM = "spark-lake"
JSON = dict[str, Any]
# What goes into a file or a mail has no edge to wrap at.
FILE_WIDTH = 200


def main() -> None:
    """Runs the command and leaves the process."""
    run_program(lambda: command(sys.argv[1:]), PROGRAM, if_stopped="what was begun is finished by the next start")


def command(arguments: Sequence[str]) -> int:
    """Runs one command.

    Args:
        arguments: The words after `spark-lake`.

    Returns:
        The exit code.
    """
    chosen = _parser().parse_args(arguments)
    if chosen.command == "init":
        run_init(chosen)
        return 0
    if chosen.command == "completion":
        print(completion(_parser(), chosen.shell))
        return 0
    settings = TargetSettings.from_config(
        _config(chosen.config), default_pipeline=chosen.pipeline or chosen.no_pipeline
    )
    pipeline = chosen.pipeline or settings.pipeline
    accepted = settings.accept_unconditional_storage
    storage = Storage(settings.bucket, settings.storage_options, accept_unconditional=accepted)
    layout = Layout(pipeline, settings.path)
    if chosen.command == "status":
        return _status(chosen, settings, storage)
    store = open_state_store(settings.state_backend, storage, pipeline)
    match chosen.command:
        case "runs":
            _show(run_reports.runs(storage, layout), admin_tables.runs_table, as_json=chosen.json)
        case "state show":
            _show(run_reports.state_now(storage, layout, store), admin_tables.state_table, as_json=chosen.json)
        case "state history":
            _show(run_reports.state_history(storage, layout), admin_tables.history_table, as_json=chosen.json)
        case "state set" | "state reset" | "state restore":
            _edit_state(chosen, storage, layout, store, settings)
        case "view":
            sql = snapshot_view(storage, layout, settings, chosen.stream, chosen.engine)
            print(json.dumps({"sql": sql}) if chosen.json else sql)
        case "convert":
            ttl = settings.lock_ttl_seconds
            converted = convert_to_delta(storage, layout, chosen.stream, lock_ttl_seconds=ttl, store=store)
            _show({"pipeline": pipeline, "converted": converted}, admin_tables.conversion_text, as_json=chosen.json)
        case "compact":
            report = _compacted(storage, layout, store, settings, chosen.stream)
            _show(report, admin_tables.compaction_table, as_json=chosen.json)
        case "report":
            from target_spark_lake.report_command import write_report

            about = None if chosen.all else pipeline
            made = write_report(storage, settings, chosen.output, pipeline=about, newest=chosen.runs)
            _show(made, lambda report: f"Written: {report['output']}", as_json=chosen.json)
        case "verify":
            return _verified(storage, layout, store, settings, chosen)
        case _:
            force = getattr(chosen, "force", False)
            done = free(storage, layout, store, settings.lock_ttl_seconds, force=force)
            report = {"pipeline": pipeline, "finished": done.finished, "rolled_back": list(done.rolled_back)}
            if done.checkpoint is not None:
                report["can_continue"] = done.checkpoint.run_id
            _show(report, admin_tables.recovery_text, as_json=chosen.json)
    return 0


def _status(chosen: argparse.Namespace, settings: TargetSettings, storage: Storage) -> int:
    """Shows all pipelines; 1 where something is wrong with one."""

    def store_of(pipeline: str) -> StateStore:
        return open_state_store(settings.state_backend, storage, pipeline)

    found = status(storage, store_of, AgeLimits.of(chosen.max_age), chosen.pipeline)
    pipelines = found.pipelines
    if chosen.tap_config:
        asked = chosen.pipeline or settings.pipeline
        if asked == chosen.no_pipeline:
            raise ConfigurationError("--tap-config: say whose source that is, by --pipeline or the config's pipeline")
        coming = to_read(chosen.tap_config, {**_config(chosen.config), "pipeline": asked})
        pipelines = tuple(with_lag(each, coming) if each.pipeline == asked else each for each in pipelines)
    _show([asdict(each) for each in pipelines], admin_tables.status_table, as_json=chosen.json)
    for problem in found.problems:
        sys.stderr.write(f"{PROGRAM}: {redact(problem)}\n")
    return 1 if found.problems else 0


def _edit_state(
    chosen: argparse.Namespace, storage: Storage, layout: Layout, store: StateStore, settings: TargetSettings
) -> None:
    from target_spark_lake import state_editing
    from target_spark_lake.pipeline_run import open_run

    ttl = settings.lock_ttl_seconds
    run = open_run(storage, layout, lock_ttl_seconds=ttl, store=store, command=chosen.command)
    match chosen.command:
        case "state set":
            key = chosen.replication_key, chosen.type
            changed = state_editing.set_value(run, chosen.stream, chosen.value, *key)
        case "state reset":
            changed = state_editing.reset(run, chosen.stream)
        case _:
            changed = state_editing.restore(run, chosen.run, before=chosen.before)
    _show(run_reports.state_now(storage, layout, store), admin_tables.state_table, as_json=chosen.json)
    if not changed:
        sys.stderr.write(f"{PROGRAM}: pipeline {layout.pipeline}: the state was so already, nothing was changed\n")


def _compacted(
    storage: Storage, layout: Layout, store: StateStore, settings: TargetSettings, stream: str | None
) -> JSON:
    # Here: it loads Arrow, for which the other commands need not wait.
    from target_spark_lake.compaction import compact
    from target_spark_lake.pipeline_run import open_run

    run = open_run(storage, layout, lock_ttl_seconds=settings.lock_ttl_seconds, store=store, command="compact")
    tables = [asdict(each) for each in compact(run, settings, stream)]
    return {"pipeline": layout.pipeline, "run_id": run.run_id if tables else None, "tables": tables}


def _verified(
    storage: Storage, layout: Layout, store: StateStore, settings: TargetSettings, chosen: argparse.Namespace
) -> int:
    from target_spark_lake.verification import TapSide, verify
    from target_spark_lake.verify_report import verify_table

    logging.basicConfig(format="%(message)s", level=chosen.log_level.upper(), stream=sys.stderr)
    redact_logs()
    catalog = _config([chosen.tap_catalog]) if chosen.tap_catalog else None
    tap = TapSide(_config([file for file in chosen.tap_config if file != "ENV"]), catalog, "ENV" in chosen.tap_config)
    report = verify(storage, layout, store, settings, _config(chosen.config), tap, stream=chosen.stream)
    _show(report.to_json() if chosen.json else report, verify_table, as_json=chosen.json)
    return 0 if report.agrees else 1


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--config", action="append", required=True, metavar="FILE", help="config of the target")
    shared.add_argument("--pipeline", help="another pipeline than the config's")
    shared.add_argument("--json", action="store_true", help="for programs")
    shared.add_argument("--log-level", default="info", help="debug shows the trace of an error")
    shared.set_defaults(no_pipeline=None)
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, epilog=EXIT_CODES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(group: Any, name: str, text: str, whole: str | None = None) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = group.add_parser(
            name,
            parents=[shared],
            help=text,
            description=text,
            epilog=examples_text(whole or name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(command=whole or name)
        return made

    overview = add(commands, "status", "all pipelines of the bucket; exit code 1 when one is too old or failed last")
    overview.add_argument(
        "--max-age",
        action="append",
        default=[],
        metavar="[PIPELINE=]AGE",
        help="how old the last success may be (30m, 6h, 2d); repeatable, PIPELINE may be a pattern",
    )
    overview.add_argument("--tap-config", action="append", metavar="FILE", help="how far behind its source, too")
    overview.set_defaults(no_pipeline="-")  # of the config it needs the bucket alone
    add(commands, "runs", "the pipeline's runs, newest first")
    state = commands.add_parser("state", help="the pipeline's saved state").add_subparsers(required=True)
    add(state, "show", "the state that the next run starts from", "state show")
    add(state, "history", "each state with the run that saved it, newest first", "state history")
    setting = add(state, "set", "where the next run of a stream starts: rows from this value on", "state set")
    setting.add_argument("--stream", required=True, help="name of the stream")
    setting.add_argument("--value", required=True, help="of the replication key, checked against its type")
    setting.add_argument("--replication-key", metavar="COLUMN", help="of a stream that never had a bookmark")
    setting.add_argument("--type", help="the key's type, where neither a bookmark nor the table tells it")
    resetting = add(state, "reset", "the next run starts from the beginning", "state reset")
    resetting.add_argument("--stream", help="of this stream alone")
    restoring = add(state, "restore", "make the state that a run saved the current one", "state restore")
    restoring.add_argument("run", help="id of the run, as `state history` shows it")
    restoring.add_argument("--before", action="store_true", help="the state that this run found, to undo what it did")
    view = add(commands, "view", "SQL for the latest row of each key of a table that keeps every version")
    view.add_argument("stream", help="name of the stream")
    view.add_argument("--engine", choices=ENGINES, required=True, help="whose SQL")
    convert = add(commands, "convert", "make tables of plain Parquet Delta tables, where they lie")
    convert.add_argument("--stream", help="only this stream's tables")
    convert.add_argument("--format", choices=[DELTA], required=True, help="what they become")
    compaction = add(commands, "compact", "fewer, larger files; no row and no state changes, readers are undisturbed")
    compaction.add_argument("--stream", help="the tables of this stream alone")
    report = add(commands, "report", "one HTML page about runs, rows, watermarks and failures, which needs no network")
    report.add_argument("--output", required=True, metavar="FILE", help="the page, report.html")
    report.add_argument("--all", action="store_true", help="of all pipelines of the bucket")
    report.add_argument("--runs", type=int, default=1000, metavar="N", help="the newest runs of each pipeline (1000)")
    verification = add(commands, "verify", "compare the source with the lake, row by row, up to the saved bookmarks")
    verification.add_argument(
        "--tap-config", action="append", required=True, metavar="FILE", help="config of the tap, or ENV"
    )
    verification.add_argument("--tap-catalog", metavar="FILE", help="catalog of the tap, if it runs with one")
    verification.add_argument("--stream", help="this stream alone")
    add(commands, "recover", "finish or undo what a dead run left")
    unlock = add(commands, "unlock", "free the pipeline from a dead holder, and finish or undo its run")
    unlock.add_argument("--force", action="store_true", help="from a living holder too: its run can't commit then")
    text = "write the two configs and the meltano.yml entry of a new pipeline, ready to run"
    new = commands.add_parser("init", help=text, description=text)
    new.set_defaults(command="init")
    add_arguments(new)
    add_completion(commands)
    return parser


def _config(files: Sequence[str]) -> JSON:
    merged: JSON = {}
    for file in files:
        try:
            value = json.loads(Path(file).expanduser().read_text())
        except OSError as error:
            raise ConfigurationError(f"can't read config {file}: {error.strerror}") from error
        except ValueError as error:
            raise ConfigurationError(f"config {file} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ConfigurationError(f"config {file} is not a JSON object")
        merged |= value
    return merged


def _show(value: Any, table: Any, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(value, indent=2))
        return
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, FILE_WIDTH)
    console.print(table(value))
