"""Converts rows to texts of JSON objects, column by column, and values to texts.

Records of other writers' files are built this way. Values become texts for old rows of a column
that becomes text, and for typed files read as text. Python prints only bytes and nested values,
which Arrow can't print as JSON.

The original spelling of a number is lost, so it gets plain digits, never an exponent. A
floating-point number gets the shortest digits that identify it (`5`, `0.0000000001`), a decimal all
digits of its scale (`12.50`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.exact_json import to_json

_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


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


_MOMENT = "%Y-%m-%dT%H:%M:%S"
_CONTROL = [bytes([code]).decode() for code in range(32)]


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
    return pc.fill_null(_texts(values), "null")


def _texts(values: pa.Array) -> pa.Array:
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
    return _quoted(
        pc.strftime(pc.cast(values, pa.timestamp(values.type.unit, "UTC")), format=_MOMENT + "Z")
    )


def _fractions(values: pa.Array) -> pa.Array:
    """Numbers as text; those that JSON lacks are quoted."""
    texts = fraction_texts(values)
    return pc.if_else(pc.is_finite(values), texts, _quoted(texts))


def fraction_texts(values: pa.Array) -> pa.Array:
    """Floating-point numbers in plain shortest digits, non-finite ones under their usual names in
    JSON.
    """
    texts = pc.cast(values, pa.string())
    for said, name in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
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
