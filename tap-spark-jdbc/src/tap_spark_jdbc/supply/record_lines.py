"""Arrow batches as RECORD lines, and the fingerprints of rows at the boundaries of a run, by which
rows sent before are left out.

A line consists of columns of texts, joined by Arrow. Bytes come from the database in base64.

A fingerprint is taken of the row's RECORD line, with floating-point numbers as Java spells their
digits, so that the fingerprints saved by version 0.1.0 are still valid. Java 17 and 18 print more
digits of some large numbers than they need, so such a row is looked for in both spellings.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Self

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
from tap_spark_jdbc.supply.columnar_query import writing

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.fingerprints import Frame
    from tap_spark_jdbc.supply.slice_prefetch import LineFile

# Selects the rows of a batch, with the boundary of each, that belong in a file.
Unsent = Callable[[pa.RecordBatch, pa.Array], pa.RecordBatch]
# The characters that are not allowed in JSON text, escaped as Jackson does; the backslash comes
# first, as the others contain it.
SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
CONTROLS = {chr(code): f"\\u{code:04X}" for code in range(0x20) if chr(code) not in SHORT}
_ESCAPED = str.maketrans(SHORT | CONTROLS)
# Numbers below the first or from the second on are spelled with an exponent; both are given as the
# place of the point among the digits.
_LEAST_POINT, _MOST_POINT = -3, 7
# Java 17 prints a whole number below this by its own digits.
_MOST_BITS = 63
_BOUNDARY = (1 << BOUNDARY_BITS) - 1


class RecordLines:
    """A file of lines; it is created at the latest when it is closed.

    Attributes:
        rows: Number of rows written so far.
    """

    def __init__(self, opened: Callable[[], LineFile], frame: Frame, unsent: Unsent) -> None:
        """Nothing is written yet.

        `unsent` selects a batch's rows that belong in the file, as `BoundaryRows` does.
        """
        self._prefix, self._end = frame.prefix.decode(), f"{frame.suffix.decode()}\n"
        self._unsent = unsent
        self._open = opened
        self._file: LineFile | None = None
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the file, whatever became of it."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def add(self, read: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, boundary)
        if rows.num_rows:
            self.rows += rows.num_rows
            lines = rendered(rows, self._prefix, self._end)
            with writing():
                self._opened().write(joined_text(lines))

    def close(self) -> int:
        """As `Sink.close`; without rows the file is empty."""
        with writing():
            self._opened().close()
        return self.rows

    def _opened(self) -> LineFile:
        if self._file is None:
            self._file = self._open()
        return self._file


def rendered(
    rows: pa.RecordBatch,
    prefix: str,
    end: str,
    numbers: Callable[[pa.Array], pa.Array] | None = None,
) -> pa.Array:
    """The line of each row; `numbers` spells finite floating-point numbers, else Arrow."""
    parts: list[pa.Array | str] = []
    literal = f"{prefix}{{"
    for position, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        before, texts, after = _texts(column, numbers or _with_point)
        literal += f"{',' if position else ''}{text(name)}:"
        if column.null_count and before:
            before, texts, after = "", pc.binary_join_element_wise(before, texts, after, ""), ""
        parts += [literal + before, texts]
        literal = after
    return pc.binary_join_element_wise(
        *parts, f"{literal}}}{end}", "", null_handling="replace", null_replacement="null"
    )


def joined_text(lines: pa.Array) -> memoryview:
    """All texts of an array, concatenated as in its buffer."""
    if not len(lines):
        return memoryview(b"")
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q" if pa.types.is_large_string(lines.type) else "i")
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    return memoryview(data)[first:last] if last > first else memoryview(b"")


def text(value: str) -> str:
    """A text as a JSON string."""
    return f'"{value.translate(_ESCAPED)}"'


def _texts(column: pa.Array, numbers: Callable[[pa.Array], pa.Array]) -> tuple[str, pa.Array, str]:
    """The text of each value, with the JSON before and after it."""
    kind = column.type
    if pa.types.is_string(kind):
        return '"', _escaped(column), '"'
    if pa.types.is_timestamp(kind):
        texts = column.cast(pa.timestamp("us")).cast(pa.string())
        return '"', pc.binary_replace_slice(texts, 10, 11, "T"), '"' if kind.tz is None else 'Z"'
    if pa.types.is_date(kind):
        return '"', column.cast(pa.string()), '"'
    if pa.types.is_floating(kind):
        return "", _quoted_if_endless(numbers(column), column), ""
    if pa.types.is_list(kind):
        before, texts, after = _texts(column.values, numbers)
        values = pc.coalesce(pc.binary_join_element_wise(before, texts, after, ""), "null")
        lists = pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
        return "[", pc.binary_join(lists, ","), "]"
    if pa.types.is_binary(kind):
        encoded = [each and base64.b64encode(each).decode() for each in column.to_pylist()]
        return '"', pa.array(encoded, pa.string()), '"'
    return "", column.cast(pa.string()), ""


def _escaped(texts: pa.Array) -> pa.Array:
    if not _any(texts, r'[\x00-\x1f"\\]'):
        return texts
    for raw, written in SHORT.items():
        texts = pc.replace_substring(texts, raw, written)
    if _any(texts, r"[\x00-\x1f]"):
        for raw, written in CONTROLS.items():
            texts = pc.replace_substring(texts, raw, written)
    return texts


def _with_point(column: pa.Array) -> pa.Array:
    """Floats with a point or an exponent, as reading an integer loses a zero's sign."""
    texts = column.cast(pa.string())
    has_point = pc.match_substring_regex(texts, "[.en]")
    return pc.if_else(has_point, texts, pc.binary_join_element_wise(texts, ".0", ""))


def _quoted_if_endless(texts: pa.Array, column: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(column), min_count=0).as_py():
        return texts
    endless = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    return pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.is_inf(column)), pa.scalar('"NaN"'), endless, texts
    )


def _any(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


class BoundaryRows:
    """The rows of one slice at the boundaries.

    Attributes:
        at_bookmark: Fingerprints of the rows at the bookmark, as known if sent before.
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
        others: Iterable[bytes | None] = repeat(None)
        if self._left and has_older(at_boundaries):
            others = fingerprints(at_boundaries, older=True)
        found = zip(boundary.filter(chosen).to_pylist(), hashes, others, strict=False)
        kept = iter([self._takes(*each) for each in found])
        unsent = [not at or next(kept) for at in chosen.to_pylist()]
        return rows.filter(pa.array(unsent, pa.bool_()))

    def found(self, rows: int, nulls: int) -> Found:
        """What was found in a slice of `rows` rows, of which `nulls` have no replication key."""
        return Found.of(
            self._look, rows, nulls, self.at_bookmark, self.at_upper, self.marks, self.unread
        )

    def _takes(self, boundary: int, hashed: bytes, other: bytes | None) -> bool:
        """Take note of a row, and return whether it is to be sent."""
        look, at, mark = self._look, boundary & _BOUNDARY, boundary >> BOUNDARY_BITS
        at_bookmark = look.bookmark and at in AT_BOOKMARK
        if at_bookmark and look.changed is not None and hashed[0] not in look.changed:
            self.unread += 1
            return False
        if look.upper and at in AT_UPPER:
            self.at_upper.append(hashed)
            self.marks[1].append(mark)
        if not at_bookmark:
            return True
        spellings = (each for each in (hashed, other) if each is not None)
        known = next((each for each in spellings if self._left[each.hex()] > 0), None)
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
    at = pc.utf8_slice_codeunits(boundary, 0, 1).cast(pa.int64())
    has_text = pc.greater(pc.utf8_length(boundary), 1)
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
    """Finite numbers as Java spells them: the shortest digits, an exponent from 10**7 on."""
    return _as_java(numbers.cast(pa.string()))


def _spelled_by_java_17(numbers: pa.Array) -> pa.Array:
    bits = 24 if pa.types.is_float32(numbers.type) else 53
    # No fraction is left in a number with more bits than these.
    large = pc.greater_equal(pc.abs(numbers.cast(pa.float64())), float(2**bits))
    if not pc.any(large, min_count=0).as_py():
        return _spelled(numbers)
    columns = (numbers, numbers.cast(pa.string()), large)
    texts = (
        _whole_digits(number, bits) or text if is_large else text
        for number, text, is_large in zip(*(each.to_pylist() for each in columns), strict=True)
    )
    return _as_java(pa.array(texts, pa.string()))


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


def _as_java(texts: pa.Array) -> pa.Array:
    """The texts of numbers, respelled; those of numbers that are not finite stay."""
    known = texts.dictionary_encode()
    spelled = pa.array(map(_respelled, known.dictionary.to_pylist()), pa.string())
    return pa.DictionaryArray.from_arrays(known.indices, spelled).dictionary_decode()


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
