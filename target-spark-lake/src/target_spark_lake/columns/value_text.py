"""The text of a lake value: for old rows of a column that becomes text, and for typed files of which text is asked.

How a number was spelled when it came is not known any more. So it gets plain digits, never an exponent: of a fraction
as few as mean it (`5`, `0.0000000001`), of a decimal all behind its point (`12.50`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from singer_spark.singer.exact_json import to_json

_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def value_text(value: Any) -> str | None:
    """Text as it is, everything else as its JSON; NULL stays."""
    plain = json_value(value)
    return plain if plain is None or isinstance(plain, str) else to_json(plain)


def json_value(value: Any) -> Any:
    """A value of a lake column in JSON's terms.

    Args:
        value: As Arrow gives it to Python.
    """
    if isinstance(value, Mapping):
        return {name: json_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [json_value(each) for each in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return _NON_FINITE.get(str(value)) or _Plain(shortest_digits(repr(value)))
    return _Plain(value) if isinstance(value, Decimal) else value


def shortest_digits(text: str) -> str:
    """Digits of a fraction, without exponent, and without a point where nothing is behind it."""
    plain = format(Decimal(text), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


class _Plain(Decimal):
    """A decimal that is printed with all of its digits, never with an exponent."""

    def __str__(self) -> str:
        return format(self, "f")
