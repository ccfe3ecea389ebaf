"""One interface to table formats with a log of their own, for every package that loads, compacts or
publishes. Tables of different formats are kept out of one folder, because their rows would be wrong
if read as the wrong format.

To add a format, write a package with a class like `DeltaTables` and a commit class for its journal
entries, and register them in `TableLogs.of` and `_COMMITS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from singer_spark.errors import ConfigurationError
from target_spark_lake.delta_log.log_entry import DeltaCommit
from target_spark_lake.delta_log.snapshot import LOG_FOLDER
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.iceberg_log.table_commit import IcebergCommit
from target_spark_lake.layout import is_data_file
from target_spark_lake.table.table_record import DELTA, FORMATS, ICEBERG, PARQUET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from singer_spark.core.lake_type import Struct
    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.layout import Layout
    from target_spark_lake.table.changes import Fate, PublishedFile, TableChange, Unreferenced
    from target_spark_lake.table.table_record import TableRecord

_COMMITS: dict[str, Any] = {DELTA: DeltaCommit, ICEBERG: IcebergCommit}


class LogSnapshot(Protocol):
    """One version of a table."""

    def data_files(self, table: str) -> tuple[FileInfo, ...]:
        """The version's files, by path relative to the bucket."""

    def current_record(self, record: TableRecord) -> TableRecord:
        """The record with the log's columns; raises SchemaError if the lake can't represent one."""

    def reason_against_joining(self, record: TableRecord) -> str:
        """Why the layout of the table's files keeps them from being compacted here; empty if they
        can be.
        """


class LogCommit(Protocol):
    """A run's change to a table's log, as its journal keeps it."""

    @property
    def table(self) -> str:
        """Folder of the table, relative to the bucket."""

    @property
    def makes_table(self) -> bool:
        """Whether the commit creates the table."""

    def undone_by(self, run_id: str) -> LogCommit:
        """The commit with which another run undoes this one."""

    def to_body(self) -> dict[str, Any]:
        """The commit as a JSON object."""


class TableLog(Protocol):
    """The tables of one format in one bucket."""

    def snapshot(self, table: str) -> LogSnapshot | None:
        """The table's current version; None if it has no log."""

    def missing_message(self, stream: str, table: str) -> str:
        """Error message for a table that has a record but no log any more."""

    def check_location(self, stream: str, table: str, *, is_new: bool) -> None:
        """Raise a ConfigurationError if no table of this format can be at this location."""

    def other_columns(self, record: TableRecord, path: str) -> Sequence[str]:
        """Columns of a file whose types a table of this format can't take as they are."""

    def keeps_files(self, before: Struct, after: Struct) -> bool:
        """Whether files written with the columns before are read correctly in a table with the
        columns after.
        """

    def change(
        self, before: Any, change: TableChange, adopted: Mapping[str, int] | None = None
    ) -> TableChange:
        """The change with its commit to the log; `adopted` files become the table's in place."""

    def rearranged(self, before: Any, change: TableChange) -> TableChange:
        """Like `change` if rows only move to other files: in `staged`, or in `joined` beside a
        change of rows.
        """

    def has_run(self, commit: Any) -> bool:
        """Whether the commit, or one of a later run, was made."""

    def publish(self, commit: Any) -> int | None:
        """Make the commit, or undo another, unless that is already done; returns the new version's
        number, if any.
        """

    def fate(self, commit: Any) -> Fate:
        """What becomes of the undone commit; raises an UnpublishableError if it can't be undone."""

    def unreferenced(self, table: str, record: TableRecord, before: datetime) -> Unreferenced:
        """What no version current at `before` or later needs, of the table's own files; only reads.

        Raises a StorageError if the storage failed, or this program can't handle the table.
        """

    def forget(self, unreferenced: Unreferenced) -> Sequence[str]:
        """Make the table forget the files; returns those to remove now. May be repeated."""

    def tidy(self, table: str, version: int) -> None:
        """Follow-up work after a new version; never fails."""


def plan_logs(
    pipeline: str, run_id: str, changes: Iterable[TableChange], published: Iterable[PublishedFile]
) -> tuple[LogCommit, ...]:
    """One commit per log that the run changes; `published` maps staged files to their locations."""
    final = {file.staged: file.final for file in published}
    return tuple(
        each.log.commit(pipeline, run_id, each, final) for each in changes if each.log is not None
    )


def logs_to_body(commits: Iterable[LogCommit]) -> dict[str, list[dict[str, Any]]]:
    """Commits as members of a journal, by format."""
    commits = tuple(commits)
    return {
        name: [each.to_body() for each in commits if isinstance(each, kind)]
        for name, kind in _COMMITS.items()
    }


def logs_from_body(body: Mapping[str, Any]) -> tuple[LogCommit, ...]:
    """Read the commits back."""
    return tuple(kind.from_body(each) for name, kind in _COMMITS.items() for each in body[name])


class TableLogs:
    """The logs of a bucket's tables; a run plans on the version of each table that it saw first."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self._storage = storage
        self._layout = layout
        self._seen: dict[str, LogSnapshot | None] = {}

    def of(self, chosen: str) -> TableLog | None:
        """The tables of a format; None for a format without logs."""
        if chosen == ICEBERG:
            from target_spark_lake.iceberg_log.iceberg_tables import IcebergTables

            return IcebergTables(self._storage, self._layout.catalog)
        if chosen != DELTA:
            return None
        from target_spark_lake.delta_log.delta_tables import DeltaTables

        return DeltaTables(self._storage)

    def of_commit(self, commit: LogCommit) -> TableLog:
        """The tables of the commit's format."""
        found = self.of(next(name for name, kind in _COMMITS.items() if isinstance(commit, kind)))
        assert found is not None
        return found

    def snapshot(self, table: str, record: TableRecord | None) -> LogSnapshot | None:
        """A table as this run first saw it; None if it or its format has no log."""
        log = self.of(record.format) if record is not None else None
        return None if log is None else self.seen(log, table)

    def seen(self, log: TableLog, table: str) -> LogSnapshot | None:
        """A table in the given format as this run first saw it, whether or not it has a record."""
        if table not in self._seen:
            self._seen[table] = log.snapshot(table)
        return self._seen[table]

    def check_format(
        self, stream: str, table: str, record: TableRecord | None, chosen: str
    ) -> None:
        """Raise ConfigurationError if a table is kept in another format than the chosen one."""
        if (log := self.of(chosen)) is not None:
            log.check_location(stream, table, is_new=record is None)
        if record is None:
            self._check_new(stream, table, chosen)
        elif record.format != chosen:
            way_out = (
                f"convert it once with `spark-lake convert --stream {stream} --format {chosen}`"
                if FORMATS.index(record.format) < FORMATS.index(chosen)
                else f"set format: {record.format}"
            )
            raise ConfigurationError(
                LakeCode.OTHER_FORMAT,
                f"stream {stream}: table {table} is kept as {record.format}, and format is "
                f"{chosen}; {way_out}, or load the stream into another table (stream_options, "
                "path)",
            )

    def _check_new(self, stream: str, table: str, chosen: str) -> None:
        listed = self._storage.list
        if listed(f"{table}/{LOG_FOLDER}"):
            found = "a Delta table that no pipeline of this lake made"
        elif chosen != PARQUET and any(is_data_file(table, file.path) for file in listed(table)):
            found = "Parquet files that no table of this lake has"
        else:
            return
        raise ConfigurationError(
            LakeCode.OTHER_FORMAT,
            f"stream {stream}: {table} holds {found}; move it away, or give this stream another "
            "`path` (stream_options)",
        )
