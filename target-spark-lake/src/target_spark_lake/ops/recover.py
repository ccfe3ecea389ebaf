"""`spark-lake recover | unlock`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from target_spark_lake.commit.recovery import free
from target_spark_lake.ops.command import CONFIG, JSON, Command, Lake, show


def _recover_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(force=False)
    parser.add_argument(
        "--give-up-publishing",
        metavar="RUN",
        help="for a committed run whose files are gone, or whose Delta table someone changed: "
        "revert what it published and return to the state before it",
    )


def _unlock_flags(parser: ArgumentParser) -> None:
    parser.set_defaults(give_up_publishing=None)
    parser.add_argument(
        "--force", action="store_true", help="from a living holder too: its run can't commit then"
    )


def _recover(chosen: Namespace) -> None:
    lake, abandoning = Lake.of(chosen), chosen.give_up_publishing
    ttl = lake.settings.lock_ttl_seconds
    done = free(
        lake.storage, lake.layout, lake.store, ttl, force=chosen.force, abandoning=abandoning
    )
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
            "The next run starts from the state before, and brings what its source still has."
        )
    return "\n".join(lines)


RECOVER = Command(
    "recover",
    "finish or undo what a dead run left",
    (f"recover {CONFIG}", f"recover --give-up-publishing RUN {CONFIG}"),
    _recover,
    _recover_flags,
)
UNLOCK = Command(
    "unlock",
    "free the pipeline from a dead holder, and finish or undo its run",
    (f"unlock {CONFIG}", f"unlock --force {CONFIG}"),
    _recover,
    _unlock_flags,
)
