"""Packed decimals: nine digits in four bytes, the rest in fewer. The first bit is inverted, and so
are all bits of negative numbers.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tap_spark_jdbc.binlog.table_map import decimal_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from tap_spark_jdbc.binlog.events import Bytes
    from tap_spark_jdbc.binlog.row_images import Values

# A number of this many digits fits into 64 bits.
_SMALL_DIGITS = 18
_MOST_DIGITS = 38
_GROUP_DIGITS, _GROUP_BYTES = 9, 4


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
