"""Lake columns as Arrow schemas, and back."""

from __future__ import annotations

import pyarrow as pa

from singer_spark.core.lake_type import SCALARS, Array, Field, LakeType, Scalar, Struct


def _arrow(function: str, *arguments: str) -> pa.DataType:
    return getattr(pa, function)(*arguments)


_ARROW = {name: _arrow(*each.arrow.split()) for name, each in SCALARS.items()}
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
