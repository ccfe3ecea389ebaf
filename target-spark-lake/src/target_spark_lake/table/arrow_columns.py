"""Lake columns as Arrow types, conversion of rows to the columns of their table, and of rows and
values to JSON texts.

Records of other writers' files become texts of JSON objects, column by column. Values become texts
for old rows of a column that becomes text, and for typed files read as text. Python prints only
bytes and nested values, which Arrow can't print as JSON.

The original spelling of a number is lost, so it gets plain digits, never an exponent. A
floating-point number gets the shortest digits that identify it (`5`, `0.0000000001`), a decimal all
digits of its scale (`12.50`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.arrow_schema import LAKE_SCALARS, arrow_schema, arrow_type
from singer_spark.core.exact_json import to_json
from singer_spark.core.lake_type import SCALARS, Array, LakeType, Scalar, Struct

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
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_MOMENT = "%Y-%m-%dT%H:%M:%S"
_CONTROL = [bytes([code]).decode() for code in range(32)]


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
        else pa.nulls(rows.num_rows, arrow_type(each.type))
        for each in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


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
        else pa.nulls(len(values), arrow_type(each.type))
        for each in kind
    ]
    fields: list[Any] = list(arrow_type(kind))
    return pa.StructArray.from_arrays(members, fields=fields, mask=values.is_null())


def _fit_list(values: pa.ListArray, kind: Array) -> pa.Array:
    # New offsets: those of a slice do not start at the first element.
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    ends = pc.cast(pc.cumulative_sum(lengths), pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
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
        return pc.strftime(values, format=_MOMENT + ("Z" if values.type.tz else ""))
    return pa.array(map(value_text, values.to_pylist()), pa.string(), size=len(values))


def value_text(value: Any) -> str | None:
    """Text unchanged, everything else as JSON; NULL stays NULL."""
    plain = json_value(value)
    return plain if plain is None or isinstance(plain, str) else to_json(plain)


def json_value(value: Any) -> Any:
    """A value as Arrow converts it to Python, in JSON's terms.

    A map becomes its entries, a time of day its text.
    """
    if isinstance(value, Mapping):
        return {name: json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + (
            "Z" if value.tzinfo else ""
        )
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time | timedelta):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return _NON_FINITE.get(str(value)) or _Plain(shortest_digits(repr(value)))
    return _Plain(value) if isinstance(value, Decimal) else value


def shortest_digits(text: str) -> str:
    """A fraction's digits without exponent, and without trailing zeros or point."""
    plain = format(Decimal(text), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


class _Plain(Decimal):
    """A decimal printed with all its digits, never with an exponent."""

    def __str__(self) -> str:
        return format(self, "f")


def json_objects(rows: pa.RecordBatch) -> pa.Array:
    """The text of each row: an object of all columns, including NULLs."""
    members = [
        pc.binary_join_element_wise(
            orjson.dumps(name).decode() + ":", json_values(rows.column(index)), ""
        )
        for index, name in enumerate(rows.schema.names)
    ]
    # Commas go between the members, not before the first.
    parts: list[Any] = ["{"]
    for number, member in enumerate(members):
        parts += [",", member] if number else [member]
    return pc.binary_join_element_wise(*parts, "}", "")


def json_values(values: pa.Array) -> pa.Array:
    """The text of each value of a column, `null` for NULL."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.fill_null(_json_texts(values), "null")


def _json_texts(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return pc.cast(values, pa.string())
    if pa.types.is_floating(kind):
        return _fractions(values)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _quoted(_escaped(pc.cast(values, pa.string())))
    if pa.types.is_date32(kind):
        return _quoted(pc.cast(values, pa.string()))
    if pa.types.is_timestamp(kind):
        return _moments(values)
    try:
        plain = values.to_pylist()
    except (OverflowError, ValueError):  # it contains a time in a year that Python can't represent
        plain = pc.cast(values, _without_moments(kind)).to_pylist()
    texts = (None if each is None else to_json(json_value(each)) for each in plain)
    return pa.array(texts, pa.string(), size=len(values))


def _without_moments(kind: pa.DataType) -> pa.DataType:
    """The type with dates and times replaced by texts."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_moments(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_without_moments(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_without_moments(kind.key_type), _without_moments(kind.item_type))
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else kind


def _moments(values: pa.Array) -> pa.Array:
    if values.type.unit == "ns":
        # Digits beyond what the lake keeps would force a check of each value.
        with suppress(pa.ArrowInvalid):
            values = pc.cast(values, pa.timestamp("us", values.type.tz))
    if values.type.tz is None:
        return _quoted(pc.strftime(values, format=_MOMENT))
    instants = pc.cast(values, pa.timestamp(values.type.unit, "UTC"))
    return _quoted(pc.strftime(instants, format=_MOMENT + "Z"))


def _fractions(values: pa.Array) -> pa.Array:
    """Numbers as text; those that JSON lacks are quoted."""
    texts = fraction_texts(values)
    return pc.if_else(pc.is_finite(values), texts, _quoted(texts))


def fraction_texts(values: pa.Array) -> pa.Array:
    """Floating-point numbers in plain shortest digits, non-finite ones under their usual names in
    JSON.
    """
    texts = pc.cast(values, pa.string())
    for said, name in _NON_FINITE.items():
        texts = pc.if_else(pc.equal(texts, said), name, texts)
    scientific = pc.fill_null(pc.match_substring(texts, "e"), False)
    if pc.any(scientific, min_count=0).as_py():
        digits = [shortest_digits(text) for text in texts.filter(scientific).to_pylist()]
        texts = pc.replace_with_mask(texts, scientific, pa.array(digits, pa.string()))
    return texts


def _escaped(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]"), min_count=0).as_py():
        for control in _CONTROL:
            texts = pc.replace_substring(texts, control, orjson.dumps(control).decode()[1:-1])
    return texts


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
