"""Iceberg's `bucket` and `truncate` as Spark expressions: `bucket_hash` for Spark, without Iceberg's jar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

_LOW = 0xFFFFFFFF
_FIRST, _SECOND = 0xCC9E2D51, 0x1B873593


def bucketed(value: Column, kind: str, buckets: int) -> Column:
    """The number of the value's bucket; NULL for NULL."""
    hashed = _hash_of_text(value) if kind == "string" else _hash_of_number(_as_number(value, kind))
    return F.when(value.isNotNull(), F.pmod(hashed.bitwiseAND(F.lit(0x7FFFFFFF)), F.lit(buckets)))


def truncated(value: Column, kind: str, width: int) -> Column:
    """The first letters of a text; of an integer the greatest multiple of the width that is not greater."""
    return F.substring(value, 1, width) if kind == "string" else value - F.pmod(value, F.lit(width))


def _as_number(value: Column, kind: str) -> Column:
    if kind == "date":
        return F.unix_date(value).cast("bigint")
    # The session's zone is UTC.
    return F.unix_micros(value.cast("timestamp")) if kind.startswith("timestamp") else value.cast("bigint")


def _hash_of_number(value: Column) -> Column:
    low, high = value.bitwiseAND(F.lit(_LOW)), F.shiftrightunsigned(value, 32)
    return _ended(_mixed(_mixed(F.lit(0).cast("bigint"), low), high), F.lit(8))


def _hash_of_text(value: Column) -> Column:
    digits, length = F.hex(F.encode(value, "UTF-8")), F.octet_length(value)
    blocks = F.floor(length / 4).cast("int")
    whole = F.aggregate(
        F.when(blocks > 0, F.sequence(F.lit(0), blocks - 1)).otherwise(F.array().cast("array<int>")),
        F.lit(0).cast("bigint"),
        lambda found, number: _mixed(found, _block(digits, number)),
    )
    # Without remaining bytes it is 0, whose scrambling is 0.
    rest = F.rpad(F.substring(digits, blocks * 8 + 1, F.lit(8)), 8, "0")
    return _ended(whole.bitwiseXOR(_scrambled(_block(rest, F.lit(0)))), length)


def _block(digits: Column, number: Column) -> Column:
    """Four bytes as a little-endian number."""
    pairs = (F.substring(digits, number * 8 + 7 - 2 * each, F.lit(2)) for each in range(4))
    return F.conv(F.concat(*pairs), 16, 10).cast("bigint")


def _bound(value: Column, made: Callable[[Column], Column]) -> Column:
    """Apply a function to a value that is computed only once, however often the function uses it."""
    return F.element_at(F.transform(F.array(value), made), 1)


def _times(value: Column, factor: int) -> Column:
    """The lowest 32 bits of a product, with intermediate results within 64 bits."""

    def product(each: Column) -> Column:
        high = (F.shiftright(each, 16) * F.lit(factor)).bitwiseAND(F.lit(0xFFFF))
        return (F.shiftleft(high, 16) + each.bitwiseAND(F.lit(0xFFFF)) * F.lit(factor)).bitwiseAND(F.lit(_LOW))

    return _bound(value, product)


def _rotated(value: Column, by: int) -> Column:
    return _bound(
        value, lambda each: F.shiftleft(each, by).bitwiseOR(F.shiftright(each, 32 - by)).bitwiseAND(F.lit(_LOW))
    )


def _folded(value: Column, by: int) -> Column:
    return _bound(value, lambda each: each.bitwiseXOR(F.shiftright(each, by)))


def _scrambled(block: Column) -> Column:
    return _times(_rotated(_times(block, _FIRST), 15), _SECOND)


def _mixed(found: Column, block: Column) -> Column:
    mixed = _rotated(found.bitwiseXOR(_scrambled(block)), 13)
    return (mixed * 5 + F.lit(0xE6546B64)).bitwiseAND(F.lit(_LOW))


def _ended(found: Column, length: Column) -> Column:
    found = found.bitwiseXOR(length.cast("bigint"))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = _times(_folded(found, shift), factor)
    return _folded(found, 16)
