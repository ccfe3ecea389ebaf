"""Lake columns as Arrow schemas, and back, and which columns of a table a Parquet writer treats
differently: those whose values repeat, or are too long to be repeated.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.lake_type import SCALARS, Array, Field, LakeType, Scalar, Struct

SAMPLED_ROWS = 4096
# Each bound of a row group is a copy of a value, and the writer holds several of them.
LONG_BYTES = 1 << 20


_ARROW = {
    name: getattr(pa, function)(*arguments)
    for name, each in SCALARS.items()
    for function, *arguments in [each.arrow.split()]
}
LAKE_SCALARS = {arrow: Scalar(name) for name, arrow in _ARROW.items()}


def arrow_schema(columns: Struct) -> pa.Schema:
    """The columns of a table as an Arrow schema."""
    return pa.schema([pa.field(each.name, arrow_type(each.type)) for each in columns])


def arrow_type(kind: LakeType) -> pa.DataType:
    """The Arrow type of a lake column."""
    if isinstance(kind, Struct):
        return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in kind])
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    return (
        pa.decimal128(kind.precision, kind.scale) if kind.name == "decimal" else _ARROW[kind.name]
    )


def columns_of_arrow(schema: pa.Schema) -> Struct | None:
    """The lake columns of an Arrow schema; None if no lake type corresponds to one of its types."""
    try:
        return Struct(tuple(Field(each.name, _lake_type(each.type)) for each in schema))
    except KeyError:
        return None


def _lake_type(arrow: pa.DataType) -> LakeType:
    if pa.types.is_struct(arrow):
        return Struct(tuple(Field(each.name, _lake_type(each.type)) for each in arrow))
    if pa.types.is_list(arrow):
        return Array(_lake_type(arrow.value_type))
    if pa.types.is_decimal128(arrow):
        return Scalar("decimal", arrow.precision, arrow.scale)
    return LAKE_SCALARS[arrow]


def repeating(rows: pa.Table) -> list[str]:
    """The columns for which a dictionary is shorter, by the first rows of a file.

    Nested and long ones get none.
    """
    first = rows.slice(0, SAMPLED_ROWS)
    return [
        each.name
        for each in first.schema
        if not pa.types.is_nested(each.type)
        and not _is_long(first[each.name])
        and pc.count_distinct(first[each.name]).as_py() * 2 <= first.num_rows
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
