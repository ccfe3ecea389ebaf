"""Bookmarks in the state of any tap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.core.lake_type import INTEGERS
from singer_spark.errors import ConfigurationError
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
_COLUMNS = {
    **dict.fromkeys(_INTEGER_BITS, (KeyType.INTEGER, False)),
    "date": (KeyType.DATE, False),
    "timestamp": (KeyType.TIMESTAMP, True),
    "timestamp_ntz": (KeyType.DATETIME, False),
    "binary": (KeyType.BINARY, False),
}
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
    """The key from its column in the lake; None if there is none, or its type fits several kinds of
    key.
    """
    column = columns.get(name, "")
    source = f"the table's column is {column}"
    if column.startswith("decimal"):
        return BookmarkKey(name, KeyType.DECIMAL, False, source)
    if column not in _COLUMNS:
        return None
    key_type, aware = _COLUMNS[column]
    return BookmarkKey(name, key_type, aware, source, _INTEGER_BITS.get(column))


# Members of a state that are not bookmarks.
_NO_BOOKMARKS = ("bookmarks", "currently_syncing")


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
