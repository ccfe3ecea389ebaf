"""Delta tables, with the interface common to all tables with a log of their own (`table_log`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError
from target_spark_lake.delta_log.files import delta_change, other_columns, readable, rearrangement
from target_spark_lake.delta_log.log_entry import DeltaChange, log_entry
from target_spark_lake.delta_log.log_history import (
    forget,
    last_transaction,
    transactions,
    unreferenced,
)
from target_spark_lake.delta_log.log_publish import (
    CHECKPOINT_VERSIONS,
    has_run,
    is_another,
    next_version,
    publish_commit,
    write_checkpoint,
)
from target_spark_lake.delta_log.snapshot import check_known, missing_message, read_snapshot
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import Fate, as_unpublishable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from singer_spark.core.lake_type import Struct
    from singer_spark.store.storage import Storage
    from target_spark_lake.delta_log.log_entry import DeltaCommit
    from target_spark_lake.delta_log.snapshot import DeltaSnapshot
    from target_spark_lake.table.changes import TableChange, Unreferenced
    from target_spark_lake.table.table_record import TableRecord

# delta-rs and programs built on its kernel mistake `%2F` in a table's path for a slash.
UNREADABLE = "%"


def take_back(storage: Storage, commit: DeltaCommit) -> int | None:
    """Write the entry that undoes another run's, if that was made, or else one that keeps it from
    being made later.

    Either entry contains this run's transaction, so that a process that still tries to publish the
    other run finds a later one.

    Returns:
        The version; None if it already was one, or the other run has nothing in this table.

    Raises:
        UnpublishableError: another writer changed what the run had made; the text says what to do.
    """
    return next_version(storage, commit, _entry)


def fate(storage: Storage, commit: DeltaCommit) -> Fate:
    """What becomes of the other run's entry; to be called before anything is decided."""
    current = read_snapshot(storage, commit.table, commit.application, known=False)
    if current is None:
        return Fate.NO_TABLE if commit.makes_table else Fate.NOT_MADE
    if not _was_made(storage, commit, current):
        return Fate.LEFT if _is_left(commit, current) else Fate.NOT_MADE
    _entry(storage, commit, current)
    return Fate.MADE


def _is_left(commit: DeltaCommit, current: DeltaSnapshot) -> bool:
    """Whether a table without the other run's entry is left alone: it is another writer's, or can't
    be written.
    """
    if commit.makes_table or is_another(commit, current):
        return True
    try:
        check_known(current, commit.table)
    except StorageError:
        return True
    return False


def _entry(storage: Storage, commit: DeltaCommit, current: DeltaSnapshot | None) -> bytes | None:
    if current is None:
        return log_entry(commit, None, commit.schema, (), ()) if commit.makes_table else None
    if not _was_made(storage, commit, current):
        return None if _is_left(commit, current) else log_entry(commit, current, None, (), ())
    with as_unpublishable():
        check_known(current, commit.table)
    version = _version_of(storage, commit, current.version)
    after = None if version is None else read_snapshot(storage, commit.table, version=version)
    before = read_snapshot(storage, commit.table, version=version - 1) if version else None
    if version is None or after is None or (version > 0 and before is None):
        raise UnpublishableError(
            LakeCode.CANNOT_BE_TAKEN_BACK, _way_out(commit, "and its log of that time is gone")
        )
    old = {} if before is None else before.files
    added = {path: file for path, file in after.files.items() if path not in old}
    gone = {path: file for path, file in old.items() if path not in after.files}
    if not added.keys() <= current.files.keys() or gone.keys() & current.files.keys():
        raise UnpublishableError(
            LakeCode.CANNOT_BE_TAKEN_BACK,
            _way_out(commit, f"after version {version}, in the files of that run"),
        )
    lost = [
        path for path, file in gone.items() if storage.size(f"{commit.table}/{path}") != file.size
    ]
    if lost:
        raise UnpublishableError(
            LakeCode.CANNOT_BE_TAKEN_BACK,
            _way_out(commit, f"and VACUUM removed {lost[0]} ({len(lost)} file(s) in all)"),
        )
    if before is None or (before.schema, before.partitioned) == (after.schema, after.partitioned):
        return log_entry(commit, current, None, added.values(), gone.values())
    if before.partitioned != after.partitioned and version < current.version:
        raise UnpublishableError(
            LakeCode.CANNOT_BE_TAKEN_BACK,
            _way_out(commit, f"after version {version}, whose partitions that run changed"),
        )
    # A table's columns are restored with its rows, unless they were changed since.
    schema = before.schema if current.schema == after.schema else None
    undoing = replace(commit, partitioned=before.partitioned)
    return log_entry(undoing, current, schema, added.values(), gone.values())


def _was_made(storage: Storage, commit: DeltaCommit, current: DeltaSnapshot) -> bool:
    return last_transaction(storage, commit, current, commit.takes_back or 0) == commit.takes_back


def _version_of(storage: Storage, commit: DeltaCommit, newest: int) -> int | None:
    """The version that the other run made."""
    versions = range(newest, -1 if commit.seen is None else commit.seen, -1)
    for version in versions:
        if commit.takes_back in (transactions(storage, commit, version) or ()):
            return version
    return None


def _way_out(commit: DeltaCommit, what: str) -> str:
    return (
        f"what the run had made of Delta table {commit.table} can't be reverted: someone else "
        f"changed it, {what}; bring it back to that version (RESTORE TABLE …), then try again"
    )


class DeltaTables:
    """The Delta tables of a bucket."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def snapshot(self, table: str) -> DeltaSnapshot | None:
        return read_snapshot(self._storage, table)

    def missing_message(self, stream: str, table: str) -> str:
        return missing_message(stream, table)

    def check_location(self, stream: str, table: str, *, is_new: bool) -> None:
        """Refuse a folder name that readers of Delta can't open."""
        if UNREADABLE in f"{self._storage.url}/{table}":
            raise ConfigurationError(
                LakeCode.TABLE_NAME,
                f"stream {stream}: readers of Delta can't open a folder with a percent sign, as "
                f"{table} has; rename the stream (stream_maps, __alias__), or load it as format "
                "parquet",
            )

    def other_columns(self, record: TableRecord, path: str) -> Sequence[str]:
        """Columns of a file that have another type than the table's."""
        return other_columns(self._storage, record, path)

    def keeps_files(self, before: Struct, after: Struct) -> bool:
        """Whether files stay valid: new columns need only the log, a wider type does not."""
        return all(after.types.get(each.name, each.type) == each.type for each in before)

    def change(
        self,
        before: DeltaSnapshot | None,
        change: TableChange,
        adopted: Mapping[str, int] | None = None,
    ) -> TableChange:
        """The change with its log entry, and with its files in folders that readers can open."""
        if adopted is None:
            # An empty table has its columns in the log, and needs no file for them.
            staged = readable(file for file in change.staged if file.rows)
            change = replace(change, staged=staged, rewritten=readable(change.rewritten))
        return replace(change, log=delta_change(self._storage, before, change, adopted))

    def rearranged(self, before: DeltaSnapshot, change: TableChange) -> TableChange:
        """The change with a log entry that only moves rows to other files."""
        moved = rearrangement(self._storage, before, change)
        if not isinstance(change.log, DeltaChange):
            return replace(change, log=moved)
        statistics = {**change.log.statistics, **moved.statistics}
        return replace(change, log=replace(change.log, statistics=statistics))

    def has_run(self, commit: DeltaCommit) -> bool:
        return has_run(self._storage, commit)

    def publish(self, commit: DeltaCommit) -> int | None:
        make = publish_commit if commit.takes_back is None else take_back
        return make(self._storage, commit)

    def fate(self, commit: DeltaCommit) -> Fate:
        return fate(self._storage, commit)

    def unreferenced(self, table: str, record: TableRecord, before: datetime) -> Unreferenced:
        return unreferenced(self._storage, table, record, before)

    def forget(self, unreferenced: Unreferenced) -> Sequence[str]:
        """The files except those restored meanwhile; the log needs no entry."""
        return forget(self._storage, unreferenced)

    def tidy(self, table: str, version: int) -> None:
        """Write a checkpoint every few versions."""
        if version and version % CHECKPOINT_VERSIONS == 0:
            write_checkpoint(self._storage, table)
