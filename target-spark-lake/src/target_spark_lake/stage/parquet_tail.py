"""Adds NULL columns to an existing Parquet file by computing bytes to append to it.

Parquet is read from the end of the file, so nothing needs decoding and the existing content stays
in place; appended are the pages of the new columns and a footer that covers both. The old footer
stays inside, unused.
"""

from __future__ import annotations

import base64
import io
import os
from typing import IO

import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.arrow_schema import arrow_schema, arrow_type
from singer_spark.core.lake_type import Struct
from singer_spark.store.parquet_footer import (
    BLOOM_FILTER,
    BYTES,
    CHILDREN,
    CHUNK_METADATA,
    CHUNK_PLACE,
    COLUMN_ORDERS,
    COLUMNS,
    COMPRESSED_BYTES,
    DATA_PAGE,
    DICTIONARY_PAGE,
    ENCRYPTION,
    END_BYTES,
    GROUP_ROWS,
    INDEX_PAGE,
    MAGIC,
    METADATA,
    ROW_GROUPS,
    SCHEMA,
    footer_of,
    items,
    read_footer,
)
from singer_spark.store.thrift_compact import Struct as ThriftStruct
from singer_spark.store.thrift_compact import struct_bytes

# Where offsets are in a column chunk, and in its metadata.
CHUNK_PLACES = (CHUNK_PLACE, 4, 6)
METADATA_PLACES = (DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM_FILTER)


def null_columns_tail(source: IO[bytes], old: Struct, new: Struct) -> bytes | None:
    """The bytes to append to a file so that it gets more columns after its own.

    Args:
        source: The file, opened for reading; complete and not encrypted.
        old: Its columns.
        new: The columns it is to have; its own come first, with the same types.

    Returns:
        The bytes; None if the file can't be extended this way.
    """
    added = Struct(new.fields[len(old.fields) :])
    if new.fields[: len(old.fields)] != old.fields or not added.fields:
        return None
    footer = read_footer(source)
    if footer is None or ENCRYPTION in footer:
        return None
    groups = items(footer, ROW_GROUPS)
    nulls = _nulls_file(added, new, [group[GROUP_ROWS][1] for group in groups])
    other, written = read_footer(nulls), footer_of(nulls)
    if other is None or written is None or len(items(other, ROW_GROUPS)) != len(groups):
        return None
    pages = nulls.getvalue()[len(MAGIC) : -END_BYTES - len(written)]
    offset = source.seek(0, os.SEEK_END) - len(MAGIC)
    for group, more in zip(groups, items(other, ROW_GROUPS), strict=True):
        _add_chunks(group, more, offset)
    root, *elements = items(other, SCHEMA)
    _add(items(footer, SCHEMA)[0], CHILDREN, root[CHILDREN][1])
    items(footer, SCHEMA).extend(elements)
    footer[METADATA] = other[METADATA]
    if COLUMN_ORDERS in footer:
        items(footer, COLUMN_ORDERS).extend(items(other, COLUMN_ORDERS))
    written = struct_bytes(footer)
    return pages + written + len(written).to_bytes(4, "little") + MAGIC


def _nulls_file(columns: Struct, described: Struct, group_rows: list[int]) -> io.BytesIO:
    """A Parquet file of NULLs with these row groups.

    Its embedded Arrow schema describes the columns `described`.
    """
    data = io.BytesIO()
    schema = arrow_schema(columns)
    with pyarrow.parquet.ParquetWriter(
        data, schema, compression="none", use_dictionary=False, store_schema=False
    ) as writer:
        for rows in group_rows:
            # Columns of one type share their NULLs: there may be many columns.
            by_type = {each.type: pa.nulls(rows, arrow_type(each.type)) for each in columns}
            arrays = [by_type[each.type] for each in columns]
            writer.write_table(
                pa.Table.from_arrays(arrays, schema=schema), row_group_size=max(rows, 1)
            )
        writer.add_key_value_metadata(
            {"ARROW:schema": base64.b64encode(arrow_schema(described).serialize())}
        )
    return data


def _add_chunks(group: ThriftStruct, more: ThriftStruct, offset: int) -> None:
    """Add column chunks, with all their offsets increased by `offset`."""
    for chunk in items(more, COLUMNS):
        for struct, places in ((chunk, CHUNK_PLACES), (chunk[CHUNK_METADATA][1], METADATA_PLACES)):
            for number in places:
                # 0 means absent.
                if number in struct and struct[number][1]:
                    _add(struct, number, offset)
        items(group, COLUMNS).append(chunk)
    for number in (BYTES, COMPRESSED_BYTES):
        if number in group and number in more:
            _add(group, number, more[number][1])


def _add(struct: ThriftStruct, number: int, more: int) -> None:
    kind, content = struct[number]
    struct[number] = kind, content + more
