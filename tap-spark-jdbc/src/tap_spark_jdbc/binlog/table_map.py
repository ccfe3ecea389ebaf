"""A table as the binary log describes it before its rows: types, sizes, and names if the server
logs them.

See
https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from tap_spark_jdbc.binlog.events import lenenc

# Type codes of MySQL, of MariaDB's compressed columns, and of vectors.
TINY, SHORT, LONG, FLOAT, DOUBLE, OLD_TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, OLD_TIME, OLD_DATETIME, YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP, DATETIME, TIME = range(10, 20)
BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR, JSON, DECIMAL, ENUM, SET = (
    140,
    141,
    242,
    245,
    246,
    247,
    248,
)
BLOB, VAR_STRING, STRING, GEOMETRY = 252, 253, 254, 255
_FIXED = {
    TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, FLOAT: 4, DOUBLE: 8, YEAR: 1, DATE: 3,
    NEWDATE: 3,
    OLD_TIME: 3, OLD_DATETIME: 8, OLD_TIMESTAMP: 4,
}  # fmt: skip
_WITHOUT_FRACTION = {TIMESTAMP: 4, DATETIME: 5, TIME: 3}
_META_BYTES = {
    FLOAT: 1, DOUBLE: 1, VARCHAR: 2, BIT: 2, DECIMAL: 2, BLOB: 1, GEOMETRY: 1, JSON: 1, VECTOR: 1,
    STRING: 2,
    VAR_STRING: 2, ENUM: 2, SET: 2, TIMESTAMP: 1, DATETIME: 1, TIME: 1, BLOB_COMPRESSED: 1,
    VARCHAR_COMPRESSED: 2,
}  # fmt: skip
_NAMES = 4
# By the beginning of a type's name in the catalog.
_CODES = (
    ("tinyint|bool", {TINY}), ("smallint", {SHORT}), ("mediumint", {INT24}),
    ("int", {LONG}), ("bigint", {LONGLONG}),
    ("float", {FLOAT}), ("double|real", {DOUBLE}), ("decimal|numeric", {DECIMAL}), ("year", {YEAR}),
    ("datetime", {DATETIME, OLD_DATETIME}), ("date", {DATE, NEWDATE}),
    ("timestamp", {TIMESTAMP, OLD_TIMESTAMP}),
    ("time", {TIME, OLD_TIME}), ("bit", {BIT}), ("enum", {ENUM}), ("set", {SET}),
    ("json", {JSON, BLOB}),
    ("varchar|varbinary", {VARCHAR, VAR_STRING, VARCHAR_COMPRESSED}),
    ("char|binary|uuid|inet", {STRING}),
    ("(tiny|medium|long)?(text|blob)", {BLOB, BLOB_COMPRESSED}),
    ("vector", {VECTOR, BLOB, VARCHAR}),
    (".*", {GEOMETRY}),
)  # fmt: skip
_DIGITS = 9
# The bytes for each number of decimal digits.
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


@dataclass(frozen=True)
class LoggedType:
    """The type of a column in the log's rows.

    Attributes:
        code: The type's code.
        meta: Its parameters: the digits and the scale of a decimal, the most bytes of a text, the
            digits of a time's fraction, the number of bits of a BIT.
    """

    code: int
    meta: tuple[int, ...] = ()

    @cached_property
    def size(self) -> int:
        """The bytes of each value; 0: each value has its own size."""
        if self.code in _FIXED:
            return _FIXED[self.code]
        if self.code in _WITHOUT_FRACTION:
            return _WITHOUT_FRACTION[self.code] + (self.meta[0] + 1) // 2
        if self.code == DECIMAL:
            return sum(decimal_bytes(*self.meta))
        if self.code == BIT:
            return (self.meta[0] + 7) // 8
        return self.meta[0] if self.code in (ENUM, SET) else 0

    @cached_property
    def length_bytes(self) -> int:
        """The bytes before a value that hold its size."""
        if self.code in (VARCHAR, VAR_STRING, VARCHAR_COMPRESSED, STRING):
            return 2 if self.meta[0] > 255 else 1
        return self.meta[0]

    def fits(self, native: str) -> bool:
        """Whether a column of this type in the catalog has such values in the log."""
        lowered = native.lower()
        codes = next(
            codes
            for pattern, codes in _CODES
            if re.match(rf"(?:{pattern})(?![a-z])|\.\*", lowered) or pattern == ".*"
        )
        if self.code not in codes:
            return False
        parameters = re.match(r"[a-z]+\((\d+)(?:,(\d+))?\)", lowered)
        if self.code == DECIMAL and parameters:
            return self.meta == (int(parameters[1]), int(parameters[2] or 0))
        if self.code == BIT and parameters:
            return self.meta == (int(parameters[1]),)
        if self.code in (TIMESTAMP, DATETIME, TIME):
            return self.meta == (int(parameters[1]) if parameters else 0,)
        return True


@dataclass(frozen=True)
class TableMap:
    """A table in the log.

    Attributes:
        schema: Its database.
        types: The types of its columns.
        names: Their names; None: the server does not log them (`binlog_row_metadata`).
    """

    schema: str
    name: str
    types: tuple[LoggedType, ...]
    names: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, body: bytes) -> TableMap:
        """Parse the event that describes a table, without its header."""
        schema, at = _short_text(body, 8)
        name, at = _short_text(body, at)
        count, at = lenenc(body, at)
        codes = body[at : at + count]
        meta_size, meta = lenenc(body, at + count)
        types = _types(codes, body[meta : meta + meta_size])
        at = meta + meta_size + (count + 7) // 8
        names = None
        while at < len(body):
            kind = body[at]
            size, at = lenenc(body, at + 1)
            if kind == _NAMES:
                names = tuple(_texts(body[at : at + size]))
            at += size
        return cls(schema, name, types, names)


def decimal_bytes(digits: int, scale: int) -> tuple[int, int]:
    """The bytes of a packed decimal before and after its point."""
    whole, rest = divmod(digits - scale, _DIGITS)
    parts, last = divmod(scale, _DIGITS)
    return whole * 4 + _DIGIT_BYTES[rest], parts * 4 + _DIGIT_BYTES[last]


def _types(codes: bytes, meta: bytes) -> tuple[LoggedType, ...]:
    found, at = [], 0
    for code in codes:
        size = _META_BYTES.get(code, 0)
        found.append(_type(code, meta[at : at + size]))
        at += size
    return tuple(found)


def _type(code: int, meta: bytes) -> LoggedType:
    if code == STRING:
        real, length = meta
        if real & 0x30 != 0x30:
            return LoggedType(STRING, (length | ((real & 0x30) ^ 0x30) << 4,))
        return LoggedType(real, (length,))
    if code in (VARCHAR, VAR_STRING, VARCHAR_COMPRESSED):
        return LoggedType(code, (int.from_bytes(meta, "little"),))
    if code == BIT:
        return LoggedType(code, (meta[0] + 8 * meta[1],))
    return LoggedType(code, tuple(meta))


def _short_text(body: bytes, at: int) -> tuple[str, int]:
    size = body[at]
    return body[at + 1 : at + 1 + size].decode(), at + size + 2


def _texts(data: bytes) -> list[str]:
    found, at = [], 0
    while at < len(data):
        size, at = lenenc(data, at)
        found.append(data[at : at + size].decode())
        at += size
    return found
