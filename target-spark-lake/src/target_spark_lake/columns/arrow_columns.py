"""Lake columns as Arrow types, and conversion of rows to the columns of their table."""

from __future__ import annotations

import base64
import binascii
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.arrow_schema import LAKE_SCALARS, arrow_schema, arrow_type
from singer_spark.core.lake_type import SCALARS, Array, LakeType, Scalar, Struct
from target_spark_lake.columns.arrow_json import fraction_texts, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping

# Other string types that other programs may have written.
_OTHER_TEXTS = (pa.large_string(), pa.string_view())
# For these, Arrow's text equals that of JSON; for others Python builds it, value by value.
_TEXT_BY_ARROW = [name for name, each in SCALARS.items() if each.python in (bool, int, date)]
# Types that are text in JSON but not in the lake.
_READ_AS_TEXT = [name for name, each in SCALARS.items() if each.python in (date, datetime, bytes)]
_WITHOUT_ZONE = r"([T ]\d\d:\d\d:\d\d(?:\.\d+)?)$"
# Microseconds since 1970 of the years 1 to 9999.
_FIRST_MICROSECOND, _LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
# Arrow may use an exponent for decimals with more digits after the point.
_PLAIN_SCALE = 6


def type_as_read(kind: LakeType) -> pa.DataType:
    """The Arrow type used to read JSON values of a lake column.

    `fitted` converts to the column's type.
    """
    if isinstance(kind, Struct):
        return pa.struct([pa.field(each.name, type_as_read(each.type)) for each in kind])
    if isinstance(kind, Array):
        return pa.list_(type_as_read(kind.element))
    return pa.string() if kind.name in _READ_AS_TEXT else arrow_type(kind)


def repeated(values: Mapping[str, object], columns: Struct, rows: int) -> dict[str, pa.Array]:
    """Columns that have one value in all rows; values of other columns are left out."""
    return {
        name: pa.repeat(pa.scalar(value, arrow_type(columns.types[name])), rows)
        for name, value in values.items()
        if name in columns.types
    }


def is_dated(moments: pa.Array) -> bool:
    """Whether all of these instants are in the years 1 to 9999, the range of Python and of readers
    based on it.
    """
    found = pc.min_max(pc.cast(moments, pa.int64())).as_py()
    return found["min"] is None or (
        found["min"] >= _FIRST_MICROSECOND and found["max"] <= _LAST_MICROSECOND
    )


def fitted(rows: pa.RecordBatch, columns: Struct) -> pa.RecordBatch:
    """Convert rows to the columns of their table: by name, missing ones NULL, others left out,
    types widened.

    The rows have narrower types, or those of `type_as_read`.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit the column, or a text is not a value of its type.
    """
    present = set(rows.schema.names)
    arrays = [
        _fit(rows.column(each.name), each.type)
        if each.name in present
        else _nulls(rows.num_rows, each.type)
        for each in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _nulls(rows: int, kind: LakeType) -> pa.Array:
    return pa.nulls(rows, arrow_type(kind))


def _fit(values: pa.Array, kind: LakeType) -> pa.Array:
    target = arrow_type(kind)
    if values.type == target:
        return values
    if isinstance(kind, Struct):
        return _fit_struct(values, kind)
    if isinstance(kind, Array):
        return _fit_list(values, kind)
    if kind.name in _READ_AS_TEXT and pa.types.is_string(values.type):
        return from_text(values, kind)
    if kind.name == "string" and values.type not in _OTHER_TEXTS:
        return _texts(values)
    # The user asked for the double nearest to a large integer.
    return pc.cast(values, target, safe=not pa.types.is_floating(target))


def from_text(texts: pa.Array, kind: Scalar) -> pa.Array:
    """Parse dates, times and bytes from their JSON texts; an instant without a zone is in UTC.

    Raises:
        pyarrow.ArrowInvalid: a text can't be parsed, or an instant is outside the years 1 to 9999
        in UTC.
    """
    if kind.name == "binary":
        try:
            decoded = [
                None if each is None else base64.b64decode(each, validate=True)
                for each in texts.to_pylist()
            ]
        except binascii.Error as error:
            raise pa.ArrowInvalid(str(error)) from error
        return pa.array(decoded, pa.binary())
    try:
        found = pc.cast(texts, arrow_type(kind))
    except pa.ArrowInvalid:
        zoned = pc.replace_substring_regex(texts, pattern=_WITHOUT_ZONE, replacement=r"\1Z")
        found = pc.cast(zoned if kind.name == "timestamp" else texts, arrow_type(kind))
    if kind.name == "timestamp" and not is_dated(found):
        raise pa.ArrowInvalid("a time is of the year 0 or 10000 in UTC")
    return found


def _fit_struct(values: pa.StructArray, kind: Struct) -> pa.Array:
    present = {each.name for each in values.type}
    members = [
        _fit(values.field(each.name), each.type)
        if each.name in present
        else _nulls(len(values), each.type)
        for each in kind
    ]
    fields: list[Any] = list(arrow_type(kind))
    return pa.StructArray.from_arrays(members, fields=fields, mask=values.is_null())


def _fit_list(values: pa.ListArray, kind: Array) -> pa.Array:
    # New offsets: those of a slice do not start at the first element.
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    offsets = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cast(pc.cumulative_sum(lengths), pa.int32())]
    )
    elements = _fit(values.flatten(), kind.element)
    return pa.ListArray.from_arrays(offsets, elements, type=arrow_type(kind), mask=values.is_null())


def _texts(values: pa.Array) -> pa.Array:
    lake = LAKE_SCALARS.get(values.type)
    plain = pa.types.is_decimal(values.type) and values.type.scale <= _PLAIN_SCALE
    if plain or (lake is not None and lake.name in _TEXT_BY_ARROW):
        return pc.cast(values, pa.string())
    if pa.types.is_floating(values.type):
        return fraction_texts(values)
    if pa.types.is_timestamp(values.type):
        return pc.strftime(values, format="%Y-%m-%dT%H:%M:%S" + ("Z" if values.type.tz else ""))
    return pa.array(map(value_text, values.to_pylist()), pa.string(), size=len(values))
