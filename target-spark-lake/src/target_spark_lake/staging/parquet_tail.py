"""New columns for a Parquet file that stands: the bytes that, put behind it, make it a file that has them, all NULL.

A Parquet file is read from its end. So nothing of it is decoded, and what it holds stays where it is; behind it come
the pages of the new columns and a footer that knows both. The old footer is left inside, where nobody looks.
"""

from __future__ import annotations

import io
from typing import IO

import pyarrow as pa
import pyarrow.parquet

from singer_spark.storage.parquet_footer import END_BYTES, MAGIC, read_footer
from singer_spark.storage.thrift_compact import I64, Value, write_struct
from singer_spark.storage.thrift_compact import Struct as ThriftStruct
from target_spark_lake.columns.arrow_columns import arrow_schema, arrow_type
from target_spark_lake.columns.lake_type import Struct

# Field numbers of parquet.thrift.
SCHEMA, ROW_GROUPS, METADATA, COLUMN_ORDERS, ENCRYPTION = 2, 4, 5, 7, 8
CHILDREN = 5
COLUMNS, BYTES, GROUP_ROWS, COMPRESSED_BYTES = 1, 2, 3, 6
CHUNK_PLACES, CHUNK_METADATA = (2, 4, 6), 3
METADATA_PLACES = (9, 10, 11, 14)


def null_columns_tail(source: IO[bytes], old: Struct, new: Struct) -> bytes | None:
    """What to put behind a file so that it has more columns, behind its own.

    Args:
        source: The file, opened for reading; whole and not encrypted.
        old: Its columns.
        new: The columns that it shall have; its own come first, with the same types.

    Returns:
        The bytes; None where the file is not one that can be extended so.
    """
    added = Struct(new.fields[len(old.fields) :])
    if new.fields[: len(old.fields)] != old.fields or not added.fields:
        return None
    size, footer = read_footer(source)
    if footer is None or ENCRYPTION in footer:
        return None
    groups = footer[ROW_GROUPS].content
    nulls = _nulls_file(added, [group[GROUP_ROWS].content for group in groups])
    end, other = read_footer(io.BytesIO(nulls))
    if other is None or len(other[ROW_GROUPS].content) != len(groups):
        return None
    pages = nulls[len(MAGIC) : end - END_BYTES - _footer_bytes(nulls)]
    for group, more in zip(groups, other[ROW_GROUPS].content, strict=True):
        _add_chunks(group, more, size - len(MAGIC))
    _add_schema(footer, other)
    footer[METADATA] = _described(new)
    if COLUMN_ORDERS in footer:
        footer[COLUMN_ORDERS].content += other[COLUMN_ORDERS].content
    written = write_struct(footer)
    return pages + written + len(written).to_bytes(4, "little") + MAGIC


def _footer_bytes(data: bytes) -> int:
    return int.from_bytes(data[-END_BYTES:-4], "little")


def _nulls_file(columns: Struct, group_rows: list[int]) -> bytes:
    """A Parquet file of NULLs with these row groups."""
    data = io.BytesIO()
    schema = arrow_schema(columns)
    with pyarrow.parquet.ParquetWriter(data, schema, compression="none", use_dictionary=False) as writer:
        for rows in group_rows:
            # Columns of one type share their NULLs: there may be many.
            by_type = {each.type: pa.nulls(rows, arrow_type(each.type)) for each in columns}
            arrays = [by_type[each.type] for each in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=max(rows, 1))
    return data.getvalue()


def _add_chunks(group: ThriftStruct, more: ThriftStruct, offset: int) -> None:
    """Adds column chunks that lie `offset` bytes further than they say."""
    for chunk in more[COLUMNS].content:
        _move(chunk, CHUNK_PLACES, offset)
        _move(chunk[CHUNK_METADATA].content, METADATA_PLACES, offset)
        group[COLUMNS].content.append(chunk)
    for number in (BYTES, COMPRESSED_BYTES):
        if number in group and number in more:
            group[number].content += more[number].content


def _move(struct: ThriftStruct, places: tuple[int, ...], offset: int) -> None:
    for number in places:
        # 0 says: nowhere.
        if number in struct and struct[number].type == I64 and struct[number].content:
            struct[number].content += offset


def _add_schema(footer: ThriftStruct, other: ThriftStruct) -> None:
    root, *elements = other[SCHEMA].content
    footer[SCHEMA].content[0][CHILDREN].content += root[CHILDREN].content
    footer[SCHEMA].content += elements


def _described(columns: Struct) -> Value:
    """What a file of these columns says of itself: Arrow's schema, and none of another writer's, which lacks some."""
    data = io.BytesIO()
    with pyarrow.parquet.ParquetWriter(data, arrow_schema(columns)):
        pass
    _, footer = read_footer(data)
    assert footer is not None
    return footer[METADATA]
