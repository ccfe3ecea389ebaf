"""Row groups of Parquet files, copied as bytes, because only their description in the footer
depends on their offset.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

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
    ORDINAL,
    ROW_GROUPS,
    SCHEMA,
    footer_of,
    items,
    read_struct,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from singer_spark.store.parquet_footer import Struct

# Row groups with fewer rows and bytes are decoded and written together with others, because each
# merge may leave one.
FEW_ROWS, FEW_BYTES = 20_000, 4 << 20


@dataclass(frozen=True)
class StoredGroup:
    """A row group of an open file.

    Attributes:
        source: The file.
        described: The row group in the file's footer.
        folder: The hive folder that its rows belong to.
    """

    source: IO[bytes]
    described: Struct
    folder: str = ""

    def copied(self, output: IO[bytes]) -> Struct:
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

    def _moved(self, chunk: Struct, output: IO[bytes]) -> Struct:
        about: Struct = chunk[CHUNK_METADATA][1]
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


def stored_groups(source: IO[bytes], footer: Struct, folder: str = "") -> list[StoredGroup | None]:
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


def first_byte(group: Struct) -> int:
    """Where a row group begins in its file."""
    return min((_extent(chunk)[0] for chunk in items(group, COLUMNS)), default=0)


def _has_columns_of(footer: Struct, other: Struct) -> bool:
    """Whether values are stored alike, and bounds have the same meaning, in two files."""
    if ENCRYPTION in footer or footer.get(COLUMN_ORDERS) != other[COLUMN_ORDERS]:
        return False
    # The root's name depends on the writer, and its number of columns follows from the others.
    return list(_plain(items(footer, SCHEMA)[1:])) == list(_plain(items(other, SCHEMA)[1:]))


def _plain(elements: Sequence[Struct]) -> Iterator[Struct]:
    return (
        {number: each for number, each in element.items() if number != FIELD_ID}
        for element in elements
    )


def _is_copyable(group: Struct, size: int) -> bool:
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


def _extent(chunk: Struct) -> tuple[int, int]:
    """First byte and number of bytes of a column chunk."""
    about: Struct = chunk[CHUNK_METADATA][1]
    data, dictionary = about[DATA_PAGE][1], about.get(DICTIONARY_PAGE, (0, 0))[1]
    return min(data, dictionary) if dictionary > 0 else data, about[CHUNK_BYTES][1]
