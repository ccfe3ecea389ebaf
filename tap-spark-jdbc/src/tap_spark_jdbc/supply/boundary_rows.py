"""Rows at the boundaries of a run: fingerprints, by which rows sent before are left out.

A fingerprint is taken of the row's RECORD line, with floating-point numbers as Java spells their
digits, so that the fingerprints saved by version 0.1.0 are still valid. Java 17 and 18 print more
digits of some large numbers than they need, so such a row is looked for in both spellings.
"""

from __future__ import annotations

from collections import Counter
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.extract.fingerprints import Found, Look, fingerprint
from tap_spark_jdbc.plan.stream_sql import (
    AT_BOOKMARK,
    AT_UPPER,
    BOUNDARY_BITS,
    FINGERPRINTED,
    mark_of,
)
from tap_spark_jdbc.supply.record_lines import rendered

# Numbers below the first or from the second on are spelled with an exponent; both are given as the
# place of the point among the digits.
_LEAST_POINT, _MOST_POINT = -3, 7
# Java 17 prints a whole number below this by its own digits.
_MOST_BITS = 63
_BOUNDARY = (1 << BOUNDARY_BITS) - 1


class BoundaryRows:
    """The rows of one slice at the boundaries.

    Attributes:
        at_bookmark: Fingerprints of the rows at the bookmark, in order, as they are known if they
            were sent before.
        at_upper: Fingerprints of those at the upper bound.
        marks: The marks of both.
        unread: Number of rows that are in none of the changed buckets, and don't count as read.
    """

    def __init__(self, look: Look, sent: Counter[str]) -> None:
        """No rows yet.

        `sent` counts the rows that were sent at the bookmark, by their fingerprints in hexadecimal.
        """
        self._look = look
        self._left = sent.copy()
        self.at_bookmark: list[bytes] = []
        self.at_upper: list[bytes] = []
        self.marks: tuple[list[int], list[int]] = ([], [])
        self.unread = 0

    def unsent(self, rows: pa.RecordBatch, boundary: pa.Array) -> pa.RecordBatch:
        """The rows, given the boundary of each, without those sent before at the bookmark."""
        chosen = pc.is_in(boundary_of(boundary), pa.array(FINGERPRINTED, pa.int64()))
        if not (self._look.upper or self._look.bookmark) or not pc.any(chosen).as_py():
            return rows
        at_boundaries = rows.filter(chosen)
        hashes = fingerprints(at_boundaries, older=self._look.older)
        # Few numbers have two spellings, so both are only tried where it matters.
        others = (
            fingerprints(at_boundaries, older=True)
            if self._left and has_older(at_boundaries)
            else repeat(None)
        )
        kept = iter(
            [
                self._takes(*each)
                for each in zip(boundary.filter(chosen).to_pylist(), hashes, others, strict=False)
            ]
        )
        return rows.filter(
            pa.array([not at or next(kept) for at in chosen.to_pylist()], pa.bool_())
        )

    def found(self, rows: int, nulls: int) -> Found:
        """What was found in a slice of this many rows, of which this many have no replication
        key.
        """
        return Found.of(
            self._look, rows, nulls, self.at_bookmark, self.at_upper, self.marks, self.unread
        )

    def _takes(self, boundary: int, hashed: bytes, other: bytes | None) -> bool:
        """Take note of a row, and return whether it is to be sent."""
        look, at, mark = self._look, boundary & _BOUNDARY, boundary >> BOUNDARY_BITS
        if (
            look.bookmark
            and at in AT_BOOKMARK
            and look.changed is not None
            and hashed[0] not in look.changed
        ):
            self.unread += 1
            return False
        if look.upper and at in AT_UPPER:
            self.at_upper.append(hashed)
            self.marks[1].append(mark)
        if not look.bookmark or at not in AT_BOOKMARK:
            return True
        known = next(
            (each for each in (hashed, other) if each is not None and self._left[each.hex()] > 0),
            None,
        )
        self.at_bookmark.append(hashed if known is None else known)
        self.marks[0].append(mark)
        if known is not None:
            self._left[known.hex()] -= 1
        return known is None


def boundary_of(boundary: pa.Array) -> pa.Array:
    """The boundaries without marks."""
    return pc.bit_wise_and(boundary, _BOUNDARY)


def numbered(boundary: pa.Array) -> pa.Array:
    """Boundaries with their marks as numbers, where the database gives texts or numbers."""
    if not pa.types.is_string(boundary.type):
        return boundary.cast(pa.int64())
    at, has_text = (
        pc.utf8_slice_codeunits(boundary, 0, 1).cast(pa.int64()),
        pc.greater(pc.utf8_length(boundary), 1),
    )
    if not pc.any(has_text).as_py():
        return at
    marked = [
        int(each[0]) | mark_of(each[1:]) << BOUNDARY_BITS
        for each in boundary.filter(has_text).to_pylist()
    ]
    return pc.replace_with_mask(at, has_text, pa.array(marked, pa.int64()))


def fingerprints(rows: pa.RecordBatch, *, older: bool = False) -> list[bytes]:
    """The fingerprint of each row; `older`: with numbers as Java 17 and 18 print them."""
    spelled = _spelled_by_java_17 if older else _spelled
    return [
        fingerprint(each) for each in rendered(rows, "", "", spelled).cast(pa.binary()).to_pylist()
    ]


def has_older(rows: pa.RecordBatch) -> bool:
    """Whether a number in these rows has another spelling in Java 17."""
    columns = (found for each in rows.columns if (found := _numbers(each)) is not None)
    return not all(_spelled(each).equals(_spelled_by_java_17(each)) for each in columns)


def _numbers(column: pa.Array) -> pa.Array | None:
    """The floating-point numbers of a column; None if it is of another type."""
    if pa.types.is_list(column.type):
        return _numbers(column.flatten())
    return column if pa.types.is_floating(column.type) else None


def _spelled(numbers: pa.Array) -> pa.Array:
    """Finite numbers as Java spells them: their shortest digits, with an exponent beyond 10 to the
    7th.
    """
    return _each(numbers, numbers.cast(pa.string()))


def _spelled_by_java_17(numbers: pa.Array) -> pa.Array:
    bits = 24 if pa.types.is_float32(numbers.type) else 53
    # No fraction is left in a number with more bits than these.
    large = pc.greater_equal(pc.abs(numbers.cast(pa.float64())), float(2**bits))
    if not pc.any(large, min_count=0).as_py():
        return _spelled(numbers)
    found = zip(
        numbers.to_pylist(), numbers.cast(pa.string()).to_pylist(), large.to_pylist(), strict=True
    )
    texts = (
        _whole_digits(number, bits) or text if is_large else text
        for number, text, is_large in found
    )
    return _each(numbers, pa.array(texts, pa.string()))


def _whole_digits(number: float, bits: int) -> str | None:
    """The digits with which Java 17 prints a large whole number of this many significant bits;
    None: the same as other versions.
    """
    if not abs(number) < 2.0**_MOST_BITS:
        return None
    whole = abs(int(number))
    surplus = whole.bit_length() - bits - 2
    dropped = len(str(1 << surplus)) - 1 if surplus > 1 else 0
    rounded = (whole + (10**dropped // 2 if dropped else 0)) // 10**dropped * 10**dropped
    return f"{'-' if number < 0 else ''}{rounded}"


def _each(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of numbers, respelled; those of numbers that are not finite stay."""
    known = texts.dictionary_encode()
    spelled = [_respelled(each) for each in known.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(
        known.indices, pa.array(spelled, pa.string())
    ).dictionary_decode()


def _respelled(text: str) -> str:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if not digits[0].isdigit():
        return text
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    all_digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(all_digits))
    all_digits = all_digits.rstrip("0")
    if not all_digits:
        return f"{sign}0.0"
    if _LEAST_POINT < point <= 0:
        return f"{sign}0.{'0' * -point}{all_digits}"
    if 0 < point <= _MOST_POINT:
        return f"{sign}{all_digits[:point].ljust(point, '0')}.{all_digits[point:] or '0'}"
    return f"{sign}{all_digits[0]}.{all_digits[1:] or '0'}E{point - 1}"
