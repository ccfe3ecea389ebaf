"""The way out for a committed run that can't be published: a run of its own takes back what was published of it.

That run's journal is a commit like any other: the files that go, the log entries that undo, the state before. So
whoever comes after a crash finishes it, and the next run starts as if the one that was given up had never been.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from singer_spark.errors import LockedError, StateError
from singer_spark.state.choice import place_of
from singer_spark.state.run_log import LAKE_FOLDER, PUBLISHED, RunEntry, read_entry
from singer_spark.storage.at_once import each
from target_spark_lake.commit import journal
from target_spark_lake.commit.journal import GIVEN_UP_BY, GIVES_UP, Plan
from target_spark_lake.commit.publish import WAY_OUT, lost_files, publish
from target_spark_lake.layout import JOINED, is_order, table_of_file, table_of_record
from target_spark_lake.state.saving import cleared
from target_spark_lake.table_logs import TableLogs
from target_spark_lake.tables.taking_back import Fate

if TYPE_CHECKING:
    from singer_spark.errors import UnpublishableError
    from singer_spark.state.store import StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.commit.lock import RunLock
    from target_spark_lake.layout import Layout
    from target_spark_lake.tables.changes import PublishedFile
    from target_spark_lake.tables.table_record import TableRecord

JSON = dict[str, Any]
logger = logging.getLogger(__name__)

CONVERT = "convert"
STAGED = f"{LAKE_FOLDER}/staging/runs/"


def check_given_up(storage: Storage, layout: Layout, run_id: str, last: RunEntry | None) -> JSON | None:
    """Refuses to give up a run that is not committed and unpublished.

    Returns:
        Of a run that was given up before, what its journal and its undoer's say; None: it may be tried.

    Raises:
        StateError: there is no such run, or it is no unpublished one.
    """
    if last is not None and last.body.get(GIVES_UP, {}).get("run_id") == run_id:
        return told(last)  # perhaps not all of it is done yet: what follows finishes it
    entry = read_entry(storage, layout.runs, run_id)
    if entry is None:
        raise StateError(f"pipeline {layout.pipeline} has no run {run_id}: `spark-lake runs` shows them")
    if by := entry.body.get(GIVEN_UP_BY):
        if (undoing := read_entry(storage, layout.runs, by)) is not None:
            return told(undoing)
        # Its journal was removed, with what was lost.
        return {"run_id": run_id, "reason": str(entry.body["error"]).partition(": ")[2], "streams": None, "by": by}
    if GIVES_UP in entry.body:
        raise StateError(
            f"run {run_id} takes back run {entry.body[GIVES_UP]['run_id']}: `spark-lake recover` finishes it"
        )
    if entry.phase == PUBLISHED:
        raise StateError(
            f"run {run_id} is published, so there is nothing to give up; `spark-lake state restore {run_id} --before` "
            "makes the state before it the current one"
        )
    if last is None or last.run_id != run_id:
        raise StateError(f"run {run_id} was never committed: nothing of it happened, and there is nothing to give up")
    return None


def told(entry: RunEntry) -> JSON:
    """What a run that took another one back says of it."""
    return {**entry.body[GIVES_UP], "by": entry.run_id}


def give_up(lock: RunLock, store: StateStore, entry: RunEntry, reason: UnpublishableError) -> RunEntry:
    """Takes a committed run back, which was just tried to be published, by the run in whose name the lock is held.

    Gives the run that took it back, published; `reason` says why the other could not be.

    Raises:
        UnpublishableError: someone else changed a table since; nothing was decided.
        StorageError: the storage failed; the next start goes on, or nothing was decided.
        LockedError: another process took over.
    """
    storage, layout = lock.storage, lock.layout
    plan = Plan.of(entry)
    lost = lost_files(storage, plan)
    undoing = _undoing(storage, layout, lock.entry.run_id, entry, plan, lost)
    head = journal.head(layout, lock.entry, entry.last_committed)
    state, before = _state_before(entry), entry.body.get("previous_state")
    body = journal.committed_body(head, undoing, {}, state, before, place_of(entry))
    cause = str(reason).partition(WAY_OUT)[0]
    body[GIVES_UP] = {"run_id": entry.run_id, "reason": cause, "streams": _losses(entry, plan, lost)}
    lock.ensure_held()
    made = journal.commit(storage, layout, body)
    if made is None:
        raise LockedError(
            f"pipeline {layout.pipeline}: another process took this one for dead, so nothing was given up"
        )
    logger.warning("Run %s is given up: what was published of it is taken back.", entry.run_id)
    return publish(lock, store, made)


def _undoing(
    storage: Storage, layout: Layout, run_id: str, entry: RunEntry, plan: Plan, lost: tuple[PublishedFile, ...]
) -> Plan:
    """What goes, what stays after all, and which log entries undo others, table by table."""
    converts = entry.body.get("command") == CONVERT
    records = {table_of_record(path): (path, record) for path, record in plan.tables.items()}
    logs = TableLogs(storage, layout)
    undone = {commit.table: commit.undone_by(run_id) for commit in plan.logs}
    fates = {table: logs.of_commit(commit).fate(commit) for table, commit in undone.items()}
    # First what a process that sleeps could still move.
    retire = [file.staged for file in plan.publish]
    tables: dict[str, TableRecord] = {}
    for table in dict.fromkeys((*(table_of_file(file.final) for file in plan.publish), *records)):
        path, record = records.get(table, ("", None))
        files = [file for file in plan.publish if table_of_file(file.final) == table]
        if table in undone:
            # A version of the log names its files: they go once nobody can ask for it any more (VACUUM).
            made = fates[table] is Fate.MADE
            retire += [] if made else [file.final for file in files]
            # What the run has made of a new table, or was to make, can only become an empty table of the pipeline.
            stays = (made and (converts or undone[table].makes_table)) or (
                fates[table] is Fate.NO_TABLE and not converts
            )
        else:
            old = [path for path in plan.retire if table_of_file(path) == table]
            stays = None in each(storage, storage.size, old)
            twice = _keeps_versions(table, record)
            retire += [file.final for file in files if not stays or (twice and not _is_written_anew(file))]
            # Beside a file that is lost nobody knows which rows these alone still hold.
            retire += old if stays and not set(files) & set(lost) else []
        if stays and record is not None:
            tables[path] = record
    taken = (commit for table, commit in undone.items() if not converts and fates[table] is not Fate.LEFT)
    return Plan((), tuple(dict.fromkeys(retire)), tables, tuple(taken))


def _keeps_versions(table: str, record: TableRecord | None) -> bool:
    """Whether a table would have the rows twice that the next run brings again.

    One that holds a row for each key, or is written whole, takes the same rows again.
    """
    return table.endswith("__history") or (record is not None and record.method.keeps_versions)


def _is_written_anew(file: PublishedFile) -> bool:
    """Whether the rows of a file are older than its run."""
    _, _, _, *folders = file.staged.removeprefix(STAGED).split("/")
    return folders[0] == JOINED or "rewritten" in file.staged.removesuffix(".parquet").split("/")[-2:]


def _state_before(entry: RunEntry) -> JSON | None:
    """What the next run starts from, where none was the empty one; None: what is saved stays, for the run saves none.

    It is written in any case: a process that sleeps before it writes the run's is to find something else than it saw.
    """
    before: JSON | None = entry.body.get("previous_state")
    if entry.state is None:
        return None
    return cleared(entry.state) if before is None else before


def _losses(entry: RunEntry, plan: Plan, lost: tuple[PublishedFile, ...]) -> JSON:
    """Of each stream the files that were gone, those that do not count any more, and the rows in either."""
    nothing = dict.fromkeys(("lost_files", "lost_rows", "taken_back_files", "taken_back_rows"), 0)
    losses = {stream: {**nothing} for stream in entry.body["streams"]}
    for file in plan.publish:
        if not is_order(file.final):
            of_stream = losses.setdefault(_stream_of(file, plan), {**nothing})
            kind = "lost" if file in lost else "taken_back"
            of_stream[f"{kind}_files"] += 1
            of_stream[f"{kind}_rows"] += file.rows
    return losses


def _stream_of(file: PublishedFile, plan: Plan) -> str:
    """As the record of its table says; else by its staged path, below `staging/runs/<pipeline>/<run>/<stream>`."""
    for path, record in plan.tables.items():
        if table_of_file(file.final) == table_of_record(path):
            return record.stream
    return unquote(file.staged.removeprefix(STAGED).split("/")[2])
