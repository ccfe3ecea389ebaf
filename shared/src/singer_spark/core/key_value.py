"""Values of a replication key: parsed as databases print them, kept as text, compared by value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Decimal, InvalidOperation, localcontext
from enum import StrEnum
from functools import total_ordering
from typing import Any

_MOMENT = re.compile(
    r"(?P<day>\d{4,}-\d{2}-\d{2})"
    r"(?:[T ](?P<clock>\d{2}:\d{2}(?::\d{2})?)(?:[.,](?P<fraction>\d{1,9})0*)?)?"
    r"\s*(?P<zone>Z|z|UTC|[+-]\d{2}(?::?\d{2})?(?::?\d{2})?|[+-]\d(?::\d{2}){1,2})?$"
)
_ALIASES = {
    "int": "integer",
    "bigint": "integer",
    "smallint": "integer",
    "timestamptz": "timestamp",
}


class KeyType(StrEnum):
    """What kind of value a replication key holds."""

    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    INTEGER = "integer"
    DECIMAL = "decimal"
    STRING = "string"
    UUID = "uuid"
    BINARY = "binary"

    @classmethod
    def of(cls, name: str) -> KeyType:
        """The type of this name, in any case, or of its alias (`int`, `bigint`, `timestamptz`).

        Raises:
            ValueError: no such type; the message lists those that are.
        """
        lowered = name.strip().lower()
        try:
            return cls(_ALIASES.get(lowered, lowered))
        except ValueError:
            known = ", ".join([*cls, *_ALIASES])
            raise ValueError(f"unknown key type {name!r}; known are {known}") from None

    @property
    def has_distance(self) -> bool:
        """Whether a lag can be taken from values."""
        return self not in (KeyType.STRING, KeyType.UUID, KeyType.BINARY)

    @property
    def is_moment(self) -> bool:
        """Whether values are points in time, a date included."""
        return self in (KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP)


@total_ordering
@dataclass(frozen=True)
class KeyValue:
    """One value of a replication key.

    Attributes:
        key_type: What kind of value it is.
        text: Canonical text, one for each value: `42`, `1.5`, `2025-01-20`,
            `2025-01-20T15:30:00.000000` (nine digits if finer).
        aware: Whether it is an instant (in UTC, its text ends with `Z`), not a wall-clock time.
    """

    key_type: KeyType
    text: str
    aware: bool = False

    @classmethod
    def parse(cls, raw: Any, key_type: KeyType, *, aware: bool = False) -> KeyValue:
        """Parse a value printed by a database, held by a state or written by a user.

        Args:
            raw: Text or JSON number; `2025-01-20 15:30:00.5`, `…+01`, `…Z`, `42`.
            key_type: The key's type.
            aware: The column has a time zone; a value without one is then taken as UTC.

        Raises:
            ValueError: it is not a value of that type, or has a zone although the key has none.
        """
        text = (
            str(raw).strip() if not isinstance(raw, str) or key_type is not KeyType.STRING else raw
        )
        if isinstance(raw, bool) or raw is None:
            raise ValueError(f"{raw!r} is not a value of a {key_type} key")
        match key_type:
            case KeyType.INTEGER:
                return cls(key_type, str(_integer(text)))
            case KeyType.DECIMAL:
                return cls(key_type, _plain(_decimal(text)))
            case KeyType.DATE | KeyType.DATETIME | KeyType.TIMESTAMP:
                return _parse_moment(text, key_type, aware)
            case _:
                return cls(key_type, text)

    def json_value(self) -> int | str:
        """The value as in a bookmark: a number for integers, else text."""
        return int(self.text) if self.key_type is KeyType.INTEGER else self.text

    def moment(self) -> datetime:
        """An `is_moment` value to the microsecond, without zone (UTC if aware)."""
        return datetime.fromisoformat(self.text.removesuffix("Z")[:26])

    def minus(self, amount: float) -> KeyValue:
        """The value this many seconds earlier, for a key that `has_distance`; a number is this many
        units lower.
        """
        if self.key_type is KeyType.INTEGER:
            return KeyValue(self.key_type, str(int(self.text) - int(amount)))
        if self.key_type is KeyType.DECIMAL:
            # The context's 28 digits would round, and a rounded bound may lie above the value
            # itself.
            with localcontext(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX):
                return KeyValue(self.key_type, _plain(Decimal(self.text) - Decimal(str(amount))))
        earliest = datetime(1, 1, 1)
        moment = self.moment()
        lag = timedelta(seconds=amount)
        earlier = moment - lag if moment - earliest > lag else earliest
        if self.key_type is KeyType.DATE:
            return KeyValue(self.key_type, earlier.date().isoformat())
        # Digits below a microsecond are cut off: a lower bound may only fall.
        return KeyValue(self.key_type, _moment_text(earlier, "", self.aware), self.aware)

    def __lt__(self, other: KeyValue) -> bool:
        if (self.key_type, self.aware) != (other.key_type, other.aware):
            raise TypeError(
                f"a {self.key_type} value can't be compared with a {other.key_type} value"
            )
        return bool(self._order() < other._order())

    def _order(self) -> Any:
        match self.key_type:
            case KeyType.INTEGER:
                return int(self.text)
            case KeyType.DECIMAL:
                return Decimal(self.text)
            case KeyType.DATE | KeyType.DATETIME | KeyType.TIMESTAMP:
                return (len(self.text.partition("-")[0]), self.text.removesuffix("Z"))
            case _:
                return self.text


def has_zone(text: str) -> bool:
    """Whether a moment, as a database prints it, includes its time zone."""
    match = _MOMENT.match(text.strip())
    return match is not None and bool(match["zone"])


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an integer") from None


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a decimal number") from None
    if not number.is_finite():
        raise ValueError(f"{text!r} is not a finite number")
    return number


def _plain(number: Decimal) -> str:
    """The digits without exponent, scale or sign of zero: databases equate 1.5 and 1.500."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _parse_moment(text: str, key_type: KeyType, aware: bool) -> KeyValue:
    match = _MOMENT.match(text)
    if not match:
        like = "2025-01-20" if key_type is KeyType.DATE else "2025-01-20T15:30:00.000000"
        raise ValueError(f"{text!r} is not a {key_type} like {like}")
    day, zone = match["day"], match["zone"]
    clock, fraction = match["clock"] or "00:00:00", match["fraction"] or ""
    if key_type is KeyType.DATE:
        return KeyValue(key_type, date.fromisoformat(day).isoformat())
    if (
        zone
        and not aware
        and zone not in ("Z", "z", "UTC")
        and not re.fullmatch(r"[+-]0?0:?(00)?", zone)
    ):
        raise ValueError(f"{text!r} has a time zone, but the key's column has none")
    moment = datetime.fromisoformat(f"{day}T{clock}").replace(
        microsecond=int(fraction[:6].ljust(6, "0"))
    )
    if aware and zone:
        moment = _to_utc(moment, zone)
    return KeyValue(key_type, _moment_text(moment, fraction[6:], aware), aware)


def _to_utc(moment: datetime, zone: str) -> datetime:
    if zone in ("Z", "z", "UTC"):
        return moment
    offset = datetime.strptime(_full_offset(zone), "%z").utcoffset() or timedelta()
    try:
        return moment - offset
    except OverflowError:
        raise ValueError(
            f"{moment.isoformat()}{zone} is not of the years 1 to 9999 in UTC"
        ) from None


def _full_offset(zone: str) -> str:
    hours, _, minutes = zone[1:].partition(":")
    return zone[0] + (hours.rjust(2, "0") + minutes.replace(":", "")).ljust(4, "0")


def _moment_text(moment: datetime, below_microsecond: str, aware: bool) -> str:
    finer = below_microsecond.rstrip("0")
    text = moment.isoformat(timespec="microseconds") + (finer.ljust(3, "0") if finer else "")
    return text + ("Z" if aware else "")
