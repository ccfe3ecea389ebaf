"""Publishing a committed run: every step may be repeated by any process that holds the pipeline, to the same end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from singer_spark.errors import LockedError, StorageError
from target_spark_lake.journal import Plan, mark_published
from target_spark_lake.table_record import write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from singer_spark.run_log import RunEntry
    from singer_spark.state_store import StateStore
    from singer_spark.storage import Storage
    from target_spark_lake.changes import StagedFile
    from target_spark_lake.layout import Layout

REQUESTS_AT_ONCE = 16
Item = TypeVar("Item")
Result = TypeVar("Result")


def publish(
    storage: Storage, layout: Layout, store: StateStore, entry: RunEntry, ensure_held: Callable[[], None]
) -> RunEntry:
    """Brings a committed run before its readers: new files, retired files, tables' records, state, mark.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        store: Where the published copy of the state goes.
        entry: The committed run.
        ensure_held: Raises LockedError once another process took over, which then finishes the run itself.

    Returns:
        The entry as published.

    Raises:
        StorageError: the storage failed; the next start repeats all of it.
    """
    plan = Plan.of(entry)
    _each(storage, lambda file: storage.move(file.staged, file.final), plan.publish)
    storage.flush(file.final for file in plan.publish)
    # Seen first, held then, written last: once another process took over, what was seen no longer stands.
    records = {path: storage.read(path) for path in plan.tables}
    state = None if entry.state is None else store.content()
    ensure_held()
    _each(storage, storage.delete, plan.retire)
    written = all(write_record(storage, path, record, records[path]) for path, record in plan.tables.items())
    if not written or (entry.state is not None and not store.write(entry.state, state)):
        raise LockedError(f"something else wrote to the records or the state while run {entry.run_id} was publishing")
    return mark_published(storage, layout, entry)


def verify_staged(storage: Storage, staged: Iterable[StagedFile]) -> None:
    """Refuses a commit whose files are not there whole, and makes them survive a power cut.

    Raises:
        StorageError: names the file.
    """
    files = tuple(staged)
    sizes = dict(zip(files, _each(storage, lambda file: storage.size(file.path), files), strict=True))
    for file, size in sizes.items():
        if size != file.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise StorageError(f"staged file {file.path} {found}, not {file.bytes}; run again")
    storage.flush(file.path for file in files)


def _each(storage: Storage, action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Does the action for all items: many requests at once where each has to travel."""
    if storage.local:
        return [action(item) for item in items]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return list(pool.map(action, items))
