"""A table as the binary log describes it before its rows: types, sizes, and names if the server
logs them; and the rows of many events at once, column by column.

Of each column, the first row of each event comes first, then the second row of each, and so on.

See
https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from singer_spark.errors import SourceError
from tap_spark_jdbc.binlog.events import lenenc, little
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.wal.change_lines import gathered

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tap_spark_jdbc.binlog.events import Bytes, Numbers, RowEvents

    Flags = npt.NDArray[np.bool_]

# Type codes of MySQL, of MariaDB's compressed columns, and of vectors.
TINY, SHORT, LONG, FLOAT, DOUBLE, OLD_TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, OLD_TIME, OLD_DATETIME, YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP, DATETIME, TIME = range(10, 20)
BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR = 140, 141, 242
JSON, DECIMAL, ENUM, SET = 245, 246, 247, 248
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
_FIELDS = ("nulls", "begins", "sizes")


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


@dataclass(frozen=True)
class Values:
    """The values of one column, by the positions of their bytes.

    Attributes:
        nulls: Which are NULL.
        begins: Where each begins.
        sizes: The bytes of each; 0 for NULL.
    """

    content: Bytes
    nulls: Flags
    begins: Numbers
    sizes: Numbers

    def __len__(self) -> int:
        return len(self.nulls)

    def take(self, rows: Numbers) -> Values:
        """The values of some rows."""
        return Values(self.content, self.nulls[rows], self.begins[rows], self.sizes[rows])

    def fixed(self, size: int) -> Bytes:
        """The bytes of values of one size, a row each; those of NULL are arbitrary."""
        begins = np.where(self.nulls, 0, self.begins)
        found: Bytes = self.content[begins[:, None] + np.arange(size)]
        return found

    def binary(self) -> pa.Array:
        """The bytes of each value."""
        return gathered(pa.binary(), self.content, ~self.nulls, self.begins, self.sizes)

    @property
    def validity(self) -> Bytes:
        """Arrow's bitmap of the values that are not NULL."""
        found: Bytes = np.packbits(~self.nulls, bitorder="little")
        return found


@dataclass(frozen=True)
class Rows:
    """Rows, or their former values.

    Attributes:
        columns: The values of each column that is in the log, by its number.
    """

    columns: dict[int, Values]

    def take(self, rows: Numbers) -> Rows:
        """Some of the rows."""
        return Rows({number: values.take(rows) for number, values in self.columns.items()})


@dataclass(frozen=True)
class RowImages:
    """The rows of some events in the order of the log.

    Attributes:
        events: The event of each row, by its number in the batch.
        orders: The number of each row in its event.
        images: The rows; for updates, as they were before and then as they are.
    """

    events: Numbers
    orders: Numbers
    images: tuple[Rows, ...]

    @classmethod
    def of(cls, rows: RowEvents, types: Sequence[LoggedType]) -> RowImages:
        """Decode the positions of all values; SourceError: the events are not of these types."""
        columns = [_present(each, len(types)) for each in rows.present]
        found: list[list[dict[int, Values]]] = [[] for _ in columns]
        events: list[Numbers] = []
        open_rows = np.flatnonzero(rows.begins < rows.ends)
        at = rows.begins[open_rows]
        while len(open_rows):
            for image, present in enumerate(columns):
                values, at = _image(rows.content, at, present, types)
                found[image].append(values)
            if (at > rows.ends[open_rows]).any():
                raise SourceError(
                    TapCode.LOG_ROWS_MALFORMED,
                    "rows in the log don't match its description of their table",
                )
            events.append(rows.events[open_rows])
            more = at < rows.ends[open_rows]
            open_rows, at = open_rows[more], at[more]
        return cls._in_order(events, found, rows.content)

    @classmethod
    def _in_order(
        cls, events: list[Numbers], found: list[list[dict[int, Values]]], content: Bytes
    ) -> RowImages:
        """Join the first rows of all events, the second ones and so on, in the order of the log."""
        if not events:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64), tuple(Rows({}) for _ in found))
        which = np.concatenate(events)
        steps = np.repeat(np.arange(len(events)), [len(each) for each in events])
        order = np.lexsort((steps, which))
        images = []
        for parts in found:
            joined = {
                number: Values(
                    content,
                    *(
                        np.concatenate([getattr(each[number], name) for each in parts])
                        for name in _FIELDS
                    ),
                )
                for number in parts[0]
            }
            images.append(Rows(joined).take(order) if len(events) > 1 else Rows(joined))
        return cls(which[order], steps[order], tuple(images))


def _present(bitmap: bytes, count: int) -> list[int]:
    """The numbers of the columns that an image has."""
    return [number for number in range(count) if bitmap[number // 8] >> number % 8 & 1]


def _image(
    content: Bytes, at: Numbers, present: Sequence[int], types: Sequence[LoggedType]
) -> tuple[dict[int, Values], Numbers]:
    """One row at each position, and where it ends: a bitmap of NULLs, then the values that are not
    NULL.
    """
    bitmap, found = at, {}
    at = at + (len(present) + 7) // 8
    # A broken row must not lead beyond the end.
    last = len(content) - 16
    for position, number in enumerate(present):
        kind = types[number]
        nulls = (content[bitmap + position // 8] >> position % 8 & 1).astype(np.bool_)
        if kind.size:
            sizes, begins = np.where(nulls, 0, kind.size), at
        else:
            head = kind.length_bytes
            sizes = np.where(nulls, 0, little(content, at, head))
            begins = at + np.where(nulls, 0, head)
        found[number] = Values(content, nulls, begins, sizes)
        at = np.minimum(begins + sizes, last)
    return found, at
