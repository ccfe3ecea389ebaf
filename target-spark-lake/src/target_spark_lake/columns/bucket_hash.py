"""Iceberg's `bucket` and `truncate` transforms for whole columns by Arrow.

Readers derive a row's partition by them.

The hash is Murmur3 (32 bits, x86, seed 0): of integers, dates and times as eight bytes, of text as
UTF-8.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_LOW = 0xFFFFFFFF
_FIRST, _SECOND = 0xCC9E2D51, 0x1B873593


def bucketed(values: pa.Array, buckets: int) -> pa.Array:
    """The number of each value's bucket; NULL for NULL."""
    hashed = _hash_of_text(values) if pa.types.is_string(values.type) else _hash_of_number(values)
    positive = pc.cast(pc.bit_wise_and(hashed, _uint(0x7FFFFFFF)), pa.int64())
    return pc.cast(_remainder(positive, buckets), pa.int32())


def truncated(values: pa.Array, width: int) -> pa.Array:
    """The first letters of each text.

    Of an integer (64 bits) the greatest multiple of the width that is not greater.

    Below the least multiple of the type it wraps around: `least_truncated`.
    """
    if pa.types.is_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, width)
    whole = pc.cast(values, pa.int64())
    rest = _remainder(pc.add(_remainder(whole, width), width), width)
    return pc.subtract(whole, rest)


def _remainder(numbers: pa.Array, by: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


def _uint(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())


def _hash_of_number(values: pa.Array) -> pa.Array:
    whole = pc.cast(values, pa.int32()) if pa.types.is_date(values.type) else values
    bits = pc.cast(whole, pa.int64()).view(pa.uint64())
    low = pc.cast(pc.bit_wise_and(bits, pa.scalar(_LOW, pa.uint64())), pa.uint32())
    high = pc.cast(pc.shift_right(bits, pa.scalar(32, pa.uint64())), pa.uint32())
    return _ended(
        _mixed(_mixed(_nothing(len(values)), low), high), pa.repeat(_uint(8), len(values))
    )


def _hash_of_text(values: pa.Array) -> pa.Array:
    data = pc.cast(values, pa.binary())
    lengths = pc.cast(pc.binary_length(data), pa.int64())
    found = _nothing(len(values))
    for start in range(0, pc.max(lengths).as_py() or 0, 4):
        block = _padded(pc.binary_slice(data, start, start + 4))
        whole, begun = pc.greater_equal(lengths, start + 4), pc.greater(lengths, start)
        rest = pc.bit_wise_xor(found, _scrambled(block))
        found = pc.if_else(whole, _mixed(found, block), pc.if_else(begun, rest, found))
    return _ended(found, pc.cast(lengths, pa.uint32()))


def _padded(pieces: pa.Array) -> pa.Array:
    """Up to four bytes as a number."""
    four = pc.binary_slice(pc.binary_join_element_wise(pieces, b"\0\0\0\0", b""), 0, 4)
    return pc.cast(pc.fill_null(four, b"\0\0\0\0"), pa.binary(4)).view(pa.uint32())


def _nothing(length: int) -> pa.Array:
    return pa.repeat(_uint(0), length)


def _rotated(values: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(values, _uint(by)), pc.shift_right(values, _uint(32 - by)))


def _scrambled(block: pa.Array) -> pa.Array:
    return pc.multiply(_rotated(pc.multiply(block, _uint(_FIRST)), 15), _uint(_SECOND))


def _mixed(found: pa.Array, block: pa.Array) -> pa.Array:
    mixed = _rotated(pc.bit_wise_xor(found, _scrambled(block)), 13)
    return pc.add(pc.multiply(mixed, _uint(5)), _uint(0xE6546B64))


def _ended(found: pa.Array, lengths: pa.Array) -> pa.Array:
    """The final mix, which also makes the hash of NULL a NULL."""
    found = pc.bit_wise_xor(found, lengths)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = pc.multiply(
            pc.bit_wise_xor(found, pc.shift_right(found, _uint(shift))), _uint(factor)
        )
    return pc.bit_wise_xor(found, pc.shift_right(found, _uint(16)))
