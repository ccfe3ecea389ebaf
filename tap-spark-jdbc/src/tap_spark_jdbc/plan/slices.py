"""Slices: a stream's rows are cut by count, not by value, so that skewed keys cost nothing (plain
Python).

A slice is a range of the replication key, below an upper bound that was fixed before reading.
Bounds are found lazily by hops on an index: to the key `rows` rows further on. Rows with equal keys
are never separated by the key; if there are too many for one slice, they are cut along a second
column, the first one of the primary key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode

K = TypeVar("K")


@dataclass(frozen=True)
class Range(Generic[K]):
    """Values of one column, by the database's order.

    Attributes:
        lower: Inclusive unless `after`; None for no bound.
        upper: Exclusive unless `closed`; None for no bound.
        closed: The upper bound belongs to the range.
        after: The lower bound does not belong to the range.
    """

    lower: K | None = None
    upper: K | None = None
    closed: bool = False
    after: bool = False

    def from_(self, lower: K) -> Range[K]:
        """The part of this range that begins here."""
        return Range(lower, self.upper, self.closed)


@dataclass(frozen=True)
class Slice(Generic[K]):
    """One unit of reading, of memory and of STATE.

    Attributes:
        key: Range of the replication key; None where the key bounds nothing.
        split: Range of the split column; None where it bounds nothing.
        nulls: Rows whose replication key is NULL belong to it too; without a range, only they do.
        resume_at: Once this slice and all before it are sent, every row below this key is sent;
            None: not yet known.
        late: It has the rows that were committed late (`StreamSql.late`), and no others.
        pages: Range of the table's physical pages, within one snapshot; None: all of them.
        most: Its maximum number of rows when it was cut; None: unknown.
    """

    key: Range[K] | None = None
    split: Range[K] | None = None
    nulls: bool = False
    resume_at: K | None = None
    late: bool = False
    pages: Range[int] | None = None
    most: int | None = field(default=None, compare=False)


class BoundsSource(Protocol[K]):
    """The values of one source column, as needed to cut along it. NULLs are never among them."""

    def at(self, within: Range[K], offset: int) -> K | None:
        """The value `offset` rows after the range's first, in the column's order; None: its end."""

    def next_above(self, value: K, within: Range[K]) -> K | None:
        """The smallest value of the range that is greater than this one."""


def cut(
    bounds: BoundsSource[K], whole: Range[K], rows: Callable[[], int]
) -> Iterator[tuple[Range[K], int | None]]:
    """Cut a range lazily into consecutive ones of about `rows()` rows that cover it without gap or
    overlap.

    Yields:
        Each part, and the most rows it may have; None: it is a single value with more rows than
        that.

    Raises:
        SourceError: the column's values are not in the order of its bounds.
    """
    first, rest, cuts, marked = None, whole, 0, None
    while (bound := bounds.at(rest, most := rows())) is not None:
        # The first value is only needed if there is more than one part.
        first = bounds.at(rest, 0) if first is None else first
        heavy = bound == first
        if heavy:
            bound = bounds.next_above(bound, rest)
        if bound is None:
            yield rest, None
            return
        # A repeated bound would be found forever.
        if bound == marked:
            raise SourceError(
                TapCode.SLICES_REPEAT,
                f"the bounds of slices repeat: {bound!r} is followed by {bound!r} again",
            )
        cuts += 1
        marked = bound if cuts & (cuts - 1) == 0 else marked
        yield Range(rest.lower, bound, after=rest.after), None if heavy else most
        first, rest = bound, rest.from_(bound)
    yield rest, most


def indexed_slices(
    bounds: BoundsSource[K],
    whole: Range[K],
    rows: Callable[[], int],
    split: Callable[[Range[K]], BoundsSource[K]] | None = None,
) -> Iterator[Slice[K]]:
    """Cut along an indexed replication key, and a value with too many rows by `split`, if given."""
    for part, most in cut(bounds, whole, rows):
        if most is None and split:
            yield from tie_slices(split(part), part, rows)
        else:
            yield Slice(part, resume_at=None if part.closed else part.upper, most=most)


def tie_slices(
    split: BoundsSource[K], part: Range[K], rows: Callable[[], int], begin: K | None = None
) -> Iterator[Slice[K]]:
    """Cut rows that the replication key can't distinguish, in `part`, along the split column, from
    `begin` on.
    """
    resume_at = None if part.closed else part.upper
    for piece, most in cut(split, Range(begin), rows):
        yield Slice(part, piece, resume_at=resume_at if piece.upper is None else None, most=most)


def split_slices(
    split: BoundsSource[K] | None,
    rows: Callable[[], int],
    key: Range[K] | None = None,
    *,
    nulls: bool = False,
    begin: K | None = None,
) -> Iterator[Slice[K]]:
    """Cut along the split column alone, so that all slices together cost one pass.

    There is no bookmark before the last slice. Without a split column there is one slice. All
    slices have the same range of the replication key, if any, and with `nulls` the rows whose key
    is NULL.
    """
    if split is None:
        yield Slice(key, nulls=nulls)
        return
    for part, most in cut(split, Range(begin), rows):
        yield Slice(key, None if part == Range() else part, nulls, most=most)


def page_slices(pages: int, most: int, at_least: int) -> Iterator[Slice[K]]:
    """Cut a table into at least `at_least` slices of at most `most` physical pages.

    The last one is open: the table may have grown since its pages were counted.
    """
    count = max(-(-pages // most), min(at_least, pages), 1)
    bounds = [None, *(pages * number // count for number in range(1, count)), None]
    for lower, upper in pairwise(bounds):
        yield Slice(pages=Range(lower, upper))


def joined(slices: Sequence[Slice[K]], at_most: int) -> list[Slice[K]]:
    """Neighbouring slices of `split_slices` joined, so that there are at most `at_most`."""
    size = -(-len(slices) // at_most)
    found = []
    for first in range(0, len(slices), size):
        low, high = slices[first], slices[min(first + size, len(slices)) - 1]
        if low.split is None or high.split is None:
            found.append(low)
            continue
        whole = Range(
            low.split.lower, high.split.upper, closed=high.split.closed, after=low.split.after
        )
        found.append(replace(low, split=whole, most=None))
    return found
