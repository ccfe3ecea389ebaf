"""The command `spark-lake`, for who runs pipelines: look at runs and states, end dead runs, convert tables."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError
from singer_spark.program import run_program
from singer_spark.state_store import BucketState
from singer_spark.storage import Storage
from target_spark_lake import run_reports
from target_spark_lake.conversion import convert_to_delta
from target_spark_lake.init_command import add_arguments, run_init
from target_spark_lake.layout import Layout
from target_spark_lake.recovery import free
from target_spark_lake.settings import DELTA, TargetSettings
from target_spark_lake.snapshot_view import ENGINES, snapshot_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

PROGRAM = "spark-lake"
JSON = dict[str, Any]


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
    settings = TargetSettings.from_config(_config(chosen.config), default_pipeline=chosen.pipeline)
    pipeline = chosen.pipeline or settings.pipeline
    accepted = settings.accept_unconditional_storage
    storage = Storage(settings.bucket, settings.storage_options, accept_unconditional=accepted)
    layout = Layout(pipeline, settings.path)
    store = BucketState(storage, layout.state)
    match chosen.command:
        case "runs":
            _show(run_reports.runs(storage, layout), _runs_table, as_json=chosen.json)
        case "state show":
            _show(run_reports.state_now(storage, layout, store), _state_table, as_json=chosen.json)
        case "state history":
            _show(run_reports.state_history(storage, layout), _history_table, as_json=chosen.json)
        case "view":
            sql = snapshot_view(storage, layout, settings, chosen.stream, chosen.engine)
            print(json.dumps({"sql": sql}) if chosen.json else sql)
        case "convert":
            ttl = settings.lock_ttl_seconds
            converted = convert_to_delta(storage, layout, chosen.stream, lock_ttl_seconds=ttl)
            _show({"pipeline": pipeline, "converted": converted}, _conversion_text, as_json=chosen.json)
        case "compact":
            report = _compacted(storage, layout, store, settings, chosen.stream)
            _show(report, _compaction_table, as_json=chosen.json)
        case _:
            force = getattr(chosen, "force", False)
            done = free(storage, layout, store, settings.lock_ttl_seconds, force=force)
            report = {"pipeline": pipeline, "finished": done.finished, "rolled_back": list(done.rolled_back)}
            if done.checkpoint is not None:
                report["can_continue"] = done.checkpoint.run_id
            _show(report, _recovery_text, as_json=chosen.json)
    return 0


def _compacted(
    storage: Storage, layout: Layout, store: BucketState, settings: TargetSettings, stream: str | None
) -> JSON:
    # Here: it loads Arrow, for which the other commands need not wait.
    from target_spark_lake.compaction import compact
    from target_spark_lake.pipeline_run import open_run

    run = open_run(storage, layout, lock_ttl_seconds=settings.lock_ttl_seconds, store=store)
    tables = [asdict(each) for each in compact(run, settings, stream)]
    return {"pipeline": layout.pipeline, "run_id": run.run_id if tables else None, "tables": tables}


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--config", action="append", required=True, metavar="FILE", help="config of the target")
    shared.add_argument("--pipeline", help="another pipeline than the config's")
    shared.add_argument("--json", action="store_true", help="for programs")
    shared.add_argument("--log-level", default="info", help="debug shows the trace of an error")
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(group: Any, name: str, text: str, whole: str | None = None) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = group.add_parser(name, parents=[shared], help=text, description=text)
        made.set_defaults(command=whole or name)
        return made

    add(commands, "runs", "the pipeline's runs, newest first")
    state = commands.add_parser("state", help="the pipeline's saved state").add_subparsers(required=True)
    add(state, "show", "the state that the next run starts from", "state show")
    add(state, "history", "each state with the run that saved it, newest first", "state history")
    view = add(commands, "view", "SQL for the latest row of each key of a table that keeps every version")
    view.add_argument("stream", help="name of the stream")
    view.add_argument("--engine", choices=ENGINES, required=True, help="whose SQL")
    convert = add(commands, "convert", "make tables of plain Parquet Delta tables, where they lie")
    convert.add_argument("--stream", help="only this stream's tables")
    convert.add_argument("--format", choices=[DELTA], required=True, help="what they become")
    compaction = add(commands, "compact", "fewer, larger files; no row and no state changes, readers are undisturbed")
    compaction.add_argument("--stream", help="the tables of this stream alone")
    add(commands, "recover", "finish or undo what a dead run left")
    unlock = add(commands, "unlock", "free the pipeline from a dead holder, and finish or undo its run")
    unlock.add_argument("--force", action="store_true", help="from a living holder too: its run can't commit then")
    text = "write the two configs and the meltano.yml entry of a new pipeline, ready to run"
    new = commands.add_parser("init", help=text, description=text)
    new.set_defaults(command="init")
    add_arguments(new)
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

    Console().print(table(value))


def _table(rows: Sequence[Sequence[object]], *columns: str) -> RenderableType:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        # A run's id is for copying: never cut.
        table.add_column(column, no_wrap=column == "run", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return table


def _runs_table(reports: list[JSON]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    rows = [(run["run_id"], _moment(run["started_at"]), run["outcome"], _streams_text(run)) for run in reports]
    errors = [Text(f"{run['run_id']}: {run['error']}") for run in reports if run["error"]]
    return Group(_table(rows, "run", "started", "outcome", "streams"), *errors)


def _moment(text: str) -> str:
    """A moment to the second, for people."""
    return text[:19] + "Z"


def _streams_text(run: JSON) -> str:
    return "\n".join(
        f"{name}: {stream['records']} records" + (f", {stream['rejected']} rejected" if stream["rejected"] else "")
        for name, stream in run["streams"].items()
    )


def _state_table(state: JSON) -> RenderableType:
    rows = [(stream, *_bookmark_cells(bookmark)) for stream, bookmark in state["bookmarks"].items()]
    return _table(rows, "stream", "replication key", "value")


def _history_table(history: list[JSON]) -> RenderableType:
    rows = [
        (saved["run_id"], _moment(saved["saved_at"]), stream, *_bookmark_cells(bookmark))
        for saved in history
        for stream, bookmark in saved["bookmarks"].items()
    ]
    return _table(rows, "run", "saved", "stream", "replication key", "value")


def _bookmark_cells(bookmark: Any) -> tuple[object, object]:
    if isinstance(bookmark, dict) and "replication_key_value" in bookmark:
        return bookmark.get("replication_key"), bookmark["replication_key_value"]
    return None, json.dumps(bookmark)


def _conversion_text(report: JSON) -> RenderableType:
    from rich.text import Text

    if not report["converted"]:
        return Text("All of these tables are Delta tables already.")
    return Text(f"Now Delta tables: {', '.join(report['converted'])}. Set `format: delta` in the target's config.")


def _compaction_table(report: JSON) -> RenderableType:
    from rich.text import Text

    if not report["tables"]:
        return Text("Nothing to do: no small files lie side by side.")
    rows = [
        (
            each["table"],
            f"{each['retired']} → {each['published']}",
            f"{each['retired_bytes']:,} → {each['published_bytes']:,}",
        )
        for each in report["tables"]
    ]
    return _table(rows, "table", "files", "bytes")


def _recovery_text(report: JSON) -> RenderableType:
    from rich.text import Text

    finished = f"finished run {report['finished']}" if report["finished"] else ""
    undone = ", ".join(f"undid run {run_id}" for run_id in report["rolled_back"])
    done = ", ".join(part for part in (finished, undone) if part) or "nothing was left to do"
    kept = f" The next run goes on from what run {report['can_continue']} staged." if "can_continue" in report else ""
    return Text(f"Pipeline {report['pipeline']} is free: {done}.{kept}")
