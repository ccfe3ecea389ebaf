"""The commands of `spark-lake` about runs: `runs` shows them, `recover` and `unlock` end dead ones,
and `log drop` removes what LOG_BASED runs keep in the database.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from singer_spark.errors import ConfigurationError
from singer_spark.program.amounts import span_text
from target_spark_lake.commit.pipeline_run import change_state
from target_spark_lake.commit.recovery import free
from target_spark_lake.commit.run_reports import runs
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import (
    JSON,
    Chosen,
    Group,
    Lake,
    moment,
    read_tap_config,
    show,
    subcommand,
    table_of,
    tap_config_option,
    tap_module,
)

LOG_BASED = "LOG_BASED"


@subcommand("runs", "runs", "runs --json")
def runs_command(chosen: Chosen) -> int:
    """The pipeline's runs, newest first."""
    lake = Lake.of(chosen)
    found = runs(lake.storage, lake.layout)
    location = f"pipeline {lake.layout.pipeline} in {lake.location}"
    show(chosen, found, lambda reports: _table(reports, location))
    return 0 if found else 1


def _table(reports: list[JSON], location: str) -> Any:
    if not reports:
        return f"No run of {location}."
    rows = [
        (
            run["run_id"],
            run["kind"],
            moment(run["started_at"]),
            _took(run),
            run["outcome"],
            _streams(run),
        )
        for run in reports
    ]
    errors = [f"{run['run_id']}: {run['error']}" for run in reports if run["error"]]
    columns = ("run", "kind", "started", "took", "outcome", "streams")
    return table_of(rows, columns, [*errors, f"Runs of {location}."])


def _took(run: JSON) -> str | None:
    if run["finished_at"] is None:
        return None
    began, ended = (datetime.fromisoformat(run[name]) for name in ("started_at", "finished_at"))
    return span_text((ended - began).total_seconds())


def _streams(run: JSON) -> str:
    return "\n".join(
        f"{name}: {_counts(stream)}" for name, stream in sorted(run["streams"].items())
    )


def _counts(stream: JSON) -> str:
    # Older journals did not count what was deleted.
    others = [f"{stream[name]} {name}" for name in ("rejected", "deleted") if stream.get(name)]
    return ", ".join([f"{stream['records']} records", *others])


@subcommand("recover", "recover", "recover --give-up-publishing RUN")
@click.option(
    "--give-up-publishing",
    metavar="RUN",
    help="for a committed run whose files are gone, or whose Delta table someone changed: revert "
    "what it published and return to the state before it",
)
def recover_command(chosen: Chosen, give_up_publishing: str | None) -> None:
    """Finish or undo what a dead run left."""
    _free(chosen, abandoning=give_up_publishing)


@subcommand("unlock", "unlock", "unlock --force")
@click.option("--force", is_flag=True, help="even from a live holder, whose run then can't commit")
def unlock_command(chosen: Chosen, *, force: bool) -> None:
    """Free the pipeline from a dead holder, and finish or undo its run."""
    _free(chosen, force=force)


def _free(chosen: Chosen, *, force: bool = False, abandoning: str | None = None) -> None:
    lake = Lake.of(chosen)
    ttl = lake.settings.lock_ttl_seconds
    done = free(lake.storage, lake.layout, lake.store, ttl, force=force, abandoning=abandoning)
    report: JSON = {
        "pipeline": lake.layout.pipeline,
        "finished": done.finished,
        "rolled_back": list(done.rolled_back),
    }
    if abandoning:
        report["given_up"] = done.abandoned
    if done.checkpoint is not None:
        report["can_continue"] = done.checkpoint.run_id
    newest = done.last.run_id if done.last else None
    show(chosen, report, lambda shown: _recovered_text(shown) + _abandoned_text(shown, newest))


def _recovered_text(report: JSON) -> str:
    finished = [f"finished run {report['finished']}"] if report["finished"] else []
    undone = [f"undid run {run_id}" for run_id in report["rolled_back"]]
    done = ", ".join([*finished, *undone]) or "nothing was left to do"
    kept = (
        f" The next run continues from what run {report['can_continue']} staged."
        if "can_continue" in report
        else ""
    )
    return f"Pipeline {report['pipeline']} is free: {done}.{kept}"


def _abandoned_text(report: JSON, newest: str | None) -> str:
    """The losses by stream, if a run was to be abandoned; `newest` is the last committed run."""
    if "given_up" not in report:
        return ""
    abandoned = report["given_up"]
    if abandoned is None:
        return "\nNothing was abandoned: the run could be published, so it was."
    by, is_newest = abandoned["by"], abandoned["by"] == newest
    then = (
        "the state before it counts again"
        if is_newest
        else f"others have followed, run {newest} last"
    )
    lines = [
        f"\nRun {abandoned['run_id']} was abandoned by run {by}; {then}. {abandoned['reason']}"
    ]
    if abandoned["streams"] is None:
        lines.append(f"  What was lost is no longer known: the journal of run {by} was removed.")
    for stream, loss in (abandoned["streams"] or {}).items():
        gone = f"{loss['lost_rows']:,} rows in {loss['lost_files']:,} file(s) lost"
        back = f"{loss['taken_back_rows']:,} rows in {loss['taken_back_files']:,} file(s) reverted"
        lines.append(f"  {stream}: {gone}, {back}")
    if is_newest:
        lines.append(
            "The next run starts from the state before, and loads what its source still has."
        )
    return "\n".join(lines)


@subcommand("drop", "log drop")
@tap_config_option
def log_drop_command(chosen: Chosen, tap_config: Sequence[str]) -> None:
    """Remove the slot and the publication of LOG_BASED streams, and their bookmarks, when the
    pipeline is retired.
    """
    lake = Lake.of(chosen)
    tap, from_environment = read_tap_config(tap_config)
    removed: list[str] = []

    def without_log(saved: JSON | None) -> JSON | None:
        removed.extend(
            _removal()(tap, saved or {}, lake.layout.pipeline, from_environment=from_environment)
        )
        bookmarks = (saved or {}).get("bookmarks")
        if saved is None or not isinstance(bookmarks, dict):
            return saved
        kept = {name: each for name, each in bookmarks.items() if not _is_of_log(each)}
        return {**saved, "bookmarks": kept}

    change_state(lake.open_run("log drop"), without_log)
    show(chosen, {"removed": removed}, lambda found: _dropped_text(found["removed"]))


def _removal() -> Any:
    if (tap := tap_module("source_check")) is None:
        raise ConfigurationError(
            LakeCode.PROGRAM_MISSING,
            "slot and publication are removed by tap-spark-jdbc, which is not installed for "
            f"{sys.executable}: install it beside the target",
        )
    return tap.drop_log


def _is_of_log(bookmark: object) -> bool:
    return isinstance(bookmark, dict) and bookmark.get("replication_method") == LOG_BASED


def _dropped_text(removed: list[str]) -> str:
    gone = " and ".join(removed)
    return (
        f"Removed {gone}; the bookmarks of its streams, too."
        if removed
        else "There is nothing to drop on the server."
    )


log_commands = Group(
    "log", help="What LOG_BASED streams keep in the database.", commands=[log_drop_command]
)
