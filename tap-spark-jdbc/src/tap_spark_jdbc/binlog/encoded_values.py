"""Values that the binary log packs: decimals, dates and times, and MySQL's binary JSON.

Decimals have nine digits in four bytes, the rest in fewer. The first bit is inverted, and so are
all bits of negative numbers. Dates and times are packed into bits, with a fraction of up to six
digits. JSON becomes the text that the server converts it to: see
https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.binlog.events import little
from tap_spark_jdbc.binlog.table_rows import (
    DATE,
    DATETIME,
    NEWDATE,
    OLD_DATETIME,
    OLD_TIME,
    OLD_TIMESTAMP,
    TIMESTAMP,
    decimal_bytes,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from tap_spark_jdbc.binlog.events import Bytes, Numbers
    from tap_spark_jdbc.binlog.table_rows import Flags, LoggedType, Values

# A number of this many digits fits into 64 bits.
_SMALL_DIGITS = 18
_MOST_DIGITS = 38
_GROUP_DIGITS, _GROUP_BYTES = 9, 4
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
# The bytes of values that are in the entry itself, with small and with large offsets; 0: they are
# elsewhere.
_INLINE = {_LITERAL: (2, 2), 5: (2, 2), 6: (2, 2), 7: (0, 4), 8: (0, 4)}
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246
_ESCAPES = str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    | {chr(code): f"\\u{code:04x}" for code in range(0x20) if code not in (8, 9, 10, 12, 13)}
)
_DIGITS_WITHOUT_EXPONENT = 15


def decimals(values: Values, digits: int, scale: int) -> pa.Array:
    """Decimals of these digits; their texts if Arrow's type does not have as many digits."""
    packed = values.fixed(sum(decimal_bytes(digits, scale)))
    if digits > _SMALL_DIGITS:
        texts = [
            None if null else decimal_text(row.tobytes(), digits, scale)
            for row, null in zip(packed, values.nulls, strict=True)
        ]
        kind = pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.string()
        return pa.array(
            [each if each is None or kind == pa.string() else Decimal(each) for each in texts], kind
        )
    negative = packed[:, 0] < 0x80
    packed = packed.copy()
    packed[:, 0] ^= 0x80
    packed[negative] ^= 0xFF
    total = _number(packed, digits - scale, scale)
    total[negative] *= -1
    wide = np.empty((len(total), 2), np.int64)
    wide[:, 0], wide[:, 1] = total, total >> 63
    buffers = [pa.py_buffer(values.validity), pa.py_buffer(wide)]
    return pa.Array.from_buffers(pa.decimal128(digits, scale), len(total), buffers)


def decimal_text(packed: bytes, digits: int, scale: int) -> str:
    """The text of one decimal, as the server writes it."""
    data = bytearray(packed)
    negative = data[0] < 0x80
    data[0] ^= 0x80
    if negative:
        data = bytearray(each ^ 0xFF for each in data)
    whole, _ = decimal_bytes(digits, scale)
    before = _digits(data[:whole], digits - scale, leading=True).lstrip("0") or "0"
    behind = _digits(data[whole:], scale, leading=False)
    return f"{'-' if negative else ''}{before}{f'.{behind}' if scale else ''}"


def _number(packed: Bytes, before: int, behind: int) -> npt.NDArray[np.int64]:
    """The digits of each row as one number."""
    found = np.zeros(len(packed), np.int64)
    at = 0
    for size, count in (*_groups(before, leading=True), *_groups(behind, leading=False)):
        part = np.zeros(len(packed), np.int64)
        for _ in range(size):
            part, at = part << 8 | packed[:, at], at + 1
        found = found * 10**count + part
    return found


def _digits(data: bytes | bytearray, count: int, *, leading: bool) -> str:
    found, at = "", 0
    for size, digits in _groups(count, leading=leading):
        found += str(int.from_bytes(data[at : at + size])).zfill(digits)
        at += size
    return found


def _groups(count: int, *, leading: bool) -> list[tuple[int, int]]:
    """The bytes and the digits of each group; the smaller group is the first one before the point
    and the last one after it.
    """
    groups, rest = divmod(count, _GROUP_DIGITS)
    whole = [(_GROUP_BYTES, _GROUP_DIGITS)] * groups
    if not rest:
        return whole
    part = [(sum(decimal_bytes(rest, 0)), rest)]
    return part + whole if leading else whole + part


@dataclass(frozen=True)
class Moments:
    """Dates, or dates with times, of one column, by their parts.

    Attributes:
        micros: The microseconds since midnight.
        digits: The digits of the fraction.
    """

    nulls: Flags
    years: Numbers
    months: Numbers
    days: Numbers
    micros: Numbers
    digits: int
    has_time: bool

    @classmethod
    def of(cls, values: Values, kind: LoggedType) -> Moments:
        """Decode values of any type with a date."""
        digits = kind.meta[0] if kind.meta else 0
        if kind.code in (TIMESTAMP, OLD_TIMESTAMP):
            return cls._of_instants(values, kind, digits)
        begins = np.where(values.nulls, 0, values.begins)
        if kind.code in (DATE, NEWDATE):
            packed = little(values.content, begins, 3)
            nothing = np.zeros(len(values), np.int64)
            return cls(values.nulls, packed >> 9, packed >> 5 & 15, packed & 31, nothing, 0, False)
        if kind.code == OLD_DATETIME:
            number = little(values.content, begins, 8)
            date, time = number // 1_000_000, number % 1_000_000
            micros = _micros(time // 10_000, time // 100 % 100, time % 100)
            return cls(values.nulls, date // 10_000, date // 100 % 100, date % 100, micros, 0, True)
        assert kind.code == DATETIME
        packed = _big(values, 0, 5) - (1 << 39)
        months, days = packed >> 22, packed >> 17 & 31
        micros = _micros(packed >> 12 & 31, packed >> 6 & 63, packed & 63)
        micros = micros + _fraction(values, 5, digits)
        return cls(values.nulls, months // 13, months % 13, days, micros, digits, True)

    @classmethod
    def _of_instants(cls, values: Values, kind: LoggedType, digits: int) -> Moments:
        if kind.code == OLD_TIMESTAMP:
            seconds = little(values.content, np.where(values.nulls, 0, values.begins), 4)
            fraction = np.zeros(len(values), np.int64)
        else:
            seconds, fraction = _big(values, 0, 4), _fraction(values, 4, digits)
        dates = (seconds // 86_400).astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        parts = (
            months.astype("datetime64[Y]").astype(np.int64) + 1970,
            months.astype(np.int64) % 12 + 1,
            (dates - months).astype(np.int64) + 1,
            seconds % 86_400 * _SECOND,
        )
        # The server stores a date of zeros as the first second.
        year, month, day, micros = (np.where(seconds == 0, 0, each) for each in parts)
        return cls(values.nulls, year, month, day, micros + fraction, digits, True)

    def array(self, kind: pa.DataType) -> pa.Array:
        """The values as dates or timestamps; ValueError: one is not a day of the calendar."""
        leap = (self.years % 4 == 0) & ((self.years % 100 != 0) | (self.years % 400 == 0))
        lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0])
        longest = lengths[self.months] + (leap & (self.months == 2))
        wrong = ~self.nulls & ((self.years < 1) | (self.days < 1) | (self.days > longest))
        if wrong.any():
            text = self.take(np.flatnonzero(wrong)[:1]).texts()[0].as_py()
            raise ValueError(f"{text!r} is not a day")
        years, months = np.where(self.nulls, 1970, self.years), np.where(self.nulls, 1, self.months)
        firsts = ((years - 1970) * 12 + months - 1).astype("datetime64[M]").astype("datetime64[D]")
        days = firsts.astype(np.int64) + self.days - 1
        if pa.types.is_date(kind):
            return pa.array(days.astype(np.int32), pa.int32(), mask=self.nulls).view(pa.date32())
        micros = pa.array(days * _DAY + self.micros, pa.int64(), mask=self.nulls)
        return micros.view(pa.timestamp("us")).cast(kind)

    def take(self, rows: Numbers) -> Moments:
        """The values of some rows."""
        years, months, days, micros = (
            each[rows] for each in (self.years, self.months, self.days, self.micros)
        )
        return Moments(self.nulls[rows], years, months, days, micros, self.digits, self.has_time)

    def texts(self) -> pa.Array:
        """The values as the server writes them."""
        date = _joined("-", (self.years, 4), (self.months, 2), (self.days, 2))
        if self.has_time:
            date = pc.binary_join_element_wise(date, clock_texts(self.micros, self.digits), " ")
        return pc.if_else(pa.array(self.nulls), None, date)


def times(values: Values, kind: LoggedType) -> pa.Array:
    """Times of a day, or spans of up to 838 hours, as the server writes them."""
    digits = kind.meta[0] if kind.meta else 0
    if kind.code == OLD_TIME:
        number = little(values.content, np.where(values.nulls, 0, values.begins), 3)
        number = np.where(number >= 1 << 23, number - (1 << 24), number)
        size, negative = np.abs(number), number < 0
        micros = _micros(size // 10_000, size // 100 % 100, size % 100)
    else:
        more = (digits + 1) // 2
        number = _big(values, 0, 3 + more) - (1 << (23 + 8 * more))
        size, negative = np.abs(number), number < 0
        whole, fraction = size >> 8 * more, size & ((1 << 8 * more) - 1)
        micros = _micros(whole >> 12 & 1023, whole >> 6 & 63, whole & 63)
        micros = micros + fraction * 10 ** (6 - 2 * more)
    texts = clock_texts(micros, digits)
    signed = pc.binary_join_element_wise(pc.if_else(pa.array(negative), "-", ""), texts, "")
    return pc.if_else(pa.array(values.nulls), None, signed)


def clock_texts(micros: Numbers, digits: int) -> pa.Array:
    """Hours, minutes, seconds and a fraction of this many digits."""
    seconds, fraction = micros // _SECOND, micros % _SECOND
    clock = _joined(":", (seconds // 3600, 2), (seconds // 60 % 60, 2), (seconds % 60, 2))
    if not digits:
        return clock
    return pc.binary_join_element_wise(clock, _padded(fraction // 10 ** (6 - digits), digits), ".")


def _micros(hours: Numbers, minutes: Numbers, seconds: Numbers) -> Numbers:
    return ((hours * 60 + minutes) * 60 + seconds) * _SECOND


def _big(values: Values, offset: int, size: int) -> Numbers:
    """The unsigned number of some bytes of each value, the highest first."""
    begins = np.where(values.nulls, 0, values.begins) + offset
    found = np.zeros(len(values), np.int64)
    for each in range(size):
        found = found << 8 | values.content[begins + each]
    return found


def _fraction(values: Values, offset: int, digits: int) -> Numbers:
    """The fraction of a second in microseconds; it is stored with two digits a byte."""
    size = (digits + 1) // 2
    scale: int = 10 ** (6 - 2 * size)
    return _big(values, offset, size) * scale


def _joined(sign: str, *parts: tuple[Numbers, int]) -> pa.Array:
    return pc.binary_join_element_wise(*(_padded(number, width) for number, width in parts), sign)


def _padded(number: Numbers, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(number).cast(pa.string()), width, "0")


def json_text(data: bytes) -> str:
    """The text of a value; ValueError, IndexError or struct.error: it is not one."""
    return _text(data[0], data, 1) if data else "null"


def _text(kind: int, data: bytes, at: int) -> str:
    if kind <= _LARGE_ARRAY:
        return _container(kind, data[at:])
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _DOUBLE:
        return double_text(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        size, at = _length(data, at)
        return _quoted(data[at : at + size].decode())
    if kind == _OPAQUE:
        size, start = _length(data, at + 1)
        return _opaque(data[at], data[start : start + size])
    raise ValueError(f"a value of type {kind}")


def _container(kind: int, data: bytes) -> str:
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    width, number = (4, "<I") if large else (2, "<H")
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    (count,) = struct.unpack_from(number, data)
    at = 2 * width
    names = []
    if is_object:
        for each in range(count):
            (begin,) = struct.unpack_from(number, data, at + each * (width + 2))
            (size,) = struct.unpack_from("<H", data, at + each * (width + 2) + width)
            names.append(_quoted(data[begin : begin + size].decode()))
        at += count * (width + 2)
    values = []
    for each in range(count):
        start = at + each * (width + 1)
        inner = data[start]
        place = start + 1
        if not _INLINE.get(inner, (0, 0))[large]:
            (place,) = struct.unpack_from(number, data, place)
        values.append(_text(inner, data, place))
    if not is_object:
        return f"[{', '.join(values)}]"
    members = (f"{name}: {value}" for name, value in zip(names, values, strict=True))
    return f"{{{', '.join(members)}}}"


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length of seven bits a byte, the lowest first, and where it ends."""
    size = shift = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return size, at


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def double_text(value: float) -> str:
    """A double with the fewest digits that parse to it, as the server writes it in JSON."""
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    # Where the point is, counted from the first digit.
    point = len(figures) + exponent
    before = "-" if sign else ""
    if -_DIGITS_WITHOUT_EXPONENT < point <= _DIGITS_WITHOUT_EXPONENT:
        if point <= 0:
            return f"{before}0.{'0' * -point}{figures}"
        return f"{before}{figures[:point].ljust(point, '0')}.{figures[point:] or '0'}"
    fraction = f".{figures[1:]}" if len(figures) > 1 else ""
    return f"{before}{figures[0]}{fraction}e{point - 1}"


def _opaque(kind: int, data: bytes) -> str:
    if kind == _DECIMAL:
        return decimal_text(data[2:], data[0], data[1])
    if kind in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
        (packed,) = struct.unpack("<q", data)
        return f'"{_time(packed) if kind == _TIME else _moment(packed, date_only=kind == _DATE)}"'
    return f'"base64:type{kind}:{b64encode(data).decode()}"'


def _moment(packed: int, *, date_only: bool) -> str:
    whole, fraction = packed >> 24, packed & 0xFFFFFF
    days, seconds = whole >> 17, whole & 0x1FFFF
    months, day = days >> 5, days & 31
    date = f"{months // 13:04}-{months % 13:02}-{day:02}"
    if date_only:
        return date
    return f"{date} {seconds >> 12:02}:{seconds >> 6 & 63:02}:{seconds & 63:02}.{fraction:06}"


def _time(packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, fraction = packed >> 24, packed & 0xFFFFFF
    return f"{sign}{whole >> 12 & 0x3FF:02}:{whole >> 6 & 63:02}:{whole & 63:02}.{fraction:06}"
