"""Publishing of a committed run: any process holding the pipeline may repeat every step, with the
same result.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from itertools import compress, groupby
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from singer_spark.core.messages import timestamp_text
from singer_spark.errors import LockedError, StorageError, UnpublishableError
from singer_spark.state.choice import location_of
from singer_spark.state.run_log import COMMITTED, PUBLISHED, RunEntry, read_entry
from singer_spark.store.storage import each
from target_spark_lake.commit.journal import (
    ABANDONS,
    Plan,
    mark_abandoned,
    note_unpublished,
    rewritten,
)
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import REJECTED, Layout, is_order, table_of_file, written_by
from target_spark_lake.table.table_record import release_claims, write_record
from target_spark_lake.table_log import TableLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from singer_spark.state.store import StateStore
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.lock import RunLock
    from target_spark_lake.table.changes import Commit, PublishedFile, StagedFile, Unreferenced

logger = logging.getLogger(__name__)

RETIRED_LOOKED_AT = 100
WAY_OUT = "; or abandon the run: `spark-lake recover --give-up-publishing"
Item = TypeVar("Item")


def publish(lock: RunLock, store: StateStore, entry: RunEntry) -> RunEntry:
    """Publish a committed run: new files, table logs, retired files, table records, state, mark in
    the journal.

    Returns the published entry. If another process takes over, that one finishes the run.

    Raises:
        UnpublishableError: files are gone, or another writer changed a table's log; someone must
            decide what to do.
        StorageError: the storage failed; the next start repeats all of it.
        LockedError: another process took over.
    """
    try:
        return _published(lock, store, entry)
    except StorageError as failure:
        waits: StorageError = failure
        if isinstance(failure, UnpublishableError) and ABANDONS not in entry.body:
            waits = UnpublishableError(failure.code, f"{failure.message}{WAY_OUT} {entry.run_id}`")
        note_unpublished(lock.storage, lock.layout, entry.run_id, waits)
        if waits is failure:
            raise
        raise waits from failure


def _published(lock: RunLock, store: StateStore, entry: RunEntry) -> RunEntry:
    storage, layout = lock.storage, lock.layout
    plan = Plan.of(entry)
    logs = TableLogs(storage, layout)
    _move(storage, layout, logs, entry, plan)
    # Read first, then check the lock, write last: if another process takes over, what was read is
    # no longer current.
    tables = plan.tables
    records = dict(zip(tables, each(storage, storage.read, tables), strict=True))
    state = None if entry.state is None else store.content()
    lock.ensure_held()
    abandoned = entry.body.get(ABANDONS, {}).get("run_id")
    # The state is never ahead of the rows: it is saved after them, and reverted before them.
    if (
        abandoned
        and entry.state is not None
        and not store.write(entry.state, state, entry.run_id, _mark(entry.run_id))
    ):
        raise LockedError(
            LakeCode.CHANGED_BESIDE,
            f"something else wrote to the state while run {entry.run_id} was publishing",
        )
    versions = each(storage, lambda commit: logs.of_commit(commit).publish(commit), plan.logs)
    if plan.retire and not abandoned:
        _check_phase(storage, layout, entry.run_id, COMMITTED, PUBLISHED)
    for paths in _in_turn(
        plan.retire, lambda path: (not path.startswith(layout.pipeline_staging), is_order(path))
    ):
        each(storage, storage.delete, paths)
    storage.flush_folders(plan.retire)
    if plan.unreferenced:
        _remove_unreferenced(storage, logs, plan.unreferenced)
        # Such a run may write no record and no state, whose exchange would notice.
        lock.ensure_held()
    written = all(
        each(storage, lambda path: write_record(storage, path, tables[path], records[path]), tables)
    )
    if written and entry.state is not None and not abandoned:
        lock.ensure_held()  # again: someone may have restored the very state that was read
        written = store.write(entry.state, state, entry.run_id)
    if not written:
        raise LockedError(
            LakeCode.CHANGED_BESIDE,
            f"something else wrote to the records or the state while run {entry.run_id} was "
            "publishing",
        )
    if abandoned:
        mark_abandoned(storage, layout, abandoned, entry)
        release_claims(storage, abandoned)
    location = location_of(entry) if entry.state is None else store.location
    finished = timestamp_text(datetime.now(UTC))
    published = rewritten(
        storage, layout, entry, location, phase=PUBLISHED, finished_at=finished, error=None
    )
    for commit, version in zip(plan.logs, versions, strict=True):
        if version is not None:
            logs.of_commit(commit).tidy(commit.table, version)
    return published


def _move(storage: Storage, layout: Layout, logs: TableLogs, entry: RunEntry, plan: Plan) -> None:
    try:
        _moved(storage, plan.publish)
    except StorageError as failure:
        absent = lost_files(storage, plan)
        if not absent:
            raise
        # Files already named by a table's log belong to the table; other writers may have compacted
        # and removed them since.
        tables = {table_of_file(file.final) for file in absent}
        named = {
            each.table
            for each in plan.logs
            if each.table in tables and logs.of_commit(each).has_run(each)
        }
        if lost := [file for file in absent if table_of_file(file.final) not in named]:
            _check_phase(storage, layout, entry.run_id, COMMITTED)
            raise UnpublishableError(
                LakeCode.FILES_GONE,
                f"run {entry.run_id} is committed, and {len(lost)} of its {len(plan.publish)} "
                f"file(s) are gone, the first of them {lost[0].staged}, which was to become "
                f"{lost[0].final}: bring them back, then `spark-lake recover`",
            ) from failure
        _moved(storage, [file for file in plan.publish if file not in absent])


def _moved(storage: Storage, published: Iterable[PublishedFile]) -> None:
    # No file may appear before the object that records when its rows were received.
    for files in _in_turn(published, lambda file: not is_order(file.final)):
        each(storage, lambda file: storage.move(file.staged, file.final), files)
        storage.flush(file.final for file in files)


def _in_turn(items: Iterable[Item], turn: Callable[[Item], Any]) -> list[list[Item]]:
    return [list(group) for _, group in groupby(sorted(items, key=turn), key=turn)]


def _check_phase(storage: Storage, layout: Layout, run_id: str, *phases: str) -> None:
    """Check that no other process has published the run meanwhile, or abandoned it, which makes its
    old files current.

    Raises:
        LockedError: another process did.
    """
    entry = read_entry(storage, layout.runs, run_id)
    if entry is None or entry.phase not in phases:
        done = "published" if entry is not None and entry.phase == PUBLISHED else "abandoned"
        raise LockedError(
            LakeCode.LOCK_LOST,
            f"run {run_id} was {done} by another process, as the lock of this one had expired",
        )


def _mark(run_id: str) -> str:
    """Whitespace for the state of a run that reverts another one, unique to this run.

    The restored state equals the value that a suspended publisher of the other run saw, so its
    bytes must differ.
    """
    return "".join(" \t"[int(bit)] for bit in f"{crc32(run_id.encode()):032b}")


def _remove_unreferenced(storage: Storage, logs: TableLogs, found: Iterable[Unreferenced]) -> None:
    """Remove what a run found unreferenced, unless that changed meanwhile."""
    for files in found:
        log = logs.of(files.format)
        gone = files.files if log is None else log.forget(files)
        each(storage, storage.delete, gone)
        storage.flush_folders(gone)
        # Only in the lake's own folder, because in a table another writer may just have created an
        # empty one.
        rejected = [path for path in gone if path.startswith(f"{REJECTED}/")]
        storage.remove_empty({path.rpartition("/")[0] for path in rejected})


def lost_files(storage: Storage, plan: Plan) -> tuple[PublishedFile, ...]:
    """Files of a commit that are neither staged nor published."""

    def is_lost(file: PublishedFile) -> bool:
        return storage.size(file.final) is None and storage.size(file.staged) is None

    return tuple(compress(plan.publish, each(storage, is_lost, plan.publish)))


def remember_tables(storage: Storage, layout: Layout, commit: Commit, entry: RunEntry) -> None:
    """Save the indexes of a published run's tables; without them the next merge is only slower."""
    final = {file.staged: file.final for file in Plan.of(entry).publish}
    known = {
        layout.table_index(change.table): change.index.renamed(final)
        for change in commit.changes
        if change.index is not None
    }
    try:
        each(storage, lambda path: storage.replace(path, known[path].to_bytes()), known)
    except StorageError as failure:
        logger.warning(
            "The index of a table was not written; the next merge rebuilds it: %s", failure
        )


def remove_late_copies(storage: Storage, entry: RunEntry) -> None:
    """Remove retired files that came back: a copy in a store may complete after its process died.

    Only the newest files are checked, because older copies ended long ago; this bounds the cost of
    a start.
    """
    if storage.local:  # a rename ends with its process
        return
    newest = sorted(entry.body.get("retire", ()), key=written_by)[-RETIRED_LOOKED_AT:]
    sizes = each(storage, storage.size, newest)
    for path, size in zip(newest, sizes, strict=True):
        if size is not None:
            logger.warning(
                "%s came back after run %s had retired it: removed again.", path, entry.run_id
            )
            storage.delete(path)


def verify_staged(storage: Storage, staged: Iterable[StagedFile]) -> None:
    """Refuse a commit with missing or truncated files, and make the others survive a power cut.

    Raises:
        StorageError: names the file.
    """
    files = tuple(staged)
    sizes = each(storage, lambda file: storage.size(file.path), files)
    for file, size in zip(files, sizes, strict=True):
        if size != file.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise StorageError(
                LakeCode.STAGED_INCOMPLETE,
                f"staged file {file.path} {found}, not {file.bytes}; run again",
            )
    storage.flush(file.path for file in files)
