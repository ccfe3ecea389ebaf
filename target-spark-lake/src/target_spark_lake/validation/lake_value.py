"""A JSON value in the form that Spark's parser takes for a lake column, or the reason why the column can't hold it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from singer_spark.singer.exact_json import to_json

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_INTEGER_BYTES = {"byte": 1, "short": 2, "integer": 4, "long": 8}
# Below it a text is no infinity; the shortest text of the greatest float lies above that float.
_GREATEST = {"float": Decimal("3.4028235677973366e38"), "double": Decimal("1.7976931348623157e308")}
_NON_FINITE = ("NaN", "Infinity", "-Infinity")
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):[0-5]\d:[0-6]\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
_UTC = ("Z", "z", "+00:00", "-00:00")


class UnholdableError(ValueError):
    """Why a column can't hold a value.

    Attributes:
        path: Where in the value: names of members and numbers of elements.
    """

    path: tuple[str | int, ...] = ()


def lake_value(value: Any, lake: DataType) -> Any:
    """The value, written for the column's type.

    Args:
        value: Parsed JSON, numbers as int or Decimal.
        lake: The column's Spark type.

    Raises:
        UnholdableError: the column can't hold it without a loss.
    """
    if value is None:
        return None
    kind = lake.typeName()
    if kind == "string":
        return value if isinstance(value, str) else to_json(value)
    if kind == "boolean":
        return _expect(value, isinstance(value, bool), "it is no boolean")
    if kind in _INTEGER_BYTES:
        return _integer(value, _INTEGER_BYTES[kind])
    if kind in _GREATEST:
        return _floating(value, _GREATEST[kind])
    if kind == "decimal":
        return _decimal(value, getattr(lake, "precision", 0), getattr(lake, "scale", 0))
    if kind == "array":
        _expect(value, isinstance(value, list), "it is no array")
        element = lake.elementType  # type: ignore[attr-defined]
        return [_inner(number, each, element) for number, each in enumerate(value)]
    if kind == "struct":
        _expect(value, isinstance(value, Mapping), "it is no object")
        return {
            field.name: _inner(field.name, value[field.name], field.dataType)
            for field in lake.fields  # type: ignore[attr-defined]
            if field.name in value
        }
    _expect(value, isinstance(value, str), "it is no text")
    if kind == "date":
        return _date(value)
    return _binary(value) if kind == "binary" else _moment(value, naive=kind == "timestamp_ntz")


def _inner(part: str | int, value: Any, lake: DataType) -> Any:
    try:
        return lake_value(value, lake)
    except UnholdableError as error:
        error.path = (part, *error.path)
        raise


def _expect(value: Any, holds: bool, reason: str) -> Any:
    if not holds:
        raise UnholdableError(reason)
    return value


def _number(value: Any) -> Decimal:
    _expect(value, isinstance(value, int | Decimal) and not isinstance(value, bool), "it is no number")
    return Decimal(value)


def _integer(value: Any, size: int) -> int:
    number = _number(value)
    _expect(number, number == number.to_integral_value(), "it has a fraction")
    bound = 2 ** (8 * size - 1)
    _expect(number, -bound <= number < bound, f"it needs more than {size} byte(s)")
    return int(number)


def _floating(value: Any, greatest: Decimal) -> Any:
    if value in _NON_FINITE and isinstance(value, str):
        return value
    _expect(value, _number(value).copy_abs() <= greatest, "it is too large")
    return float(value)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    sign, digits, exponent = _number(value).as_tuple()
    # Digit by digit: Decimal's own arithmetic rounds to 28 of them.
    significant = "".join(map(str, digits)).rstrip("0")
    power = int(exponent) + len(digits) - len(significant)
    significant = significant.lstrip("0")
    if not significant:
        return Decimal(0)
    _expect(value, -power <= scale, f"it has more than {scale} digits behind the point")
    before = len(significant) + power
    _expect(value, before <= precision - scale, f"it has more than {precision - scale} digits before the point")
    return Decimal(format(Decimal((sign, tuple(map(int, significant)), power)), "f"))


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UnholdableError(f"{error}") from error


def _binary(text: str) -> str:
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode()
    except binascii.Error as error:
        raise UnholdableError(f"it is no base64 ({error})") from error


def _moment(text: str, *, naive: bool) -> str:
    match = _MOMENT.fullmatch(text)
    if not match:
        raise UnholdableError("it is no date and time")
    day, clock, fraction, zone = match.groups()
    _expect(text, not (fraction or "")[6:].strip("0"), "it is finer than a microsecond")
    _expect(text, not zone or (zone[1:] <= "18:00" and zone[4:] < "60"), "its time zone is more than 18 hours from UTC")
    _expect(text, not naive or not zone or zone in _UTC, "it has a time zone, the column has none")
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}")
        if zone and zone not in _UTC:
            hours, minutes = map(int, zone[1:].split(":"))
            _ = moment - timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    except ValueError as error:
        raise UnholdableError(str(error)) from error
    except OverflowError as error:
        raise UnholdableError("it is not of the years 1 to 9999 in UTC") from error
    return f"{day}T{clock}.{(fraction or '')[:6]:0<6}" + ("" if naive else (zone or "Z").upper())
