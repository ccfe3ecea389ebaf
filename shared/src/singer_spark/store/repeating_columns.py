"""Columns of a Parquet file whose values repeat, or are too long to be repeated by the writer."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

SAMPLED_ROWS = 4096
# Each bound of a row group is a copy of a value, and the writer holds several of them.
LONG_BYTES = 1 << 20


def repeating(rows: pa.Table) -> list[str]:
    """The columns for which a dictionary is shorter, by the first rows of a file.

    Nested and long ones get none.
    """
    first = rows.slice(0, SAMPLED_ROWS)
    flat = [
        each
        for each in first.schema
        if not pa.types.is_nested(each.type) and not _is_long(first[each.name])
    ]
    return [
        each.name
        for each in flat
        if pc.count_distinct(first[each.name]).as_py() * 2 <= first.num_rows
    ]


def bounded(rows: pa.Table) -> list[str] | bool:
    """The columns that get statistics, by the first rows of a file; True: all of them."""
    short = [name for name in rows.column_names if not _is_long(rows[name])]
    return True if len(short) == rows.num_columns else short


def _is_long(values: pa.ChunkedArray) -> bool:
    """Whether a value may be too long; a column of less bytes than that has none."""
    if values.nbytes < LONG_BYTES:
        return False
    if (
        pa.types.is_string(values.type)
        or pa.types.is_large_string(values.type)
        or pa.types.is_binary(values.type)
    ):
        return bool((pc.max(pc.binary_length(values)).as_py() or 0) >= LONG_BYTES)
    return bool(pa.types.is_nested(values.type) and values.nbytes >= LONG_BYTES * len(values))
