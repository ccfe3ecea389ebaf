"""The journal: one object per run, created if absent, that decides whether the run happened.

The object of a committed run holds everything needed to publish it, so that any later process can
finish it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from singer_spark.core.messages import timestamp_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError, one_line
from singer_spark.state.choice import STATE_LOCATION
from singer_spark.state.run_log import ABORTED, COMMITTED, RunEntry, decode, encode, read_entry
from singer_spark.store.storage import each
from target_spark_lake.layout import Layout, is_in_parts
from target_spark_lake.table.changes import (
    Commit,
    PublishedFile,
    StreamReport,
    TableChange,
    Unreferenced,
)
from target_spark_lake.table.table_record import TableRecord
from target_spark_lake.table_log import LogCommit, logs_from_body, logs_to_body, plan_logs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.lock import LockEntry

JSON = dict[str, Any]
SUCCEEDED, FAILED, ROLLED_BACK = "succeeded", "failed", "rolled_back"
KEPT_RUNS = 1000
PRUNED_AT_ONCE = 100
# In the journal of a run that reverts a committed one: which run, why, and what is lost. In the
# other's journal: by which run.
ABANDONS, ABANDONED_BY = "gives_up", "given_up_by"
# Only in the journals of runs that have such files; older programs leave them to the next such run.
UNREFERENCED = "expendable"
SHAPES = "shapes"


@dataclass(frozen=True)
class Plan:
    """The steps of a commit, which any process may carry out and repeat.

    Attributes:
        publish: Files to move to where readers find them.
        retire: Files to remove after that.
        tables: Path of a table's record to its new content.
        logs: Commits to tables' own logs, made once the files are in place.
        unreferenced: Files no longer needed, removed if that is still true.
    """

    publish: tuple[PublishedFile, ...]
    retire: tuple[str, ...]
    tables: Mapping[str, TableRecord]
    logs: tuple[LogCommit, ...] = ()
    unreferenced: tuple[Unreferenced, ...] = ()

    @staticmethod
    def of(entry: RunEntry) -> Plan:
        """Read the plan of a committed run."""
        body = entry.body
        try:
            return Plan(
                tuple(PublishedFile(**file) for file in body["publish"]),
                tuple(body["retire"]),
                {
                    path: TableRecord.from_body(record, path)
                    for path, record in body["tables"].items()
                },
                logs_from_body(body),
                tuple(map(Unreferenced.from_body, body.get(UNREFERENCED, ()))),
            )
        except (KeyError, TypeError) as error:
            raise StorageError(
                RunCode.LAKE_FILE_DAMAGED, f"the journal of run {entry.run_id} is damaged ({error})"
            ) from error


def plan_commit(
    layout: Layout, run_id: str, commit: Commit, records: Mapping[str, TableRecord]
) -> Plan:
    """Give each staged file its final name and collect the rest.

    `records` are the new ones, by table folder.
    """
    publish: list[PublishedFile] = []
    for change in commit.changes:
        for number, file in enumerate(change.published, start=1):
            extension = f"{file.codec}.parquet" if file.codec else change.extension
            final = layout.final_file(
                change.table,
                file.partition,
                run_id,
                number,
                extension,
                file.place,
                in_parts=file.order is not None,
            )
            publish.append(PublishedFile(file.path, final, file.rows, file.bytes))
            if file.order is not None:
                order = layout.row_order(change.table, final)
                publish.append(PublishedFile(file.order.path, order, 0, file.order.bytes))
    for stream, file in commit.rejected.items():
        publish.append(
            PublishedFile(file.path, layout.rejected(run_id, stream), file.rows, file.bytes)
        )
    return Plan(
        tuple(publish),
        tuple(path for change in commit.changes for path in _retired(layout, change)),
        {layout.table_record(table): record for table, record in records.items()},
        plan_logs(layout.pipeline, run_id, commit.changes, publish),
        commit.unreferenced,
    )


def _retired(layout: Layout, change: TableChange) -> Iterator[str]:
    """The files to remove; a table with a log keeps those of older versions for its readers."""
    yield from getattr(change.log, "leaves", ())
    for path in (*change.retire, *change.joined_from) if change.log is None else ():
        yield path
        if is_in_parts(path):
            yield layout.row_order(change.table, path)


def stream_reports(commit: Commit) -> dict[str, StreamReport]:
    """Counts of a commit, per stream."""
    reports: dict[str, StreamReport] = {}
    for change in commit.changes:
        reports[change.stream] = reports.get(change.stream, StreamReport()).plus(change)
    for stream, file in commit.rejected.items():
        reports[stream] = replace(reports.get(stream, StreamReport()), rejected=file.rows)
    return reports


def committed_body(
    head: JSON,
    plan: Plan,
    streams: Mapping[str, StreamReport],
    state: Mapping[str, Any] | None,
    previous_state: Mapping[str, Any] | None,
    state_location: str | None,
    shapes: Mapping[str, str] = {},
) -> JSON:
    """A commit as a JSON object.

    `state` is None if the saved one stays, `state_location` if it is in the bucket. `shapes` are
    those of all streams that runs have loaded so far.
    """
    return {
        **head,
        "phase": COMMITTED,
        "outcome": SUCCEEDED,
        "committed_at": timestamp_text(datetime.now(UTC)),
        "streams": {name: asdict(report) for name, report in streams.items()},
        "state": state,
        "previous_state": previous_state,
        STATE_LOCATION: state_location,
        "publish": [asdict(file) for file in plan.publish],
        "retire": list(plan.retire),
        **logs_to_body(plan.logs),
        "tables": {path: record.to_body() for path, record in plan.tables.items()},
        SHAPES: dict(shapes),
        **({UNREFERENCED: list(map(asdict, plan.unreferenced))} if plan.unreferenced else {}),
    }


def aborted_body(head: JSON, outcome: str, error: BaseException | str) -> JSON:
    """A failed or rolled back run as a JSON object, with the reason."""
    reason = reason_of(error) if isinstance(error, BaseException) else error
    finished = timestamp_text(datetime.now(UTC))
    return {**head, "phase": ABORTED, "outcome": outcome, "finished_at": finished, "error": reason}


def reason_of(error: BaseException) -> str:
    """Why a run failed, in one line: secrets masked, signals by name."""
    if isinstance(error, Exception):
        return one_line(error)
    return f"stopped by {str(error) or type(error).__name__}"


def head(layout: Layout, run: LockEntry, last_committed: str | None) -> JSON:
    """The members common to all journals.

    `last_committed` is the last committed run when the lock was taken.
    """
    return {
        "run_id": run.run_id,
        "pipeline": layout.pipeline,
        "command": run.command,
        "phase": None,
        "outcome": None,
        "started_at": timestamp_text(run.since),
        "finished_at": None,
        "last_committed": last_committed,
        "streams": {},
        "state": None,
        "error": None,
    }


def entry_of(body: JSON) -> RunEntry:
    """The run entry of a journal's body."""
    return RunEntry(body["run_id"], body["phase"], body["last_committed"], body["state"], body)


def decide(storage: Storage, layout: Layout, body: JSON) -> bool:
    """Create a run's journal; False if one exists, with whatever decision."""
    return storage.create(layout.journal(body["run_id"]), encode(body))


def commit(storage: Storage, layout: Layout, body: JSON) -> RunEntry | None:
    """Decide a run as committed; None if it was decided otherwise before."""
    try:
        done = decide(storage, layout, body)
    except StorageError:
        # Perhaps only the answer was lost; if the object holds exactly these bytes, it is our
        # commit.
        done = decide(storage, layout, body)
    if done:
        return entry_of(body)
    # A successor may have updated the journal already, but only this run can have committed it.
    existing = read_entry(storage, layout.runs, body["run_id"])
    return None if existing is None or existing.phase == ABORTED else existing


def rewritten(
    storage: Storage, layout: Layout, entry: RunEntry, state_location: str | None, **changes: Any
) -> RunEntry:
    """Update a committed run's journal: where the state is kept, and other changes."""
    body = {**entry.body, **changes, STATE_LOCATION: state_location}
    storage.replace(layout.journal(entry.run_id), encode(body))
    return entry_of(body)


def note_unpublished(storage: Storage, layout: Layout, run_id: str, error: StorageError) -> None:
    """Note for people why a committed run is not published, as long as it isn't; never fails."""
    with suppress(StorageError):
        path = layout.journal(run_id)
        seen = storage.read(path)
        body = {} if seen is None else decode(seen, path)
        if body.get("phase") == COMMITTED:
            storage.exchange(path, seen, encode({**body, "error": one_line(error)}))


def mark_abandoned(storage: Storage, layout: Layout, run_id: str, by: RunEntry) -> None:
    """Mark a committed run as rolled back after another run has reverted what it published."""
    entry = read_entry(storage, layout.runs, run_id)
    if entry is None or entry.phase == ABORTED:
        return
    error = f"its publishing was abandoned by run {by.run_id}: {by.body[ABANDONS]['reason']}"
    members = ("run_id", "pipeline", "command", "started_at", "last_committed")
    kept = {name: entry.body.get(name) for name in members}
    undone = {
        **aborted_body(kept, ROLLED_BACK, error),
        "streams": {},
        "state": None,
        ABANDONED_BY: by.run_id,
    }
    storage.replace(layout.journal(run_id), encode(undone))


def prune(
    storage: Storage, layout: Layout, decided: Sequence[str], keep: set[str], after: str = ""
) -> None:
    """Remove the oldest journals beyond those kept, a limited number at once, so that no run waits.

    Of the `decided` runs, newest first, those beyond `KEPT_RUNS` and newer than `after` are
    removed, unless in `keep`.
    """
    old = [run_id for run_id in decided[KEPT_RUNS:] if run_id not in keep and run_id > after]
    each(storage, lambda run_id: storage.delete(layout.journal(run_id)), old[-PRUNED_AT_ONCE:])
