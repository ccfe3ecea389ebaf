"""The words and flags of `spark-lake`."""

from __future__ import annotations

import argparse
from typing import Any

from target_spark_lake.cli.help import EXIT_CODES, add_completion, examples_text
from target_spark_lake.cli.init_command import add_arguments
from target_spark_lake.cli.snapshot_view import ENGINES
from target_spark_lake.config_schema import DELTA


def command_parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """All commands; `command` of what it reads is the whole name, such as `state show`."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--config", action="append", required=True, metavar="FILE", help="config of the target")
    shared.add_argument("--pipeline", help="another pipeline than the config's")
    shared.add_argument("--json", action="store_true", help="for programs")
    shared.add_argument("--log-level", default="info", help="debug shows the trace of an error")
    shared.set_defaults(no_pipeline=None)
    parser = argparse.ArgumentParser(prog=program, description=description, epilog=EXIT_CODES)
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

    overview = add(
        commands,
        "status",
        "all pipelines of the bucket; exit code 1 when one is too old, failed last, or is not published",
    )
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
    setting.add_argument("--type", help="the key's type, where neither a bookmark nor the table shows it")
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
    recovering = add(commands, "recover", "finish or undo what a dead run left")
    recovering.add_argument(
        "--give-up-publishing",
        metavar="RUN",
        help="for a committed run whose files are gone, or whose Delta table someone changed: take back what it "
        "published and return to the state before it",
    )
    unlock = add(commands, "unlock", "free the pipeline from a dead holder, and finish or undo its run")
    unlock.add_argument("--force", action="store_true", help="from a living holder too: its run can't commit then")
    text = "write the two configs and the meltano.yml entry of a new pipeline, ready to run"
    asks = f"{text}; on a terminal it asks for what is left open"
    new = commands.add_parser(
        "init",
        help=text,
        description=asks,
        epilog=examples_text("init"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    new.set_defaults(command="init")
    add_arguments(new)
    add_completion(commands)
    return parser
