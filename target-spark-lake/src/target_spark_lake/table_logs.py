"""Tables whose readers follow a log of the table's own, behind one face: whoever runs, joins or publishes asks here.

A new format is a room with a class like `DeltaTables` and the commit that its journals keep: `TableLogs.of` and
`_COMMITS` name them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from target_spark_lake.config_schema import DELTA, ICEBERG
from target_spark_lake.delta_log.log_entry import DeltaCommit, plan_delta
from target_spark_lake.iceberg_log.table_commit import IcebergCommit, plan_iceberg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from singer_spark.storage.files import FileInfo
    from singer_spark.storage.storage import Storage
    from target_spark_lake.columns.lake_type import Struct
    from target_spark_lake.layout import Layout
    from target_spark_lake.tables.changes import PublishedFile, TableChange
    from target_spark_lake.tables.expendable import Expendable
    from target_spark_lake.tables.table_record import TableRecord
    from target_spark_lake.tables.taking_back import Fate

_COMMITS: dict[str, tuple[Any, Any]] = {DELTA: (DeltaCommit, plan_delta), ICEBERG: (IcebergCommit, plan_iceberg)}


class LogSnapshot(Protocol):
    """One version of a table."""

    def data_files(self, table: str) -> tuple[FileInfo, ...]:
        """Its files, by their paths relative to the bucket."""

    def standing_record(self, record: TableRecord) -> TableRecord:
        """The table's record with the columns that the log says; a SchemaError where no column of the lake is such."""

    def reason_against_joining(self, record: TableRecord) -> str:
        """Why its files can't be joined here; empty where they can."""


class LogCommit(Protocol):
    """What a run makes of a table's log, as its journal keeps it."""

    @property
    def table(self) -> str:
        """Folder of the table, relative to the bucket."""

    @property
    def makes_table(self) -> bool:
        """Whether there was no such table."""

    def undone_by(self, run_id: str) -> LogCommit:
        """What another run makes to undo it."""

    def to_body(self) -> dict[str, Any]:
        """As a JSON object."""


class TableLog(Protocol):
    """The tables of one format in one bucket."""

    def snapshot(self, table: str) -> LogSnapshot | None:
        """A table as it is now; None where it has no log."""

    def gone(self, stream: str, table: str) -> str:
        """What is said of a table that has a record and no log any more."""

    def check_place(self, stream: str, table: str, *, is_new: bool) -> None:
        """Refuses a place where no table of this format can be; a ConfigurationError."""

    def check_files(self, table: str, record: TableRecord, files: Iterable[str]) -> None:
        """Refuses files that such a table can't have as they are; a ConfigurationError or SchemaError."""

    def keeps_files(self, before: Struct, after: Struct) -> bool:
        """Whether files with the columns before are read rightly where the table has those after."""

    def change(self, before: Any, change: TableChange, adopted: Mapping[str, int] | None = None) -> TableChange:
        """The change with what the log gets; `adopted` files become the table's where they lie."""

    def rearranged(self, before: Any, change: TableChange) -> TableChange:
        """The same where rows only lie in other files: in `staged`, or beside a change of rows in `joined`."""

    def has_run(self, commit: Any) -> bool:
        """Whether a commit was made, or one of a later run."""

    def publish(self, commit: Any) -> int | None:
        """Makes a commit, unless it was made already; gives the number of the version that it made, if it has one."""

    def take_back(self, commit: Any) -> int | None:
        """Makes the commit that undoes another one, likewise."""

    def fate(self, commit: Any) -> Fate:
        """What becomes of the one that it undoes; an UnpublishableError where it can't be undone."""

    def expendable(self, table: str, record: TableRecord, before: datetime) -> Expendable:
        """What no version needs that was current at `before` or later; only files that are the table's. It only reads.

        Raises:
            StorageError: the storage failed, or the table is one that this program can't judge.
        """

    def forget(self, expendable: Expendable) -> Sequence[str]:
        """Makes the table forget the files, and gives those that may be removed now; may be done again."""

    def tidy(self, table: str, version: int) -> None:
        """What follows a version that was just made; it never fails."""


def plan_logs(
    pipeline: str, run_id: str, changes: Iterable[TableChange], published: Iterable[PublishedFile]
) -> tuple[LogCommit, ...]:
    """A commit for each log that the run changes; `published` says where each staged file goes."""
    changes, published = tuple(changes), tuple(published)
    return tuple(
        chain.from_iterable(
            plan(pipeline, run_id, [each for each in changes if each.log and each.log.format == name], published)
            for name, (_, plan) in _COMMITS.items()
        )
    )


def logs_to_body(commits: Iterable[LogCommit]) -> dict[str, list[dict[str, Any]]]:
    """Commits as members of a journal, by format."""
    commits = tuple(commits)
    return {
        name: [each.to_body() for each in commits if isinstance(each, kind)] for name, (kind, _) in _COMMITS.items()
    }


def logs_from_body(body: Mapping[str, Any]) -> tuple[LogCommit, ...]:
    """Reads them back; older journals don't say all formats."""
    return tuple(kind.from_body(each) for name, (kind, _) in _COMMITS.items() for each in body.get(name, ()))


class TableLogs:
    """The logs of a bucket's tables; of each table a run plans on the version that it saw first."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        """Reads nothing yet."""
        self._storage = storage
        self._layout = layout
        self._seen: dict[str, LogSnapshot | None] = {}

    def of(self, chosen: str) -> TableLog | None:
        """The tables of a format; None for one without logs."""
        if chosen == ICEBERG:
            from target_spark_lake.iceberg_log.iceberg_tables import IcebergTables

            return IcebergTables(self._storage, self._layout.catalog)
        if chosen != DELTA:
            return None
        from target_spark_lake.delta_log.delta_tables import DeltaTables

        return DeltaTables(self._storage)

    def of_commit(self, commit: LogCommit) -> TableLog:
        """The tables of a commit's format."""
        found = self.of(next(name for name, (kind, _) in _COMMITS.items() if isinstance(commit, kind)))
        assert found is not None
        return found

    def snapshot(self, table: str, record: TableRecord | None) -> LogSnapshot | None:
        """A table as this run first saw it; None where it has no log, or its format none."""
        log = self.of(record.format) if record is not None else None
        return None if log is None else self.seen(log, table)

    def seen(self, log: TableLog, table: str) -> LogSnapshot | None:
        """The same, of a table in a format, whether it has a record or not."""
        if table not in self._seen:
            self._seen[table] = log.snapshot(table)
        return self._seen[table]
