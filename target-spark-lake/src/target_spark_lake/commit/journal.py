"""The journal: one object per run, created if absent, that decides whether the run happened.

As a commit it holds everything that publishing needs, so that any later process can finish it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from singer_spark.errors import StorageError, one_line
from singer_spark.singer.messages import timestamp_text
from singer_spark.state.choice import STATE_PLACE
from singer_spark.state.run_log import ABORTED, COMMITTED, RunEntry, decode, encode, read_entry
from singer_spark.storage.at_once import each
from target_spark_lake.layout import is_in_parts
from target_spark_lake.table_logs import LogCommit, logs_from_body, logs_to_body, plan_logs
from target_spark_lake.tables.changes import PublishedFile, StreamReport
from target_spark_lake.tables.expendable import Expendable
from target_spark_lake.tables.table_record import TableRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from singer_spark.storage.storage import Storage
    from target_spark_lake.commit.lock_entry import LockEntry
    from target_spark_lake.layout import Layout
    from target_spark_lake.tables.changes import Commit, TableChange

JSON = dict[str, Any]
SUCCEEDED, FAILED, ROLLED_BACK = "succeeded", "failed", "rolled_back"
KEPT_RUNS = 1000
PRUNED_AT_ONCE = 100
# In the journal of a run that takes a committed one back: which, why, and what is lost; and in that one's: by whom.
GIVES_UP, GIVEN_UP_BY = "gives_up", "given_up_by"
# Only in the journals of runs that have some: an older program leaves these files to the next such run.
EXPENDABLE = "expendable"


@dataclass(frozen=True)
class Plan:
    """What a commit tells every process to do; each part may be done again.

    Attributes:
        publish: Files to move to where readers see them.
        retire: Files to remove after that.
        tables: Path of a table's record to its new content.
        logs: Commits to tables' own logs, made once the files are there.
        expendable: Files that nobody needs any more, removed if that is still so.
    """

    publish: tuple[PublishedFile, ...]
    retire: tuple[str, ...]
    tables: Mapping[str, TableRecord]
    logs: tuple[LogCommit, ...] = ()
    expendable: tuple[Expendable, ...] = ()

    @staticmethod
    def of(entry: RunEntry) -> Plan:
        """Reads the plan of a committed run."""
        body = entry.body
        try:
            return Plan(
                tuple(PublishedFile(**file) for file in body["publish"]),
                tuple(body["retire"]),
                {path: TableRecord.from_body(record, path) for path, record in body["tables"].items()},
                logs_from_body(body),
                tuple(map(Expendable.from_body, body.get(EXPENDABLE, ()))),
            )
        except (KeyError, TypeError) as error:
            raise StorageError(f"the journal of run {entry.run_id} is damaged ({error})") from error


def plan_commit(layout: Layout, run_id: str, commit: Commit, records: Mapping[str, TableRecord]) -> Plan:
    """Gives each staged file its final name, and gathers the rest; `records` are those after it, by table folder."""
    publish: list[PublishedFile] = []
    for change in commit.changes:
        for number, file in enumerate(change.published, start=1):
            extension = f"{file.codec}.parquet" if file.codec else change.extension
            place, in_parts = file.place, file.order is not None
            final = layout.final_file(change.table, file.partition, run_id, number, extension, place, in_parts=in_parts)
            publish.append(PublishedFile(file.path, final, file.rows, file.bytes))
            if file.order is not None:
                order = layout.row_order(change.table, final)
                publish.append(PublishedFile(file.order.path, order, 0, file.order.bytes))
    for stream, file in commit.rejected.items():
        publish.append(PublishedFile(file.path, layout.rejected(run_id, stream), file.rows, file.bytes))
    return Plan(
        tuple(publish),
        tuple(path for change in commit.changes for path in _retired(layout, change)),
        {layout.table_record(table): record for table, record in records.items()},
        plan_logs(layout.pipeline, run_id, commit.changes, publish),
        commit.expendable,
    )


def _retired(layout: Layout, change: TableChange) -> Iterator[str]:
    """What is removed; readers of older versions of a table with a log go on finding its files."""
    yield from getattr(change.log, "leaves", ())
    for path in (*change.retire, *change.joined_from) if change.log is None else ():
        yield path
        if is_in_parts(path):
            yield layout.row_order(change.table, path)


def stream_reports(commit: Commit) -> dict[str, StreamReport]:
    """What a commit does, per stream."""
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
    state_place: str | None,
) -> JSON:
    """A commit as a JSON object; `state` is None where the saved one stays, `state_place` where it is the bucket's."""
    return {
        **head,
        "phase": COMMITTED,
        "outcome": SUCCEEDED,
        "committed_at": timestamp_text(datetime.now(UTC)),
        "streams": {name: asdict(report) for name, report in streams.items()},
        "state": state,
        "previous_state": previous_state,
        STATE_PLACE: state_place,
        "publish": [asdict(file) for file in plan.publish],
        "retire": list(plan.retire),
        **logs_to_body(plan.logs),
        "tables": {path: record.to_body() for path, record in plan.tables.items()},
        **({EXPENDABLE: [asdict(each) for each in plan.expendable]} if plan.expendable else {}),
    }


def aborted_body(head: JSON, outcome: str, error: BaseException | str) -> JSON:
    """A run that did not happen, as a JSON object, with the reason."""
    reason = reason_of(error) if isinstance(error, BaseException) else error
    finished = timestamp_text(datetime.now(UTC))
    return {**head, "phase": ABORTED, "outcome": outcome, "finished_at": finished, "error": reason}


def reason_of(error: BaseException) -> str:
    """Why a run failed, in one line: secrets masked, a signal by its name."""
    return one_line(error) if isinstance(error, Exception) else f"stopped by {str(error) or type(error).__name__}"


def head(layout: Layout, run: LockEntry, last_committed: str | None) -> JSON:
    """What every journal says about its run, which took the lock after `last_committed`, whatever became of it."""
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
    """The entry that a journal is."""
    return RunEntry(body["run_id"], body["phase"], body["last_committed"], body["state"], body)


def decide(storage: Storage, layout: Layout, body: JSON) -> bool:
    """Creates a run's journal; False when the run was decided before, in whatever way."""
    return storage.create(layout.journal(body["run_id"]), encode(body))


def commit(storage: Storage, layout: Layout, body: JSON) -> RunEntry | None:
    """Decides a run as committed; None when it was decided otherwise before."""
    try:
        done = decide(storage, layout, body)
    except StorageError:
        # Only the answer may have got lost: these very bytes standing there are our commit.
        done = decide(storage, layout, body)
    if done:
        return entry_of(body)
    # A successor may have marked it already: nobody but this run commits it.
    standing = read_entry(storage, layout.runs, body["run_id"])
    return None if standing is None or standing.phase == ABORTED else standing


def rewritten(storage: Storage, layout: Layout, entry: RunEntry, state_place: str | None, **changes: Any) -> RunEntry:
    """Notes where the state of a committed run is kept, and what else changes in its journal."""
    body = {**entry.body, **changes, STATE_PLACE: state_place}
    storage.replace(layout.journal(entry.run_id), encode(body))
    return entry_of(body)


def note_unpublished(storage: Storage, layout: Layout, run_id: str, error: StorageError) -> None:
    """Notes why a committed run is not published, for people; only while it is not, and never fails."""
    with suppress(StorageError):
        path = layout.journal(run_id)
        seen = storage.read(path)
        body = {} if seen is None else decode(seen, path)
        if body.get("phase") == COMMITTED:
            storage.exchange(path, seen, encode({**body, "error": one_line(error)}))


def mark_given_up(storage: Storage, layout: Layout, run_id: str, by: RunEntry) -> None:
    """Notes that a committed run never happened, since another one took back what of it was published."""
    entry = read_entry(storage, layout.runs, run_id)
    if entry is None or entry.phase == ABORTED:
        return
    error = f"its publishing was given up by run {by.run_id}: {by.body[GIVES_UP]['reason']}"
    kept = {name: entry.body.get(name) for name in ("run_id", "pipeline", "command", "started_at", "last_committed")}
    undone = {**aborted_body(kept, ROLLED_BACK, error), "streams": {}, "state": None, GIVEN_UP_BY: by.run_id}
    storage.replace(layout.journal(run_id), encode(undone))


def prune(storage: Storage, layout: Layout, decided: Sequence[str], keep: set[str], after: str = "") -> None:
    """Removes the oldest journals beyond those that are kept, not many at once: no run waits long for it.

    Of the runs that are decided, newest first, those in `keep` stay, and all up to the one `after` which they count.
    """
    old = [run_id for run_id in decided[KEPT_RUNS:] if run_id not in keep and run_id > after]
    each(storage, lambda run_id: storage.delete(layout.journal(run_id)), old[-PRUNED_AT_ONCE:])
