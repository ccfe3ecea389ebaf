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
from singer_spark.program.frame import run_program
from singer_spark.singer.exact_json import to_json
from singer_spark.state.backend import open_state_store
from singer_spark.storage.storage import Storage
from target_spark_lake.cli import printed_tables
from target_spark_lake.cli.help import completion
from target_spark_lake.cli.init_command import run_init
from target_spark_lake.cli.parser import command_parser
from target_spark_lake.cli.snapshot_view import snapshot_view
from target_spark_lake.commit import run_reports
from target_spark_lake.commit.recovery import free
from target_spark_lake.layout import Layout
from target_spark_lake.maintenance.conversion import convert_to_delta
from target_spark_lake.report.pipeline_status import AgeLimits, status
from target_spark_lake.report.source_lag import to_read, with_lag
from target_spark_lake.settings import TargetSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from singer_spark.state.store import StateStore

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
    chosen = command_parser(PROGRAM, __doc__).parse_args(arguments)
    if chosen.command == "init":
        run_init(chosen)
        return 0
    if chosen.command == "completion":
        print(completion(command_parser(PROGRAM, __doc__), chosen.shell))
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
            _show(run_reports.runs(storage, layout), printed_tables.runs_table, as_json=chosen.json)
        case "state show":
            _show(run_reports.state_now(storage, layout, store), printed_tables.state_table, as_json=chosen.json)
        case "state history":
            _show(run_reports.state_history(storage, layout), printed_tables.history_table, as_json=chosen.json)
        case "state set" | "state reset" | "state restore":
            _edit_state(chosen, storage, layout, store, settings)
        case "view":
            sql = snapshot_view(storage, layout, settings, chosen.stream, chosen.engine)
            print(json.dumps({"sql": sql}) if chosen.json else sql)
        case "convert":
            ttl = settings.lock_ttl_seconds
            converted = convert_to_delta(storage, layout, chosen.stream, lock_ttl_seconds=ttl, store=store)
            _show({"pipeline": pipeline, "converted": converted}, printed_tables.conversion_text, as_json=chosen.json)
        case "compact":
            report = _compacted(storage, layout, store, settings, chosen.stream)
            _show(report, printed_tables.compaction_table, as_json=chosen.json)
        case "report":
            from target_spark_lake.report.report_command import write_report

            about = None if chosen.all else pipeline
            made = write_report(storage, settings, chosen.output, pipeline=about, newest=chosen.runs)
            _show(made, lambda report: f"Written: {report['output']}", as_json=chosen.json)
        case "verify":
            return _verified(storage, layout, store, settings, chosen)
        case _:
            force = getattr(chosen, "force", False)
            giving_up = getattr(chosen, "give_up_publishing", None)
            done = free(storage, layout, store, settings.lock_ttl_seconds, force=force, giving_up=giving_up)
            report = {"pipeline": pipeline, "finished": done.finished, "rolled_back": list(done.rolled_back)}
            if giving_up:
                report["given_up"] = done.given_up
            if done.checkpoint is not None:
                report["can_continue"] = done.checkpoint.run_id
            _show(report, printed_tables.recovery_text, as_json=chosen.json)
    return 0


def _status(chosen: argparse.Namespace, settings: TargetSettings, storage: Storage) -> int:
    """Shows all pipelines; 1 where something is wrong with one."""

    def store_of(pipeline: str) -> StateStore:
        return open_state_store(settings.state_backend, storage, pipeline)

    found = status(storage, store_of, AgeLimits.of(chosen.max_age), chosen.pipeline, file_bytes=settings.file_bytes)
    pipelines = found.pipelines
    if chosen.tap_config:
        asked = chosen.pipeline or settings.pipeline
        if asked == chosen.no_pipeline:
            raise ConfigurationError("--tap-config: say whose source that is, by --pipeline or the config's pipeline")
        coming = to_read(chosen.tap_config, {**_config(chosen.config), "pipeline": asked})
        pipelines = tuple(with_lag(each, coming) if each.pipeline == asked else each for each in pipelines)
    _show([asdict(each) for each in pipelines], printed_tables.status_table, as_json=chosen.json)
    for problem in found.problems:
        sys.stderr.write(f"{PROGRAM}: {redact(problem)}\n")
    return 1 if found.problems else 0


def _edit_state(
    chosen: argparse.Namespace, storage: Storage, layout: Layout, store: StateStore, settings: TargetSettings
) -> None:
    from target_spark_lake.cli import state_editing
    from target_spark_lake.commit.pipeline_run import open_run

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
    _show(run_reports.state_now(storage, layout, store), printed_tables.state_table, as_json=chosen.json)
    if not changed:
        sys.stderr.write(f"{PROGRAM}: pipeline {layout.pipeline}: that is the state already, nothing was changed\n")


def _compacted(
    storage: Storage, layout: Layout, store: StateStore, settings: TargetSettings, stream: str | None
) -> JSON:
    # Here: it loads Arrow, for which the other commands need not wait.
    from target_spark_lake.commit.pipeline_run import open_run
    from target_spark_lake.maintenance.compaction import compact

    run = open_run(storage, layout, lock_ttl_seconds=settings.lock_ttl_seconds, store=store, command="compact")
    tables = [asdict(each) for each in compact(run, settings, stream)]
    return {"pipeline": layout.pipeline, "run_id": run.run_id if tables else None, "tables": tables}


def _verified(
    storage: Storage, layout: Layout, store: StateStore, settings: TargetSettings, chosen: argparse.Namespace
) -> int:
    from target_spark_lake.verify.verification import TapSide, verify
    from target_spark_lake.verify.verify_report import verify_table

    logging.basicConfig(format="%(message)s", level=chosen.log_level.upper(), stream=sys.stderr)
    redact_logs()
    catalog = _config([chosen.tap_catalog]) if chosen.tap_catalog else None
    tap = TapSide(_config([file for file in chosen.tap_config if file != "ENV"]), catalog, "ENV" in chosen.tap_config)
    report = verify(storage, layout, store, settings, _config(chosen.config), tap, stream=chosen.stream)
    _show(report.to_json() if chosen.json else report, verify_table, as_json=chosen.json)
    return 0 if report.agrees else 1


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
        print(to_json(value, 2, ascii_only=True))
        return
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, FILE_WIDTH)
    console.print(table(value))
