"""MySQL's binary JSON as the text that the server converts it to.

See https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from decimal import Decimal

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
        if _INLINE.get(inner, (0, 0))[large]:
            values.append(_text(inner, data, start + 1))
        else:
            values.append(_text(inner, data, struct.unpack_from(number, data, start + 1)[0]))
    if is_object:
        return (
            "{"
            + ", ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
            + "}"
        )
    return f"[{', '.join(values)}]"


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
        from tap_spark_jdbc.binlog.decimals import decimal_text

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
