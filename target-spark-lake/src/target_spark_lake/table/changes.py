"""The plain values of a commit: what a run staged, the columns that staged rows have besides those
of the stream, and the changes to the lake.

An `Unreferenced` holds the files of a table that no kept version needs, with what its format must
know about them. `spark-lake vacuum` calls each table's log twice:

1. *Before its commit*, to find what is unreferenced (`TableLog.unreferenced`): every file that no
   version needs that was current at some instant or later. Readers that opened the table after that
   instant are not affected. The result is a plain value, which becomes part of the run's journal.
   Nothing is changed yet.
2. *After its commit*, to make the log or catalog forget these files and return those that may be
   removed (`TableLog.forget`). If a process dies, another one finishes its work, perhaps days
   later. So this may be called any number of times with the same value, and leaves out files that
   are needed again by then (after a RESTORE).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from singer_spark.core.lake_type import Struct, columns_from_text
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from singer_spark.store.bucket import FileInfo
    from target_spark_lake.table.table_index import TableIndex
    from target_spark_lake.table.table_record import TableRecord

# What a merge decides by: its staged rows have these even if the user wants no metadata columns.
CONTROL_COLUMNS = (DELETED_AT, TABLE_VERSION)
# Only in staged rows whose file does not keep their order: the row's number in its batch.
POSITION = "_spark_lake_position"


def merging_columns(columns: Struct, needed: Iterable[str] = CONTROL_COLUMNS) -> Struct:
    """A table's columns, followed by those that a merge needs and the table lacks."""
    missing = {name: METADATA_COLUMNS[name] for name in needed if name not in columns.types}
    return Struct((*columns, *columns_from_text(missing)))


def is_stamped(names: list[str]) -> bool:
    """Whether rows with these columns carry the reader's metadata columns; only some of them come
    from the source.
    """
    return set(METADATA_COLUMNS) <= set(names)


class Fate(Enum):
    """The effect on a table of abandoning the run that changed it."""

    MADE = "its commit was made, and is undone"
    NOT_MADE = (
        "its commit was not made, and what is left with the table keeps it from being made later"
    )
    NO_TABLE = "the table that it was to make is made empty, so nobody makes it later"
    LEFT = "someone else's table, or one that this program can't keep any more, stays as it is"


@contextmanager
def as_unpublishable() -> Iterator[None]:
    """Convert refusals for a committed run's table, which need a manual decision, to
    UnpublishableError.
    """
    try:
        yield
    except (ConfigurationError, StorageError) as refusal:
        raise UnpublishableError(LakeCode.CANNOT_BE_TAKEN_BACK, refusal.message) from refusal


@dataclass(frozen=True)
class Unreferenced:
    """Files that can be removed.

    Attributes:
        files: Their paths, relative to the bucket.
        bytes: Their total size.
        table: The table's folder; empty for files of no table.
        format: The table's format, whose `forget` is called; empty for files removed directly.
        details: What `forget` needs besides the files, as JSON values.
    """

    files: tuple[str, ...]
    bytes: int
    table: str = ""
    format: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(files: Sequence[FileInfo], table: str = "", format: str = "") -> Unreferenced:
        """The value for files listed by a storage."""
        paths, size = tuple(file.path for file in files), sum(file.size for file in files)
        return Unreferenced(paths, size, table, format)

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> Unreferenced:
        """Read the result of `asdict` back."""
        return Unreferenced(**{**body, "files": tuple(body["files"])})


@dataclass(frozen=True)
class StagedFile:
    """A complete data file not yet visible to readers.

    Attributes:
        path: Its path, relative to the bucket.
        rows: Number of rows.
        bytes: Its size.
        partition: Hive folders between the table and the file, `day=2026-11-21`, or empty.
        positioned: Whether its rows are out of order and carry their position (`POSITION`), which
            no reader may see.
        late: Whether its rows were committed late: each is as new as the newest row of its key that
            came before it.
        place: Prefix of its final name if its rows are as old as those of a file that it replaces
            (`layout.sort_prefix`); empty if they are the run's own.
        codec: Its compression, if it differs from the run's; otherwise empty.
        order: Its `row_order`, also staged, if its name doesn't show when its rows were received.
    """

    path: str
    rows: int
    bytes: int
    partition: str = ""
    positioned: bool = False
    # The name in journals and checkpoints.
    place: str = ""
    late: bool = False
    codec: str = ""
    order: StagedFile | None = None


def with_orders(files: Iterable[StagedFile]) -> Iterator[StagedFile]:
    """The files, each followed by its `row_order` if it has one."""
    for file in files:
        yield file
        if file.order is not None:
            yield file.order


@dataclass(frozen=True)
class StagedBatch:
    """A batch's files, and the file of its quarantined records, if any, one per line."""

    files: tuple[StagedFile, ...]
    rejected: StagedFile | None = None


@dataclass(frozen=True)
class PublishedFile:
    """One move of a commit: from its staged path to its final one, both relative to the bucket."""

    staged: str
    final: str
    rows: int
    bytes: int


class LogChange(Protocol):
    """A change of a table's own log, apart from the run and the names of its files."""

    @property
    def format(self) -> str:
        """The table's format."""

    def commit(
        self, pipeline: str, run_id: str, change: TableChange, final: Mapping[str, str]
    ) -> Any:
        """The run's commit to the log (`table_log.LogCommit`), given the final paths of the
        change's staged files.
        """


@dataclass(frozen=True)
class TableChange:
    """A run's changes to one table; empty for a stream without records.

    Attributes:
        stream: Name of the stream as Singer spells it.
        table: Folder of the table, relative to the bucket (`Layout.table`).
        staged: New files, published before anything is retired.
        retire: Files that the new ones replace, relative to the bucket.
        record: Owner and columns of the table after this run; None leaves the record as it is.
        extension: End of the final names, `zstd.parquet`.
        records: Number of the run's records in this change; None for the number of staged rows.
        index: Saves the next merge from reading footers; None if nothing is known.
        log: Change of the table's own log; None if it has none, or nothing changes.
        rewritten: Files with rows of retired ones and the table's new columns; published too.
        joined: Files with the unchanged rows of small ones; published too.
        joined_from: Those small files, to be removed.
        deleted: Number of the table's rows removed or marked as deleted, besides replaced ones.
    """

    stream: str
    table: str
    staged: tuple[StagedFile, ...] = ()
    retire: tuple[str, ...] = ()
    record: TableRecord | None = None
    extension: str = "zstd.parquet"
    records: int | None = None
    index: TableIndex | None = None
    log: LogChange | None = None
    rewritten: tuple[StagedFile, ...] = ()
    joined: tuple[StagedFile, ...] = ()
    joined_from: tuple[str, ...] = ()
    deleted: int = 0

    @property
    def published(self) -> tuple[StagedFile, ...]:
        """All files that readers see after the commit but not before, those with older rows first.

        They are named in this order, and the order of names shows which row was received last.
        """
        return self.rewritten + self.joined + self.staged


@dataclass(frozen=True)
class StreamReport:
    """A run's results for one stream: records loaded, files published, their bytes, records
    rejected, rows deleted.
    """

    records: int = 0
    files: int = 0
    bytes: int = 0
    rejected: int = 0
    deleted: int = 0

    def plus(self, change: TableChange) -> StreamReport:
        """The report with another table of the stream added."""
        staged = sum(file.rows for file in change.staged)
        return StreamReport(
            self.records + (staged if change.records is None else change.records),
            self.files + len(change.staged),
            self.bytes + sum(file.bytes for file in change.staged),
            self.rejected,
            self.deleted + change.deleted,
        )


@dataclass(frozen=True)
class Commit:
    """All changes of a run, made at once.

    Attributes:
        changes: One for each table that the run touched.
        state: The Singer STATE value to save; None if no STATE came: the saved one stays.
        rejected: Stream to the file of its quarantined records, one per line.
        unreferenced: Files to remove because they are no longer needed.
        shapes: Stream of this run to what determines its table (`StreamSink.shape`).
    """

    changes: tuple[TableChange, ...] = ()
    state: Mapping[str, Any] | None = None
    rejected: Mapping[str, StagedFile] = field(default_factory=dict)
    unreferenced: tuple[Unreferenced, ...] = ()
    shapes: Mapping[str, str] = field(default_factory=dict)
