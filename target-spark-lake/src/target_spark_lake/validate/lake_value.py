"""Converts a JSON value to the value of a lake column, or says why the column can't hold it, as a
double that would round a whole number.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from singer_spark.core.exact_json import to_json
from singer_spark.core.lake_type import INTEGERS, Array, LakeType, Scalar, Struct
from singer_spark.core.sql_type import annotated_type
from target_spark_lake.table.text_columns import ELEMENT
from target_spark_lake.validate.value_schema import FLOATING, NON_FINITE, plain_branch

# Up to here a text is not an infinity; the shortest text of the greatest float is above that float.
_GREATEST = {"float": Decimal("3.4028235677973366e38"), "double": Decimal("1.7976931348623157e308")}
# A time zone may be in whole hours, as PostgreSQL writes it and some taps pass it on.
MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt "
    r"]((?:[01]\d|2[0-3]):[0-5]\d:[0-6]\d)(?:\.(\d+))?([Zz]|[+-]\d\d(?::\d\d)?)?",
    re.ASCII,
)
_UTC = ("Z", "z", "+00:00", "-00:00", "+00", "-00")
JSON = dict[str, Any]
# Every integer up to here is exactly a double.
GREATEST_EXACT = 1 << 53


class UnholdableError(ValueError):
    """Why a column can't hold a value.

    Attributes:
        path: Position within the value: names of members and indexes of elements.
    """

    path: tuple[str | int, ...] = ()


def lake_value(value: Any, lake: LakeType) -> Any:
    """The Python value from which Arrow builds the column's type, from parsed JSON with numbers as
    int or Decimal.

    Raises:
        UnholdableError: the column can't hold the value without loss.
    """
    if value is None:
        return None
    if isinstance(lake, Array):
        _expect(value, isinstance(value, list), "it is not an array")
        return [_inner(number, each, lake.element) for number, each in enumerate(value)]
    if isinstance(lake, Struct):
        _expect(value, isinstance(value, Mapping), "it is not an object")
        return {
            name: _inner(name, value[name], kind)
            for name, kind in lake.types.items()
            if name in value
        }
    if lake.name == "string":
        return value if isinstance(value, str) else to_json(value)
    if lake.name == "boolean":
        return _expect(value, isinstance(value, bool), "it is not a boolean")
    if lake.name in INTEGERS:
        return _integer(value, INTEGERS[lake.name])
    if lake.name in _GREATEST:
        return _floating(value, _GREATEST[lake.name])
    if lake.name == "decimal":
        return _decimal(value, lake.precision, lake.scale)
    _expect(value, isinstance(value, str), "it is not a text")
    if lake.name == "date":
        return _date(value)
    if lake.name == "binary":
        return _binary(value)
    return _moment(value, naive=lake.name == "timestamp_ntz")


def _inner(part: str | int, value: Any, lake: LakeType) -> Any:
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
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    _expect(value, is_number, "it is not a number")
    return Decimal(value)


def _integer(value: Any, size: int) -> int:
    number = _number(value)
    _expect(number, number == number.to_integral_value(), "it has a fraction")
    bound = 2 ** (8 * size - 1)
    _expect(number, -bound <= number < bound, f"it needs more than {size} byte(s)")
    return int(number)


def _floating(value: Any, greatest: Decimal) -> float:
    if value in NON_FINITE and isinstance(value, str):
        return float(value)
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
    most = precision - scale
    _expect(value, before <= most, f"it has more than {most} digits before the point")
    return Decimal(format(Decimal((sign, tuple(map(int, significant)), power)), "f"))


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UnholdableError(f"{error}") from error


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UnholdableError(f"it is not base64 ({error})") from error


def _moment(text: str, *, naive: bool) -> datetime:
    match = MOMENT.fullmatch(text)
    if not match:
        raise UnholdableError("it is not a date and time")
    day, clock, fraction, zone = match.groups()
    _expect(text, not (fraction or "")[6:].strip("0"), "it is finer than a microsecond")
    _expect(
        text,
        not zone or (zone[1:] <= "18:00" and zone[4:] < "60"),
        "its time zone is more than 18 hours from UTC",
    )
    _expect(
        text, not naive or not zone or zone in _UTC, "it has a time zone, but the column has none"
    )
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}.{(fraction or '')[:6]:0<6}")
        if zone and zone not in _UTC:
            moment -= timedelta(hours=int(zone[1:3]), minutes=int(zone[4:] or 0)) * (
                -1 if zone[0] == "-" else 1
            )
    except ValueError as error:
        raise UnholdableError(str(error)) from error
    except OverflowError as error:
        raise UnholdableError("it is not of the years 1 to 9999 in UTC") from error
    return moment if naive else moment.replace(tzinfo=UTC)


def plain_numbers(schema: JSON, lake: LakeType | None) -> Any:
    """True for a plain `number`, which is a double in the lake and would round large whole numbers;
    for nested ones, a mapping by member name or `ELEMENT`; None if there are none.
    """
    branch = plain_branch(schema)
    if lake == Scalar("double"):
        sql = annotated_type(branch)
        return True if sql is None or sql.name not in FLOATING else None
    if isinstance(lake, Array) and isinstance(items := branch.get("items"), dict):
        inner = plain_numbers(items, lake.element)
        return None if inner is None else {ELEMENT: inner}
    if not isinstance(lake, Struct):
        return None
    properties = branch.get("properties") or {}
    found = {
        name: plain_numbers(properties[name], kind)
        for name, kind in lake.types.items()
        if name in properties
    }
    return {name: each for name, each in found.items() if each is not None} or None


def refuse_rounded(value: Any, plain: Any) -> None:
    """Refuse a whole number, however it is spelled, that is not exactly a double.

    Fractions may be rounded.

    `plain` is from `plain_numbers`.

    Raises:
        UnholdableError: a whole number in it would be rounded.
    """
    if plain is True:
        if isinstance(value, int | Decimal) and not _is_double(value):
            raise UnholdableError(
                "a double would be another whole number; BIGINT or DECIMAL(p,s) holds it"
            )
    elif plain is not None and value is not None:
        parts = enumerate(value) if isinstance(value, list) else value.items()
        for name, each in parts:
            try:
                refuse_rounded(each, plain.get(ELEMENT if isinstance(value, list) else name))
            except UnholdableError as error:
                error.path = (name, *error.path)
                raise


def _is_double(value: int | Decimal) -> bool:
    """Whether a number is a fraction, or a double equals it or was printed as it: in its shortest
    digits, or in 17.
    """
    number = Decimal(value)
    if number.copy_abs() <= GREATEST_EXACT or number != number.to_integral_value():
        return True
    held = float(number)
    return int(held) == value or value in (Decimal(repr(held)), Decimal(f"{held:.17g}"))
