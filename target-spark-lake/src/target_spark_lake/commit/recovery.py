"""The first step of a new pipeline holder: finishing or undoing what the previous run left, or, on
request, abandoning it.

A committed run that can't be published is abandoned by another run, which reverts what was
published of it. That run's journal is a commit like any other: files to remove, log entries that
undo others, the previous state. So it can be finished after a crash, and the next run starts as if
the abandoned run had never happened.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from singer_spark.errors import LockedError, StateError, UnpublishableError
from singer_spark.state.choice import (
    IN_THE_BUCKET,
    check_owner,
    chosen_state,
    kept_elsewhere,
    location_of,
)
from singer_spark.state.run_log import (
    ABORTED,
    COMMITTED,
    LAKE_FOLDER,
    PUBLISHED,
    RunEntry,
    last_committed,
    read_entry,
    run_ids,
)
from singer_spark.store.storage import each
from target_spark_lake.commit import journal
from target_spark_lake.commit.checkpoint_file import take_over
from target_spark_lake.commit.journal import ABANDONED_BY, ABANDONS, ROLLED_BACK, Plan
from target_spark_lake.commit.lock import RunLock, take_lock
from target_spark_lake.commit.publish import WAY_OUT, lost_files, publish, remove_late_copies
from target_spark_lake.commit.saved_state import cleared
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.batch_message import sweep_batches
from target_spark_lake.layout import JOINED, Layout, is_order, table_of_file, table_of_record
from target_spark_lake.table.changes import Fate
from target_spark_lake.table.table_record import release_claims
from target_spark_lake.table_log import TableLogs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.state.store import Checkpoint, SavedState, StateStore
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.lock import LockEntry
    from target_spark_lake.table.changes import PublishedFile
    from target_spark_lake.table.table_record import TableRecord

logger = logging.getLogger(__name__)
JSON = dict[str, Any]
CONVERT = "convert"
STAGED = f"{LAKE_FOLDER}/staging/runs/"


@dataclass(frozen=True)
class Recovery:
    """What recovery found and did.

    Attributes:
        last: The last committed run, published by now; None before the first.
        saved: The current state; None before the first.
        checkpoint: What the next run can resume from, signed by the new holder; None if there is
            nothing.
        finished: Run that was published here.
        rolled_back: Runs found dead before their commit.
        decided: Ids of all decided runs, newest first.
        signed: The run that last wrote the state in a place outside the bucket; its journal proves
            whose place it is.
        abandoned: For a run abandoned on request: its id, the run that reverted it, why, and what
            is lost; otherwise None.
    """

    last: RunEntry | None
    saved: SavedState | None
    checkpoint: Checkpoint | None
    finished: str | None
    rolled_back: tuple[str, ...]
    decided: tuple[str, ...]
    signed: str | None = None
    abandoned: Mapping[str, Any] | None = None


def recover(
    lock: RunLock, store: StateStore, *, may_move: bool = True, abandoning: str | None = None
) -> Recovery:
    """Finish committed runs, undo uncommitted ones, and remove what dead runs staged and no run can
    resume from.

    A state kept elsewhere is moved to the store if `may_move`; the committed run `abandoning` is
    reverted if it can't be published.
    """
    storage, layout = lock.storage, lock.layout
    undone = [before for before in lock.earlier if _roll_back(storage, layout, before)]
    rolled_back = tuple(before.run_id for before in undone)
    decided = tuple(run_ids(storage, layout.runs))
    last = last_committed(storage, layout.runs, decided)
    if last is not None and location_of(last) != store.location and not may_move:
        raise kept_elsewhere(layout.pipeline, store, last)
    abandoned = check_abandoned(storage, layout, abandoning, last) if abandoning else None
    signed = check_owner(storage, layout.pipeline, store)
    store.register()
    finished = None
    if last is not None and last.phase == COMMITTED:
        logger.info("Run %s died after its commit: publishing the rest of it.", last.run_id)
        try:
            last = publish(lock, store, last)
            finished = last.run_id
        except UnpublishableError as reason:
            if abandoning != last.run_id:
                raise
            last = abandon(lock, store, last, reason)
            abandoned = abandonment_report(last)
    elif last is not None:
        remove_late_copies(storage, last)
    storage.sweep()
    for before in lock.earlier:
        _release_claims(storage, layout, before)
    last, saved = _resolve_state(lock, store, last)
    checkpoint = take_over(lock, saved.value if saved else None, last)
    lock.forget_earlier()
    return Recovery(last, saved, checkpoint, finished, rolled_back, decided, signed, abandoned)


def _roll_back(storage: Storage, layout: Layout, before: LockEntry) -> bool:
    """Decide an undecided run as dead: even if it was only suspended, it can't commit any more."""
    if before.released or read_entry(storage, layout.runs, before.run_id) is not None:
        return False
    last = last_committed(storage, layout.runs)
    head = journal.head(layout, before, last.run_id if last else None)
    error = f"{before.holder()} died before its commit; nothing was changed"
    body = journal.aborted_body(head, ROLLED_BACK, error)
    if not journal.decide(storage, layout, body):
        return False
    logger.info("Run %s died before its commit: undone.", before.run_id)
    return True


def _release_claims(storage: Storage, layout: Layout, before: LockEntry) -> None:
    """Release the tables of a run that died between its claims and its commit."""
    entry = None if before.released else read_entry(storage, layout.runs, before.run_id)
    if entry is not None and entry.phase == ABORTED:
        release_claims(storage, before.run_id)


def _resolve_state(
    lock: RunLock, store: StateStore, last: RunEntry | None
) -> tuple[RunEntry | None, SavedState | None]:
    """Move the state to its store if the last run kept it elsewhere; each step may be repeated.

    Returns the last run as it is now, and the current state.
    """
    storage, layout = lock.storage, lock.layout
    chosen = chosen_state(storage, layout.pipeline, store, last)
    saved = chosen.saved
    if last is None or location_of(last) == store.location:
        return last, saved
    lock.ensure_held()
    if saved is not None and not chosen.written:
        if not store.write(saved.value, chosen.replaces, last.run_id):
            raise LockedError(
                LakeCode.CHANGED_BESIDE,
                f"something else wrote to {store.origin} while the state was moved there; run "
                "again",
            )
    moved = journal.rewritten(storage, layout, last, store.location)
    if saved is not None:
        locations = chosen.moves_from, store.location or IN_THE_BUCKET
        logger.info("The state of pipeline %s moved from %s to %s.", layout.pipeline, *locations)
    if store.location is not None:
        # So that nobody edits a state that is no longer read.
        storage.delete(layout.state)
    return moved, saved


def free(
    storage: Storage,
    layout: Layout,
    store: StateStore,
    ttl_seconds: float,
    *,
    force: bool,
    abandoning: str | None = None,
) -> Recovery:
    """Take the pipeline only to finish or undo what the previous run left, then release it.

    Raises:
        ConfigurationError: the state is kept elsewhere, and the config does not say where.
        StateError: the run to abandon is not a committed one waiting to be published.
        UnpublishableError: the last committed run needs a manual decision, and should not be
            abandoned.
        LockedError: a living run holds it, and `force` was not given.
    """
    lock = take_lock(storage, layout, ttl_seconds, force=force, command="recover")
    try:
        recovery = recover(lock, store, may_move=store.location is not None, abandoning=abandoning)
        sweep_batches(storage, layout)
        return recovery
    finally:
        lock.release()


def check_abandoned(
    storage: Storage, layout: Layout, run_id: str, last: RunEntry | None
) -> JSON | None:
    """Refuse to abandon a run unless it is committed and unpublished.

    Returns:
        For a run abandoned earlier, the journals' report of that; None if it may be abandoned.

    Raises:
        StateError: there is no such run, or it is not an unpublished one.
    """
    if last is not None and last.body.get(ABANDONS, {}).get("run_id") == run_id:
        # Perhaps not all of it is done yet; the next steps finish it.
        return abandonment_report(last)
    entry = read_entry(storage, layout.runs, run_id)
    if entry is None:
        raise StateError(
            LakeCode.PIPELINE_UNKNOWN,
            f"pipeline {layout.pipeline} has no run {run_id}: `spark-lake runs` shows them",
        )
    if by := entry.body.get(ABANDONED_BY):
        if (undoing := read_entry(storage, layout.runs, by)) is not None:
            return abandonment_report(undoing)
        # Its journal was removed, and with it the list of losses.
        return {
            "run_id": run_id,
            "reason": str(entry.body["error"]).partition(": ")[2],
            "streams": None,
            "by": by,
        }
    if ABANDONS in entry.body:
        raise StateError(
            LakeCode.CANNOT_ABANDON,
            f"run {run_id} reverts run {entry.body[ABANDONS]['run_id']}: `spark-lake recover` "
            "finishes it",
        )
    if entry.phase == PUBLISHED:
        raise StateError(
            LakeCode.CANNOT_ABANDON,
            f"run {run_id} is published, so there is nothing to abandon; `spark-lake state restore "
            f"{run_id} --before` makes the state before it the current one",
        )
    if last is None or last.run_id != run_id:
        raise StateError(
            LakeCode.CANNOT_ABANDON,
            f"run {run_id} was never committed, so there is nothing to abandon",
        )
    return None


def abandonment_report(entry: RunEntry) -> JSON:
    """The report of a run that reverted another one, from its journal."""
    return {**entry.body[ABANDONS], "by": entry.run_id}


def abandon(
    lock: RunLock, store: StateStore, entry: RunEntry, reason: UnpublishableError
) -> RunEntry:
    """Revert a committed run whose publishing just failed, as the run that holds the lock.

    Returns the published run that reverted it; `reason` says why the other could not be published.

    Raises:
        UnpublishableError: another writer has changed a table since; nothing was decided.
        StorageError: the storage failed; the next start continues, unless nothing was decided.
        LockedError: another process took over.
    """
    storage, layout = lock.storage, lock.layout
    plan = Plan.of(entry)
    lost = lost_files(storage, plan)
    undoing = _undoing(storage, layout, lock.entry.run_id, entry, plan, lost)
    head = journal.head(layout, lock.entry, entry.last_committed)
    state, before = _state_before(entry), entry.body.get("previous_state")
    body = journal.committed_body(head, undoing, {}, state, before, location_of(entry))
    cause, losses = str(reason).partition(WAY_OUT)[0], _losses(entry, plan, lost)
    body[ABANDONS] = {"run_id": entry.run_id, "reason": cause, "streams": losses}
    lock.ensure_held()
    made = journal.commit(storage, layout, body)
    if made is None:
        raise LockedError(
            LakeCode.LOCK_LOST,
            f"pipeline {layout.pipeline}: the lock of this process expired and another one took "
            "over, so nothing was abandoned",
        )
    logger.warning("Run %s is abandoned: what was published of it is reverted.", entry.run_id)
    return publish(lock, store, made)


def _undoing(
    storage: Storage,
    layout: Layout,
    run_id: str,
    entry: RunEntry,
    plan: Plan,
    lost: tuple[PublishedFile, ...],
) -> Plan:
    """The plan that undoes a run: what is removed, what is kept after all, and which log entries
    undo others.
    """
    converts = entry.body.get("command") == CONVERT
    records = {table_of_record(path): (path, record) for path, record in plan.tables.items()}
    logs = TableLogs(storage, layout)
    undone = {commit.table: commit.undone_by(run_id) for commit in plan.logs}
    fates = {table: logs.of_commit(commit).fate(commit) for table, commit in undone.items()}
    # First the files that a suspended process could still move.
    retire = [file.staged for file in plan.publish]
    tables: dict[str, TableRecord] = {}
    for table in dict.fromkeys((*(table_of_file(file.final) for file in plan.publish), *records)):
        path, record = records.get(table, ("", None))
        files = [file for file in plan.publish if table_of_file(file.final) == table]
        if table in undone:
            # A version of the log names these files, so they are removed once no reader can request
            # that version any more (VACUUM).
            made = fates[table] is Fate.MADE
            retire += [] if made else [file.final for file in files]
            # A new table that the run made, or was about to make, can only become an empty table of
            # the pipeline.
            stays = (made and (converts or undone[table].makes_table)) or (
                fates[table] is Fate.NO_TABLE and not converts
            )
        else:
            old = [path for path in plan.retire if table_of_file(path) == table]
            stays = None in each(storage, storage.size, old)
            twice = _keeps_versions(table, record)
            retire += [
                file.final for file in files if not stays or (twice and not _is_rewritten(file))
            ]
            # If a file of the table is lost, it is unknown which of the remaining rows are only in
            # these old files.
            retire += old if stays and not set(files) & set(lost) else []
        if stays and record is not None:
            tables[path] = record
    taken = (
        commit for table, commit in undone.items() if not converts and fates[table] is not Fate.LEFT
    )
    return Plan((), tuple(dict.fromkeys(retire)), tables, tuple(taken))


def _keeps_versions(table: str, record: TableRecord | None) -> bool:
    """Whether the rows that the next run sends again would be duplicated in a table.

    A table with one row per key, or one that is replaced, takes the same rows again without
    duplicates.
    """
    return record is not None and (record.method.keeps_versions or record.is_history_at(table))


def _is_rewritten(file: PublishedFile) -> bool:
    """Whether a file's rows are older than its run."""
    _, _, _, *folders = file.staged.removeprefix(STAGED).removesuffix(".parquet").split("/")
    return folders[0] == JOINED or "rewritten" in folders[-2:]


def _state_before(entry: RunEntry) -> JSON | None:
    """The state before a run, or an empty one; None if the run saves none, so that the saved state
    is left alone.

    It is written even if it is equal, because a process that was suspended before writing the run's
    state must find a changed object.
    """
    if entry.state is None:
        return None
    before: JSON | None = entry.body.get("previous_state")
    return cleared(entry.state) if before is None else before


def _losses(entry: RunEntry, plan: Plan, lost: tuple[PublishedFile, ...]) -> JSON:
    """For each stream, the files lost and the files reverted, and the rows in either."""
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
    """The stream of a file: by the record of its table, or else by its staged path, below
    `staging/runs/<pipeline>/<run>/<stream>`.
    """
    for path, record in plan.tables.items():
        if table_of_file(file.final) == table_of_record(path):
            return record.stream
    return unquote(file.staged.removeprefix(STAGED).split("/")[2])
