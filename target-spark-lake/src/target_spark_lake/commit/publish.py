"""Publishing a committed run: every step may be repeated by any process that holds the pipeline, to the same end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from singer_spark.errors import LockedError, StorageError, UnpublishableError
from singer_spark.state.choice import place_of
from singer_spark.storage.at_once import each
from target_spark_lake.commit.journal import GIVES_UP, Plan, mark_given_up, mark_published, note_unpublished
from target_spark_lake.delta_log.log_publish import CHECKPOINT_VERSIONS, publish_commit, write_checkpoint
from target_spark_lake.delta_log.take_back import take_back
from target_spark_lake.layout import is_order, written_by
from target_spark_lake.tables.table_record import release_claims, write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from singer_spark.state.run_log import RunEntry
    from singer_spark.state.store import StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.delta_log.log_entry import DeltaCommit
    from target_spark_lake.layout import Layout
    from target_spark_lake.tables.changes import Commit, PublishedFile, StagedFile

logger = logging.getLogger(__name__)

RETIRED_LOOKED_AT = 100
Item = TypeVar("Item")


def publish(
    storage: Storage, layout: Layout, store: StateStore, entry: RunEntry, ensure_held: Callable[[], None]
) -> RunEntry:
    """Brings a committed run before its readers: new files, Delta logs, retired files, tables' records, state, mark.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        store: Where the published copy of the state goes.
        entry: The committed run.
        ensure_held: Raises LockedError once another process took over, which then finishes the run itself.

    Returns:
        The entry as published.

    Raises:
        UnpublishableError: files are gone, or someone else changed a Delta table; a person decides.
        StorageError: the storage failed; the next start repeats all of it.
    """
    try:
        return _published(storage, layout, store, entry, ensure_held)
    except UnpublishableError as failure:
        way_out = f"{failure}; or give the run up: `spark-lake recover --give-up-publishing {entry.run_id}`"
        waits = UnpublishableError(failure if GIVES_UP in entry.body else way_out)
        note_unpublished(storage, layout, entry.run_id, waits)
        raise waits from failure
    except StorageError as failure:
        note_unpublished(storage, layout, entry.run_id, failure)
        raise


def _published(
    storage: Storage, layout: Layout, store: StateStore, entry: RunEntry, ensure_held: Callable[[], None]
) -> RunEntry:
    plan = Plan.of(entry)
    try:
        # A file is never there without what tells when its rows were received.
        for files in _in_turn(plan.publish, lambda file: not is_order(file.final)):
            each(storage, lambda file: storage.move(file.staged, file.final), files)
    except StorageError as failure:
        if lost := lost_files(storage, plan):
            raise UnpublishableError(
                f"run {entry.run_id} is committed, and {len(lost)} of its {len(plan.publish)} file(s) are gone, the "
                f"first of them {lost[0].staged}, which was to become {lost[0].final}: bring them back, then "
                "`spark-lake recover`"
            ) from failure
        raise
    storage.flush(file.final for file in plan.publish)
    # Seen first, held then, written last: once another process took over, what was seen no longer stands.
    records = dict(zip(plan.tables, each(storage, storage.read, plan.tables), strict=True))
    state = None if entry.state is None else store.content()
    ensure_held()
    goes_back = GIVES_UP in entry.body
    # The state is never ahead of the rows: it follows them, and goes back before they do.
    if goes_back and entry.state is not None and not store.write(entry.state, state, entry.run_id):
        raise LockedError(f"something else wrote to the state while run {entry.run_id} was publishing")
    versions = dict(each(storage, lambda delta: (delta.table, _logged(storage, delta)), plan.delta))
    for paths in _in_turn(plan.retire, is_order):
        each(storage, storage.delete, paths)
    storage.flush_folders(plan.retire)
    written = all(each(storage, lambda table: write_record(storage, *table, records[table[0]]), plan.tables.items()))
    if written and entry.state is not None and not goes_back:
        ensure_held()  # once more: a person may put back by hand the very state that was seen
        written = store.write(entry.state, state, entry.run_id)
    if not written:
        raise LockedError(f"something else wrote to the records or the state while run {entry.run_id} was publishing")
    if goes_back:
        given_up = entry.body[GIVES_UP]["run_id"]
        mark_given_up(storage, layout, given_up, entry)
        release_claims(storage, given_up)
    place = place_of(entry) if entry.state is None else store.place
    published = mark_published(storage, layout, entry, place)
    for table, version in versions.items():
        if version and version % CHECKPOINT_VERSIONS == 0:
            write_checkpoint(storage, table)
    return published


def _in_turn(items: Iterable[Item], is_later: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    found: tuple[list[Item], list[Item]] = ([], [])
    for item in items:
        found[is_later(item)].append(item)
    return found


def _logged(storage: Storage, commit: DeltaCommit) -> int | None:
    return publish_commit(storage, commit) if commit.takes_back is None else take_back(storage, commit)


def lost_files(storage: Storage, plan: Plan) -> tuple[PublishedFile, ...]:
    """Files of a commit that are neither staged nor where readers see them.

    Raises:
        StorageError: the storage failed.
    """

    def is_gone(file: PublishedFile) -> bool:
        return storage.size(file.final) is None and storage.size(file.staged) is None

    gone = each(storage, is_gone, plan.publish)
    return tuple(file for file, each_gone in zip(plan.publish, gone, strict=True) if each_gone)


def remember_tables(storage: Storage, layout: Layout, commit: Commit, entry: RunEntry) -> None:
    """Keeps what a published run learned of its tables' files; without it the next merge only looks longer."""
    final = {file.staged: file.final for file in Plan.of(entry).publish}
    try:
        known = {change.table: change.index for change in commit.changes if change.index is not None}
        each(
            storage,
            lambda table: storage.replace(layout.table_index(table), known[table].renamed(final).to_bytes()),
            known,
        )
    except StorageError as failure:
        logger.warning("The index of a table was not written, the next merge makes it anew: %s", failure)


def remove_late_copies(storage: Storage, entry: RunEntry) -> None:
    """Removes what a published run retired and came back: a copy inside a store may end after its process.

    Only the newest files are looked at: copies of others ended long ago, and a start costs the same for any table.

    Raises:
        StorageError: the storage failed.
    """
    if storage.local:  # a rename is over with its process
        return
    newest = sorted(entry.body.get("retire", ()), key=written_by)[-RETIRED_LOOKED_AT:]
    sizes = each(storage, storage.size, newest)
    for path, size in zip(newest, sizes, strict=True):
        if size is not None:
            logger.warning("%s came back after run %s had retired it: removed again.", path, entry.run_id)
            storage.delete(path)


def verify_staged(storage: Storage, staged: Iterable[StagedFile]) -> None:
    """Refuses a commit whose files are not there whole, and makes them survive a power cut.

    Raises:
        StorageError: names the file.
    """
    files = tuple(staged)
    sizes = dict(zip(files, each(storage, lambda file: storage.size(file.path), files), strict=True))
    for file, size in sizes.items():
        if size != file.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise StorageError(f"staged file {file.path} {found}, not {file.bytes}; run again")
    storage.flush(file.path for file in files)
