"""Bookmarks in the state of any tap, and the age of a stream's watermark, if its replication key is
a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.core.lake_type import INTEGERS, SCALARS
from singer_spark.errors import ConfigurationError
from singer_spark.program.amounts import span_text
from target_spark_lake.error_codes import LakeCode

BY_OPTION = "--type says so"
_DAY = r"\d{4,}-\d{2}-\d{2}"
_ZONE = r"(?:Z|[+-]\d{2}:?\d{2})"
_FORMS = (
    (re.compile(_DAY), KeyType.DATE, False),
    (re.compile(rf"{_DAY}[T ][\d:.]+"), KeyType.DATETIME, False),
    (re.compile(rf"{_DAY}[T ][\d:.]+{_ZONE}"), KeyType.TIMESTAMP, True),
    (re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?"), KeyType.DECIMAL, False),
    (re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"), KeyType.UUID, False),
    (re.compile(r"\\x(?:[0-9a-fA-F]{2})*"), KeyType.BINARY, False),
)
_HEXADECIMAL = re.compile(r"(?:\\x)?(?:[0-9a-fA-F]{2})+")
_INTEGER_BITS = {name: 8 * size for name, size in INTEGERS.items()}
_COLUMNS = dict.fromkeys(_INTEGER_BITS, KeyType.INTEGER)
_COLUMNS |= {name: KeyType(each.key) for name, each in SCALARS.items() if each.key}
_EXAMPLES = {
    KeyType.INTEGER: "42",
    KeyType.DECIMAL: "12.50",
    KeyType.DATE: "2025-01-20",
    KeyType.DATETIME: "2025-01-20T15:30:00",
    KeyType.TIMESTAMP: "2025-01-20T15:30:00",
    KeyType.STRING: "some text",
    KeyType.UUID: "123e4567-e89b-12d3-a456-426614174000",
    KeyType.BINARY: "\\x0aff",
}
# Members of a state that are not bookmarks.
_NO_BOOKMARKS = ("bookmarks", "currently_syncing")
# Below, rows may be held back on purpose (`safety_lag_seconds`).
_IDLE_SECONDS = 3_600
# Stricter than Python's parser, because the text `20250101` may be a number of any kind.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")


@dataclass(frozen=True)
class BookmarkKey:
    """A replication key as far as the lake knows it.

    Values of an `aware` one are instants, not wall-clock times.
    """

    name: str
    key_type: KeyType
    aware: bool
    source: str
    bits: int | None = None

    def value(self, text: str) -> KeyValue:
        """Parse a value written by hand.

        Raises:
            ValueError: it is not a value of this key; the message says what one looks like.
        """
        try:
            self._check_spelling(text)
            parsed = KeyValue.parse(text, self.key_type, aware=self.aware)
        except ValueError as error:
            raise ValueError(f"{error}; {self.expected()}") from None
        if self.bits is not None and self.key_type is KeyType.INTEGER:
            if not -(2 ** (self.bits - 1)) <= int(parsed.text) < 2 ** (self.bits - 1):
                raise ValueError(f"{text} is beyond {self.bits} bits; {self.expected()}")
        return parsed

    def expected(self) -> str:
        """What a value must look like, and why."""
        example = _EXAMPLES[self.key_type] + ("Z" if self.aware else "")
        text = (
            f"its replication key {self.name} is of type {self.key_type} ({self.source}): give "
            f"a value like {example}"
        )
        return text if self.source == BY_OPTION else f"{text}, or give another type by --type"

    def _check_spelling(self, text: str) -> None:
        """Refuse what a database would refuse or silently truncate."""
        spelled = text.strip()
        if self.key_type is KeyType.INTEGER and not re.fullmatch(r"[+-]?[0-9]+", spelled):
            raise ValueError(f"{text!r} is not an integer")
        if self.key_type is KeyType.DATE and not re.fullmatch(_DAY, spelled):
            raise ValueError(f"{text!r} is not a date")
        if self.key_type is KeyType.BINARY and not _HEXADECIMAL.fullmatch(spelled):
            raise ValueError(f"{text!r} is not bytes in hexadecimal digits")
        if self.key_type is KeyType.UUID:
            try:
                UUID(spelled)
            except ValueError:
                raise ValueError(f"{text!r} is not a UUID") from None


def key_of_type(name: str, key_type: str) -> BookmarkKey:
    """The key with a type given by a user; raises ConfigurationError if there is no such type."""
    try:
        found = KeyType.of(key_type)
    except ValueError as error:
        raise ConfigurationError(LakeCode.BAD_BOOKMARK, f"--type: {error}") from None
    return BookmarkKey(name, found, key_type.strip().lower() == "timestamptz", BY_OPTION)


def key_of_bookmark(
    name: str, value: Any, columns: Mapping[str, str], source: str
) -> BookmarkKey | None:
    """The key from a saved value, by its form first, since a user may have set the key's type; None
    if unclear.
    """
    column = columns.get(name)
    bits = _INTEGER_BITS.get(column or "")
    if isinstance(value, int) and not isinstance(value, bool):
        return BookmarkKey(name, KeyType.INTEGER, False, source, bits)
    if isinstance(value, float):
        return BookmarkKey(name, KeyType.DECIMAL, False, source)
    if isinstance(value, str):
        for form, key_type, aware in _FORMS:
            if form.fullmatch(value):
                known = key_of_column(name, columns) if key_type is KeyType.DECIMAL else None
                return known or BookmarkKey(name, key_type, aware, source)
        return key_of_column(name, columns) or BookmarkKey(name, KeyType.STRING, False, source)
    return None


def key_of_column(name: str, columns: Mapping[str, str]) -> BookmarkKey | None:
    """The key from its column in the lake; None if that is missing or fits several kinds of key."""
    column = columns.get(name, "")
    source = f"the table's column is {column}"
    if column.startswith("decimal"):
        return BookmarkKey(name, KeyType.DECIMAL, False, source)
    if column not in _COLUMNS:
        return None
    key_type = _COLUMNS[column]
    aware = key_type is KeyType.TIMESTAMP
    return BookmarkKey(name, key_type, aware, source, _INTEGER_BITS.get(column))


def bookmarks_of(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """The non-empty bookmarks of a Singer state; for a state in another form, all its members."""
    bookmarks = (state or {}).get("bookmarks")
    named = bookmarks if isinstance(bookmarks, Mapping) else {"bookmarks": bookmarks}
    beside = {name: value for name, value in (state or {}).items() if name not in _NO_BOOKMARKS}
    return {name: value for name, value in {**beside, **named}.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(
            _is_empty(_positions(each) if name == "partitions" else each)
            for name, each in value.items()
        )
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None


def _positions(partitions: Any) -> Any:
    """The SDK's partition bookmarks, without the contexts that identify them."""
    parts = partitions if isinstance(partitions, list) else []
    named = [
        {name: value for name, value in each.items() if name != "context"}
        if isinstance(each, Mapping)
        else each
        for each in parts
    ]
    return named or partitions


def watermarks(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """Values of replication keys in a state, by stream; streams without one are left out."""
    bookmarks = (state or {}).get("bookmarks")
    if not isinstance(bookmarks, dict):
        return {}
    values = {
        stream: bookmark.get("replication_key_value")
        for stream, bookmark in bookmarks.items()
        if isinstance(bookmark, dict)
    }
    return {stream: value for stream, value in values.items() if value is not None}


def lag_seconds(value: Any, now: datetime) -> float | None:
    """Seconds that a watermark (UTC if without zone) is behind a moment; None if it is no time."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return now.timestamp() - aware.timestamp() if aware.year > 1 else None


def idle_seconds(value: Any, read_at: datetime | None, now: datetime) -> float | None:
    """How long a stream has had no new row: its watermark's age, if a later run read it.

    That is not a lag, because the lake has all that the source had. None: there may be newer rows,
    or the key is not a time.
    """
    age = lag_seconds(value, now)
    return None if age is None or read_at is None or age <= (now - read_at).total_seconds() else age


def ended_early(state: Mapping[str, Any] | None) -> bool:
    """Whether the run that left a state did not get to all streams, or not to their ends."""
    return (state or {}).get("currently_syncing") is not None


def newest_row_text(age: float, idle: float | None) -> str:
    """The age of a stream's newest row for people: `5 min ago`, or `no new rows for 935 d`."""
    if idle is not None and idle >= _IDLE_SECONDS:
        return f"no new rows for {span_text(idle)}"
    return f"{span_text(age)} ago" if age >= 0 else f"{span_text(-age)} ahead"


def unread_lags(state: Mapping[str, Any] | None, moment: datetime) -> dict[str, float]:
    """As `lags_at`, if the run that left a state did not read all that the source had; otherwise
    there is no lag.
    """
    return lags_at(state, moment) if ended_early(state) else {}


def lags_at(state: Mapping[str, Any] | None, moment: datetime) -> dict[str, float]:
    """Seconds that each stream's watermark is behind a moment; only for keys that are times."""
    lags = {stream: lag_seconds(value, moment) for stream, value in watermarks(state).items()}
    return {stream: lag for stream, lag in lags.items() if lag is not None}
