"""Delta tables, with the interface common to all tables with a log of their own (`table_log`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from target_spark_lake.table_logs.delta_log.expendable import expendable, forget
from target_spark_lake.table_logs.delta_log.files import (
    delta_change,
    other_columns,
    readable,
    rearrangement,
)
from target_spark_lake.table_logs.delta_log.log_entry import DeltaChange
from target_spark_lake.table_logs.delta_log.log_publish import (
    CHECKPOINT_VERSIONS,
    has_run,
    publish_commit,
    write_checkpoint,
)
from target_spark_lake.table_logs.delta_log.snapshot import LOG_FOLDER, read_snapshot
from target_spark_lake.table_logs.delta_log.take_back import fate, take_back

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from singer_spark.core.lake_type import Struct
    from singer_spark.store.storage import Storage
    from target_spark_lake.table.changes import TableChange
    from target_spark_lake.table.expendable import Expendable
    from target_spark_lake.table.table_record import TableRecord
    from target_spark_lake.table.taking_back import Fate
    from target_spark_lake.table_logs.delta_log.log_entry import DeltaCommit
    from target_spark_lake.table_logs.delta_log.snapshot import DeltaSnapshot

# delta-rs and programs built on its kernel take `%2F` in a table's path for a slash.
UNREADABLE = "%"


class DeltaTables:
    """The Delta tables of a bucket."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def snapshot(self, table: str) -> DeltaSnapshot | None:
        return read_snapshot(self._storage, table)

    def missing_message(self, stream: str, table: str) -> str:
        return f"stream {stream}: the log of Delta table {table} is gone: restore {LOG_FOLDER}"

    def check_place(self, stream: str, table: str, *, is_new: bool) -> None:
        """Refuse a folder name that readers of Delta can't open."""
        if UNREADABLE in f"{self._storage.url}/{table}":
            raise ConfigurationError(
                f"stream {stream}: readers of Delta can't open a folder with a percent sign, as "
                f"{table} has; rename "
                "the stream (stream_maps, __alias__), or load it as format parquet"
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
        return replace(
            change,
            log=replace(change.log, statistics={**change.log.statistics, **moved.statistics}),
        )

    def has_run(self, commit: DeltaCommit) -> bool:
        return has_run(self._storage, commit)

    def publish(self, commit: DeltaCommit) -> int | None:
        make = publish_commit if commit.takes_back is None else take_back
        return make(self._storage, commit)

    def fate(self, commit: DeltaCommit) -> Fate:
        return fate(self._storage, commit)

    def expendable(self, table: str, record: TableRecord, before: datetime) -> Expendable:
        return expendable(self._storage, table, record, before)

    def forget(self, expendable: Expendable) -> Sequence[str]:
        """The files except those brought back meanwhile; the log needs no entry."""
        return forget(self._storage, expendable)

    def tidy(self, table: str, version: int) -> None:
        """Write a checkpoint every few versions."""
        if version and version % CHECKPOINT_VERSIONS == 0:
            write_checkpoint(self._storage, table)
