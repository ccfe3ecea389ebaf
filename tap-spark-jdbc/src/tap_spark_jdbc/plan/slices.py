"""Slices: how one stream's rows are cut, by count and not by value, so that skewed keys cost nothing (plain Python).

A slice is a range of the replication key, below one upper bound that was fixed before reading. Bounds are found
lazily by hops on an index: the key that stands `rows` rows further on. Rows with equal keys are never cut apart by the
key; where they are too many for one slice they are cut along a second column, the first one of the primary key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

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
        nulls: The rows whose replication key is NULL belong to it too; without a range they alone.
        resume_at: Once this slice and all before it are sent, every row below this key is; None: nothing to say yet.
        late: The rows that were committed late (`StreamSql.late`), and nothing else.
    """

    key: Range[K] | None = None
    split: Range[K] | None = None
    nulls: bool = False
    resume_at: K | None = None
    late: bool = False


class BoundsSource(Protocol[K]):
    """What must be known of one column of the source to cut it. NULLs are never among its values."""

    def at(self, within: Range[K], offset: int) -> K | None:
        """The value `offset` rows behind the first row of the range, in the column's order; None behind its end."""

    def next_above(self, value: K, within: Range[K]) -> K | None:
        """The smallest value of the range that is greater than this one."""


def cut(bounds: BoundsSource[K], whole: Range[K], rows: Callable[[], int]) -> Iterator[tuple[Range[K], bool]]:
    """Cuts a range, lazily, into consecutive ones of about `rows()` rows that cover it without gap or overlap.

    Yields:
        Each part, and whether it is a single value with more rows than that.
    """
    first, rest = None, whole
    while (bound := bounds.at(rest, rows())) is not None:
        # Only what has more rows than one part needs its first value.
        first = bounds.at(rest, 0) if first is None else first
        heavy = bound == first
        if heavy:
            bound = bounds.next_above(bound, rest)
        if bound is None:
            yield rest, heavy
            return
        yield Range(rest.lower, bound, after=rest.after), heavy
        first, rest = bound, rest.from_(bound)
    yield rest, False


def indexed_slices(
    bounds: BoundsSource[K],
    whole: Range[K],
    rows: Callable[[], int],
    split: Callable[[Range[K]], BoundsSource[K]] | None = None,
) -> Iterator[Slice[K]]:
    """Cuts along an indexed replication key; a value with too many rows is cut along the split column.

    Args:
        bounds: The replication key.
        whole: From the bookmark to the upper bound of the run, which belongs to it.
        rows: Rows a slice; asked before each cut.
        split: The split column among the rows of a range of the replication key, if the table has one.
    """
    for part, heavy in cut(bounds, whole, rows):
        if heavy and split:
            yield from tie_slices(split(part), part, rows)
        else:
            yield Slice(part, resume_at=None if part.closed else part.upper)


def tie_slices(
    split: BoundsSource[K], part: Range[K], rows: Callable[[], int], begin: K | None = None
) -> Iterator[Slice[K]]:
    """Cuts rows that the replication key can't tell apart along the split column.

    Args:
        split: The split column among them.
        part: Their range of the replication key.
        rows: Rows a slice; asked before each cut.
        begin: The first value of the split column; None for all of them.
    """
    resume_at = None if part.closed else part.upper
    for piece, _ in cut(split, Range(begin), rows):
        yield Slice(part, piece, resume_at=resume_at if piece.upper is None else None)


def split_slices(
    split: BoundsSource[K] | None,
    rows: Callable[[], int],
    key: Range[K] | None = None,
    *,
    nulls: bool = False,
    begin: K | None = None,
) -> Iterator[Slice[K]]:
    """Cuts along the split column alone, so that all slices together cost one pass; no bookmark before the last.

    Args:
        split: The split column; None for one slice of everything.
        rows: Rows of the table a slice; asked before each cut.
        key: Range of the replication key that all slices share, if there is one.
        nulls: Rows whose replication key is NULL belong to them too.
        begin: The first value of the split column; None for all of them.
    """
    if split is None:
        yield Slice(key, nulls=nulls)
        return
    for part, _ in cut(split, Range(begin), rows):
        yield Slice(key, None if part == Range() else part, nulls)


def joined(slices: Sequence[Slice[K]], at_most: int) -> list[Slice[K]]:
    """Neighbours of `split_slices` made one, so that there are no more than so many."""
    size = -(-len(slices) // at_most)
    found = []
    for first in range(0, len(slices), size):
        low, high = slices[first], slices[min(first + size, len(slices)) - 1]
        if low.split is None or high.split is None:
            found.append(low)
            continue
        whole = Range(low.split.lower, high.split.upper, closed=high.split.closed, after=low.split.after)
        found.append(replace(low, split=whole))
    return found
