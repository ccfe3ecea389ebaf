"""The plain values of a commit: what a run staged, and what it wants to change in the lake."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from target_spark_lake.config_schema import DELTA, ICEBERG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from target_spark_lake.tables.expendable import Expendable
    from target_spark_lake.tables.table_index import TableIndex
    from target_spark_lake.tables.table_record import TableRecord


@dataclass(frozen=True)
class StagedFile:
    """A whole data file that no reader sees yet.

    Attributes:
        path: Where it lies, relative to the bucket.
        rows: Rows in it.
        bytes: Its size.
        partition: Hive folders between the table and the file, `day=2026-11-21`, or empty.
        positioned: Its rows do not lie in their order, and say their position (`record_metadata.POSITION`), which no
            reader may see.
        late: Its rows were committed late: each is as new as the newest row of its key that came before it.
        place: What its final name begins with, where its rows are as old as those of a file that it replaces
            (`layout.file_place`); empty where they are the run's own.
        codec: How it is compressed, where that is not as the run compresses; empty where it is.
        order: Its `row_order`, staged as well, where its name does not tell when its rows were received.
    """

    path: str
    rows: int
    bytes: int
    partition: str = ""
    positioned: bool = False
    place: str = ""
    late: bool = False
    codec: str = ""
    order: StagedFile | None = None


def with_orders(files: Iterable[StagedFile]) -> Iterator[StagedFile]:
    """The files, each with its `row_order` where it has one."""
    for file in files:
        yield file
        if file.order is not None:
            yield file.order


@dataclass(frozen=True)
class StagedBatch:
    """What became of one batch: its rows, and its quarantined records, a line each, where it has some."""

    files: tuple[StagedFile, ...]
    rejected: StagedFile | None = None


@dataclass(frozen=True)
class PublishedFile:
    """One move of a commit: from its staged path to its final one, both relative to the bucket."""

    staged: str
    final: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class DeltaChange:
    """What the log of a Delta table needs to know of a change, beside its files.

    Attributes:
        seen: Version of the table that the change was planned on; None for a new table.
        schema: The table's new `schemaString`; None where it stays.
        features: Table features that its columns need.
        statistics: What the log says of each new file, by its path.
        adopted: Files that lie in the table's folder and become the table's, with their sizes in bytes.
        data_change: False where rows only lie in other files.
        partitioned: The table's partition columns after it, which the hive folders of its new files say.
        partitioned_before: Those of the version that it was planned on; of a new table none.
        table_id: Id of the table in its log; None for a new table.
    """

    format: ClassVar[str] = DELTA
    seen: int | None
    schema: str | None
    features: tuple[str, ...] = ()
    statistics: Mapping[str, str] = field(default_factory=dict)
    adopted: Mapping[str, int] = field(default_factory=dict)
    data_change: bool = True
    partitioned: tuple[str, ...] = ()
    partitioned_before: tuple[str, ...] = ()
    table_id: str | None = None


@dataclass(frozen=True)
class IcebergChange:
    """What the snapshot of an Iceberg table needs to know of a change, beside its files.

    Attributes:
        seen: Id of the table that the change was planned on; None for a new table.
        snapshot: Its snapshot at that time; None where it had none.
        schema_seen: Number of its schema at that time.
        schema: The schema after it, as Iceberg's JSON.
        changes_schema: Whether that differs from the one before.
        spec: The partition spec of new files, as Iceberg's JSON.
        changes_spec: Whether that was not the table's.
        statistics: What the manifests say of each new file, by its path.
        adopted: Files that lie in the table's folder and become the table's, with their sizes in bytes.
        data_change: False where rows only lie in other files.
        leaves: Objects of the format that the table had before, which go.
        registered: What the table is called, in which catalog.
    """

    format: ClassVar[str] = ICEBERG
    seen: str | None
    snapshot: int | None
    schema_seen: int | None
    schema: Mapping[str, Any]
    changes_schema: bool
    spec: Mapping[str, Any]
    changes_spec: bool
    statistics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    adopted: Mapping[str, int] = field(default_factory=dict)
    data_change: bool = True
    leaves: tuple[str, ...] = ()
    registered: str = ""


LogChange = DeltaChange | IcebergChange


@dataclass(frozen=True)
class TableChange:
    """What a run changes in one table; a stream that had no records has one with nothing in it.

    Attributes:
        stream: Name of the stream as Singer spells it.
        table: Folder of the table, relative to the bucket (`Layout.table`).
        staged: New files, published before anything is retired.
        retire: Files that the new ones replace, relative to the bucket.
        record: Owner and columns of the table after this run; None leaves the record as it is.
        extension: End of the final names, `zstd.parquet`.
        records: Records of the run that the change stands for; None: as many as the staged files have rows.
        index: What the next merge is spared to look up; None where nothing is known.
        log: What the table's own log gets; None where it has none, or nothing changes.
        rewritten: Files that hold rows of retired ones, under the table's new columns; published as well.
        joined: Files that hold the rows of small ones, as they were; published as well.
        joined_from: Those small ones, which go.
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

    @property
    def published(self) -> tuple[StagedFile, ...]:
        """All files that readers see after the commit and did not see before, those with older rows first.

        Their names are given in this order, and the order of names tells which row was received last.
        """
        return self.rewritten + self.joined + self.staged


@dataclass(frozen=True)
class StreamReport:
    """What one run did to one stream: records taken in, files published, their bytes, records rejected."""

    records: int = 0
    files: int = 0
    bytes: int = 0
    rejected: int = 0

    def plus(self, change: TableChange) -> StreamReport:
        """The report with one more table of the stream counted in."""
        return StreamReport(
            self.records + (change.records if change.records is not None else sum(file.rows for file in change.staged)),
            self.files + len(change.staged),
            self.bytes + sum(file.bytes for file in change.staged),
            self.rejected,
        )


@dataclass(frozen=True)
class Commit:
    """All that a run wants to change, at once.

    Attributes:
        changes: One for each table that the run touched.
        state: The Singer STATE value to save; None when no STATE came, and the saved one stays.
        rejected: Stream to the file of its quarantined records, a line each.
        expendable: Files that go because nobody needs them any more.
    """

    changes: tuple[TableChange, ...] = ()
    state: Mapping[str, Any] | None = field(default=None)
    rejected: Mapping[str, StagedFile] = field(default_factory=dict)
    expendable: tuple[Expendable, ...] = ()
