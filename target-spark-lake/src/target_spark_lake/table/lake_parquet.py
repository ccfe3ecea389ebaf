"""Writing of the lake's Parquet files by Arrow, and row groups of other files that are copied as
bytes, because only their description in the footer depends on their offset.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.arrow_schema import arrow_schema, bounded, repeating
from singer_spark.core.lake_type import Struct
from singer_spark.store.parquet_footer import (
    BLOCK_BYTES,
    BLOOM_FILTER,
    BLOOM_FILTER_BYTES,
    BYTES,
    CHUNK_BYTES,
    CHUNK_FILE,
    CHUNK_INDEXES,
    CHUNK_KEYS,
    CHUNK_METADATA,
    CHUNK_OFFSET,
    COLUMN_ORDERS,
    COLUMNS,
    DATA_PAGE,
    DICTIONARY_PAGE,
    ENCRYPTION,
    END_BYTES,
    FIELD_ID,
    GROUP_OFFSET,
    GROUP_ROWS,
    INDEX_PAGE,
    MAGIC,
    ORDINAL,
    ROW_GROUPS,
    ROWS,
    SCHEMA,
    footer_of,
    items,
    read_footer,
    read_struct,
    struct_bytes,
)
from singer_spark.store.parquet_footer import Struct as ThriftStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

# Row groups with fewer rows and bytes are decoded and written together with others, because each
# merge may leave one.
FEW_ROWS, FEW_BYTES = 20_000, 4 << 20
# The size of a row group in Arrow's memory. A merge decodes and writes every row group with a
# changed row, and copies the others, so a few adjacent changed rows cost one of these. Readers
# still get runs of some hundred thousand rows.
ROW_GROUP_BYTES, ROW_GROUP_ROWS = 1 << 25, 1 << 20
# Rows are read in batches of at most this size.
BATCH_ROWS, BATCH_BYTES = 1 << 16, 1 << 23
# Larger row groups are read through a buffer for each column, together of about this size.
BUFFERED_BYTES = 1 << 25


@dataclass(frozen=True)
class StoredGroup:
    """A row group of an open file.

    Attributes:
        source: The file.
        described: The row group in the file's footer.
        folder: The hive folder that its rows belong to.
    """

    source: IO[bytes]
    described: ThriftStruct
    folder: str = ""

    def copied(self, output: IO[bytes]) -> ThriftStruct:
        """Copy it to the end of a file; returns its description there, without indexes and Bloom
        filters.

        Raises:
            OSError: the file is shorter than its footer says, or can't be read or written.
        """
        chunks = [self._moved(chunk, output) for chunk in items(self.described, COLUMNS)]
        group = {
            number: each
            for number, each in self.described.items()
            if number not in (GROUP_OFFSET, ORDINAL)
        }
        kind, (item, _) = self.described[COLUMNS]
        return {**group, COLUMNS: (kind, (item, chunks))}

    def _moved(self, chunk: ThriftStruct, output: IO[bytes]) -> ThriftStruct:
        about: ThriftStruct = chunk[CHUNK_METADATA][1]
        start, length = _extent(chunk)
        offset = output.tell() - start
        self.source.seek(start)
        while length:
            block = self.source.read(min(length, BLOCK_BYTES))
            if not block:
                raise OSError("the file ends before its last row group")
            output.write(block)
            length -= len(block)
        left_out = (INDEX_PAGE, BLOOM_FILTER, BLOOM_FILTER_BYTES)
        moved = {number: each for number, each in about.items() if number not in left_out}
        for number in (DATA_PAGE, DICTIONARY_PAGE):
            if number in moved and moved[number][1]:
                moved[number] = moved[number][0], moved[number][1] + offset
        kept = {number: each for number, each in chunk.items() if number not in CHUNK_INDEXES}
        unused = chunk[CHUNK_OFFSET][0], 0  # deprecated: the metadata is in the footer alone
        return {**kept, CHUNK_OFFSET: unused, CHUNK_METADATA: (chunk[CHUNK_METADATA][0], moved)}


def stored_groups(
    source: IO[bytes], footer: ThriftStruct, folder: str = ""
) -> list[StoredGroup | None]:
    """The row groups of a file; None for one that can't be copied into a file with the columns of
    `footer`.
    """
    try:
        written = footer_of(source)
        known = read_struct(io.BytesIO(written or b"\0"))
        if written is None or not _has_columns_of(known, footer):
            return []
        size = source.seek(0, os.SEEK_END) - END_BYTES - len(written)
        return [
            StoredGroup(source, each, folder) if _is_copyable(each, size) else None
            for each in items(known, ROW_GROUPS)
        ]
    except (KeyError, TypeError, ValueError):
        # Damage is noticed when it is decoded.
        return []


def first_byte(group: ThriftStruct) -> int:
    """Where a row group begins in its file."""
    return min((_extent(chunk)[0] for chunk in items(group, COLUMNS)), default=0)


def _has_columns_of(footer: ThriftStruct, other: ThriftStruct) -> bool:
    """Whether values are stored alike, and bounds have the same meaning, in two files."""
    if ENCRYPTION in footer or footer.get(COLUMN_ORDERS) != other[COLUMN_ORDERS]:
        return False
    # The root's name depends on the writer, and its number of columns follows from the others.
    return list(_plain(items(footer, SCHEMA)[1:])) == list(_plain(items(other, SCHEMA)[1:]))


def _plain(elements: Sequence[ThriftStruct]) -> Iterator[ThriftStruct]:
    return (
        {number: each for number, each in element.items() if number != FIELD_ID}
        for element in elements
    )


def _is_copyable(group: ThriftStruct, size: int) -> bool:
    """Whether a row group lies within the first bytes of its file, and is worth copying."""
    if group[GROUP_ROWS][1] < FEW_ROWS and group[BYTES][1] < FEW_BYTES:
        return False
    for chunk in items(group, COLUMNS):
        if CHUNK_FILE in chunk or any(number in chunk for number in CHUNK_KEYS):
            return False
        start, length = _extent(chunk)
        if start <= 0 or length < 0 or start + length > size:
            return False
    return True


def _extent(chunk: ThriftStruct) -> tuple[int, int]:
    """First byte and number of bytes of a column chunk."""
    about: ThriftStruct = chunk[CHUNK_METADATA][1]
    data, dictionary = about[DATA_PAGE][1], about.get(DICTIONARY_PAGE, (0, 0))[1]
    return min(data, dictionary) if dictionary > 0 else data, about[CHUNK_BYTES][1]


class LakeFile:
    """A new Parquet file, written one row group at a time in a `with` block.

    It exists even if it gets no rows.

    Attributes:
        schema: Arrow schema of its rows.
    """

    def __init__(self, path: Path, columns: Struct, codec: str) -> None:
        self.schema = arrow_schema(columns)
        self._columns = columns
        self._path = path
        self._codec = codec
        self._sink: Any = None
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._copied: list[ThriftStruct] = []

    @property
    def size(self) -> int:
        """How many bytes were written so far."""
        return 0 if self._sink is None else self._sink.tell()

    def write(self, rows: pa.Table | StoredGroup) -> None:
        """Add rows.

        The first ones that are not copied decide which columns have a dictionary and statistics.
        """
        if self._sink is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(self._path), "wb")
        if isinstance(rows, StoredGroup):
            if not self.size:
                self._sink.write(MAGIC)
            self._copied.append(rows.copied(self._sink))
        elif self._copied and self._writer is None:
            # Arrow appends to no file that it has not begun.
            alone = io.BytesIO()
            with self._begun(alone, rows) as writer:
                _write(writer, rows)
            for group in items(read_footer(alone) or {}, ROW_GROUPS):
                self._copied.append(StoredGroup(alone, group).copied(self._sink))
        else:
            self._writer = self._writer or self._begun(self._sink, rows)
            _write(self._writer, rows)

    def _begun(self, sink: Any, rows: pa.Table) -> pyarrow.parquet.ParquetWriter:
        return pyarrow.parquet.ParquetWriter(
            sink,
            self.schema,
            compression=self._codec,
            use_dictionary=repeating(rows),
            write_statistics=bounded(rows),
            store_decimal_as_integer=True,
        )

    def __enter__(self) -> LakeFile:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if self._writer is None and failure is None and not self._copied:
                self.write(self.schema.empty_table())
            if self._writer is not None:
                self._writer.close()
        finally:
            if self._sink is not None:
                self._sink.close()
        if self._copied and failure is None:
            self._describe_copied()

    def _describe_copied(self) -> None:
        """Put the row groups that were copied into the footer."""
        with self._path.open("r+b") as file:
            if self._writer is None:
                footer, end = footer_for(self._columns), file.seek(0, os.SEEK_END)
            else:
                footer = read_footer(file) or {}
                end = file.seek(-len(footer_of(file) or b"") - END_BYTES, os.SEEK_END)
            own = [group for group in items(footer, ROW_GROUPS) if group[GROUP_ROWS][1]]
            groups = sorted([*own, *self._copied], key=first_byte)
            kind, (item, _) = footer[ROW_GROUPS]
            footer[ROW_GROUPS] = kind, (item, groups)
            footer[ROWS] = footer[ROWS][0], sum(group[GROUP_ROWS][1] for group in groups)
            data = struct_bytes(footer)
            file.seek(end)
            file.write(data + len(data).to_bytes(4, "little") + MAGIC)
            file.truncate()


def _write(writer: pyarrow.parquet.ParquetWriter, rows: pa.Table) -> None:
    """Write row groups of limited size."""
    parts = max(1, rows.nbytes // ROW_GROUP_BYTES)
    writer.write_table(rows, row_group_size=max(1, min(-(-rows.num_rows // parts), ROW_GROUP_ROWS)))


def footer_for(columns: Struct) -> ThriftStruct:
    """The footer of a file with these columns and no rows."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(
        arrow_schema(columns).empty_table(), file, store_decimal_as_integer=True
    )
    return read_footer(file) or {}


def unopenable(columns: Struct) -> dict[str, str]:
    """The columns nested too deeply for Arrow to open a file with them, with its messages."""
    found = {}
    for each in columns:
        file = io.BytesIO()
        pyarrow.parquet.write_table(arrow_schema(Struct((each,))).empty_table(), file)
        try:
            pyarrow.parquet.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            found[each.name] = str(error)
    return found


def opened_parquet(source: Any) -> pyarrow.parquet.ParquetFile:
    """A file of any writer, opened so that no row group need be in memory as a whole."""
    metadata = pyarrow.parquet.read_metadata(source)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    largest = max((group.total_byte_size for group in groups), default=0)
    a_column = BUFFERED_BYTES // max(1, metadata.num_columns)
    # Spark's old INT96 times hold nanoseconds, for which Arrow by default covers only the years
    # 1677 to 2262.
    return pyarrow.parquet.ParquetFile(
        source,
        metadata=metadata,
        buffer_size=min(max(a_column, 1 << 16), 1 << 22) if largest > 2 * BUFFERED_BYTES else 0,
        coerce_int96_timestamp_unit="us",
    )


def batches(
    file: pyarrow.parquet.ParquetFile, group: int, names: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a row group, or some of their columns, in batches of limited size."""
    about = file.metadata.row_group(group)
    a_row = max(1, about.total_byte_size // max(1, about.num_rows))
    yield from file.iter_batches(
        max(1, min(BATCH_ROWS, BATCH_BYTES // a_row)), row_groups=[group], columns=names
    )


def gathered(
    pieces: Iterable[pa.RecordBatch | StoredGroup], enough: int
) -> Iterator[pa.Table | StoredGroup]:
    """The batches combined into tables of at least `enough` bytes, except the last ones; row groups
    are passed on as they are.

    If a row group comes while a few rows wait for more, those rows come after it.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    for piece in pieces:
        if isinstance(piece, StoredGroup):
            if size >= enough // 4:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
            yield piece
            continue
        waiting.append(piece)
        size += piece.nbytes
        if size >= enough:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
