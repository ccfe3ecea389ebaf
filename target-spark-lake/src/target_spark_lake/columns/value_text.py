"""Texts of lake values: for old rows of a column that becomes text, and for typed files read as
text.

The original spelling of a number is lost. So it gets plain digits, never an exponent: a
floating-point number the shortest that identify it (`5`, `0.0000000001`), a decimal all digits of
its scale (`12.50`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

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
