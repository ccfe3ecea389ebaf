"""Row ids: files with a row id for each row (the run's rows in the order in which they came, the
table's rows below them), and reading of rows with them in this process, some of a row group at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.arrow_schema import arrow_type
from singer_spark.core.messages import DELETED_AT
from singer_spark.store.parquet_footer import damage_named, open_parquet
from target_spark_lake.formats.rules import ROW_BITS, ROW_ID
from target_spark_lake.layout import table_folders
from target_spark_lake.table.arrow_columns import fitted
from target_spark_lake.table.changes import POSITION
from target_spark_lake.table.lake_parquet import (
    BATCH_ROWS,
    batches,
    footer_for,
    opened_parquet,
    stored_groups,
)
from target_spark_lake.table.partitioning import folder_values, value_of
from target_spark_lake.table.row_order import Parts, numbered, own_parts
from target_spark_lake.table.table_index import (
    ColumnRange,
    FileStatistics,
    column_indexes,
    group_range,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyarrow.parquet import ParquetFile

    from singer_spark.core.lake_type import Struct
    from singer_spark.store.storage import Storage
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.lake_parquet import StoredGroup
    from target_spark_lake.table.table_index import TableIndex


@dataclass(frozen=True)
class NumberedFile:
    """A file with the row ids of its rows.

    Attributes:
        numbers: First rows of its parts, with the number above the row's bits in the row ids from
            there on.
        path: Its path, relative to the bucket.
        rows: Number of rows.
        bytes: Its size.
        columns: The columns it was written with, or more.
        positioned: Whether its rows carry their positions.
        folders: Its hive folders, which hold the values of some columns.
    """

    numbers: tuple[tuple[int, int], ...]
    path: str
    rows: int
    bytes: int
    columns: Struct
    positioned: bool = False
    folders: str = ""

    @cached_property
    def folder_texts(self) -> Mapping[str, str | None]:
        """The columns in its hive folders, with their values as text."""
        texts, columns = folder_values(self.folders), self.columns.types
        return {name: text for name, text in texts.items() if name in columns}

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The least and the greatest row id that a row of its parts may have."""
        return [(number << ROW_BITS, ((number + 1) << ROW_BITS) - 1) for _, number in self.numbers]


def divided(files: Sequence[NumberedFile], size: int) -> list[list[NumberedFile]]:
    """The files in their order, in groups that each have about this size."""
    groups: list[list[NumberedFile]] = []
    room = 0
    for file in files:
        if room <= 0:
            groups.append([])
            room = size
        groups[-1].append(file)
        room -= file.bytes
    return groups


def incoming_files(staged: Sequence[StagedFile], columns: Struct) -> list[NumberedFile]:
    """The staged files, written with these columns.

    Files of a batch with positioned rows share a number.
    """
    numbered: list[NumberedFile] = []
    number, batch = -1, ""
    for file in staged:
        # Spark writes a batch as `<batch>/lines/part-…` and `<batch>/rewritten/part-…`.
        folder = file.path.rsplit("/", 2)[0] if file.positioned else file.path
        number += folder != batch
        batch = folder
        numbered.append(
            NumberedFile(((0, number),), file.path, file.rows, file.bytes, columns, file.positioned)
        )
    return numbered


def table_files(
    table: str, paths: Sequence[str], parts: Mapping[str, Parts], index: TableIndex, columns: Struct
) -> list[NumberedFile]:
    """Files of the table, which has these columns: row ids are below 0, lower for older rows."""
    first = -sum(len(parts.get(path) or own_parts(path)) for path in paths)

    def numbered_file(path: str, numbers: tuple[tuple[int, int], ...]) -> NumberedFile:
        known, folders = index.files[path], table_folders(table, path)
        return NumberedFile(numbers, path, known.rows, known.bytes, columns, folders=folders)

    return [numbered_file(*each) for each in numbered(paths, parts, first).items()]


def undeleted_rows(
    files: Sequence[NumberedFile], index: TableIndex
) -> tuple[int, list[NumberedFile]]:
    """Number of rows in the table's files not marked as deleted, and the files that must be read to
    know.
    """
    nulls = {file: index.files[file.path].columns[DELETED_AT].nulls for file in files}
    unknown = [file for file, number in nulls.items() if number is None]
    return sum(number or 0 for number in nulls.values()), unknown


def read_rows(
    storage: Storage,
    files: Iterable[NumberedFile],
    columns: Struct,
    may_hold: Callable[[FileStatistics], bool] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read these columns of the rows, widened if a file is older, and `ROW_ID`.

    Row groups of which `may_hold` is false, by their statistics of these columns, are left out.
    """
    for file in files:
        for group in row_groups(storage, file):
            if may_hold is None or may_hold(group.statistics(columns)):
                yield from group.read(columns)


def row_groups(storage: Storage, file: NumberedFile) -> Iterator[NumberedGroup]:
    """The row groups of a file; each is read before the next one is taken."""
    with open_parquet(storage, file.path) as source:
        opened = _OpenFile(file, source, opened_parquet(source))
        first = 0
        for number in range(opened.parquet.metadata.num_row_groups):
            group = NumberedGroup(opened, number, first)
            yield group
            first += group.rows


@dataclass(frozen=True)
class _OpenFile:
    numbered: NumberedFile
    source: IO[bytes]
    parquet: ParquetFile

    @cached_property
    def present(self) -> frozenset[str]:
        return frozenset(self.parquet.schema_arrow.names)

    @cached_property
    def leaves(self) -> dict[str, int | None]:
        return column_indexes(self.parquet.metadata)

    @cached_property
    def stored(self) -> dict[Struct, list[StoredGroup | None]]:
        """The row groups to be copied, by the columns of the new file."""
        return {}

    def names(self, columns: Struct) -> list[str]:
        """Those of the columns that are inside the file."""
        inside = self.present - self.numbered.folder_texts.keys()
        known = self.numbered.columns.types
        return [name for name in known if name in columns.types and name in inside]


@dataclass(frozen=True)
class NumberedGroup:
    """A row group of an open file; `first` is the number of its first row in the file."""

    _file: _OpenFile
    number: int
    first: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._file.parquet.metadata.row_group(self.number).num_rows)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The least and the greatest place of its rows, in each part of the file."""
        numbers = self._file.numbered.numbers
        ends = [begun for begun, _ in numbers[1:]] + [self.first + self.rows]
        parts = [
            (max(begun, self.first), min(end, self.first + self.rows), (number << ROW_BITS) - begun)
            for (begun, number), end in zip(numbers, ends, strict=True)
        ]
        return [(low + shift, high - 1 + shift) for low, high, shift in parts if low < high]

    def statistics(self, columns: Struct) -> FileStatistics:
        """What its footer knows about the columns."""
        metadata = self._file.parquet.metadata
        leaves = {name: self._file.leaves.get(name) for name in self._file.names(columns)}
        found = {
            name: ColumnRange() if leaf is None else group_range(metadata, self.number, leaf)
            for name, leaf in leaves.items()
        }
        return FileStatistics(self.rows, 0, found)

    def stored(self, columns: Struct) -> StoredGroup | None:
        """The row group to be copied into a file with these columns; None if it must be decoded."""
        file = self._file
        if file.numbered.positioned:
            return None
        if columns not in file.stored:
            footer, folders = footer_for(columns), file.numbered.folders
            file.stored[columns] = stored_groups(file.source, footer, folders)
        return file.stored[columns][self.number] if file.stored[columns] else None

    def read(self, columns: Struct) -> Iterator[pa.RecordBatch]:
        """Its rows, with these columns and `ROW_ID`."""
        file, names = self._file.numbered, self._file.names(columns)
        wanted = [*names, POSITION] if file.positioned else names
        start = self.first
        for rows in self._batches(wanted):
            last = start + rows.num_rows
            positions = rows.column(POSITION) if file.positioned else pa.arange(start, last)
            for name in (name for name in file.folder_texts if name in columns.types):
                kind = file.columns.types[name]
                value = pa.scalar(value_of(file.folder_texts[name], kind), arrow_type(kind))
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
            yield fitted(rows, columns).append_column(ROW_ID, _row_ids(file.numbers, positions))
            start = last

    def _batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        if names:
            with damage_named(self._file.numbered.path):
                for rows in batches(self._file.parquet, self.number, names):
                    yield rows.select(names)
            return
        # If a file has none of the columns, only its number of rows counts.
        for start in range(0, self.rows, BATCH_ROWS):
            yield pa.record_batch(
                {ROW_ID: pa.nulls(min(BATCH_ROWS, self.rows - start), pa.int64())}
            )


def _row_ids(numbers: Sequence[tuple[int, int]], positions: pa.Array) -> pa.Array:
    """The row ids of rows at these positions in a file with these parts."""
    (begun, number), *others = numbers
    row_ids = pc.add(positions, (number << ROW_BITS) - begun)
    for row, number in others:
        row_ids = pc.if_else(
            pc.greater_equal(positions, row), pc.add(positions, (number << ROW_BITS) - row), row_ids
        )
    return row_ids
