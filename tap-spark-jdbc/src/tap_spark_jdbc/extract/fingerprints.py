"""Fingerprints of the rows at a run's boundaries, by which rows sent before are recognised (plain
Python).

A fingerprint is taken of a record's bytes, so a row that changed in any column is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from singer_spark.core.bookmark import BUCKETS, HASH_CHARACTERS, MAX_WINDOW_HASHES, Boundary

Sums = dict[int, tuple[int, int]]
"""(rows, sum of fingerprints) by bucket."""
WindowSums = tuple[Sums, Sums]
"""Sums of all rows in the bookmark's window, and of those that are also in the window of the upper
bound.
"""
_BYTES = HASH_CHARACTERS // 2


@dataclass(frozen=True)
class Look:
    """Which rows of a slice need a second look: those in the bookmark's window, those in the next
    window, and those without replication key.

    Attributes:
        changed: There are too many rows at the bookmark for single fingerprints, and these buckets
            have changed: only
            their rows are sent.
        older: The fingerprints at the bookmark were taken of numbers as Java 17 prints them, so new
            ones are taken in the same way.
    """

    bookmark: bool
    upper: bool
    nulls: bool
    changed: frozenset[int] | None = None
    older: bool = False


@dataclass(frozen=True)
class Found:
    """What was read of a slice: its rows, those without key, and the fingerprints of the rows at
    both boundaries.

    Attributes:
        marks: The marks of the rows at both boundaries, 0 for a row that has none
            (`plan.row_marks`).
    """

    rows: int
    nulls: int = 0
    at_bookmark: Iterable[bytes] = ()
    at_upper: Iterable[bytes] = ()
    marks: tuple[Iterable[int], Iterable[int]] = ((), ())

    @classmethod
    def of(
        cls,
        look: Look,
        read: int,
        nulls: int,
        at_bookmark: Iterable[bytes],
        at_upper: Iterable[bytes],
        marks: tuple[Iterable[int], Iterable[int]],
        unread: int,
    ) -> Found:
        """What was found in a slice of `rows` rows, `unread` of which don't count, and `nulls`
        without replication key.
        """
        return cls(
            read - unread, nulls if look.nulls else 0, tuple(at_bookmark), tuple(at_upper), marks
        )


@dataclass(frozen=True)
class Frame:
    """The bytes around a stream's records in its RECORD lines, without newline."""

    prefix: bytes
    suffix: bytes


class BoundaryBuilder:
    """Collects fingerprints in constant memory."""

    def __init__(self) -> None:
        self.rows = 0
        self._single = True
        self._hashes: list[str] = []
        self._sums = [0] * BUCKETS
        self._marked = self._mark_sum = 0

    def add(self, fingerprint: bytes, mark: int = 0) -> None:
        """Add one row, with its mark if it has one."""
        self._marked += mark > 0
        self._mark_sum += mark
        self.rows += 1
        self._sums[fingerprint[0]] += int.from_bytes(fingerprint, "big")
        if self.rows <= MAX_WINDOW_HASHES:
            self._hashes.append(fingerprint.hex())

    def add_bucket(self, number: int, rows: int, total: int) -> None:
        """Add a whole bucket of rows of which only the sum is known."""
        self.rows += rows
        self._single = False
        self._sums[number] += total

    def add_boundary(self, boundary: Boundary) -> None:
        """Add all rows of a boundary built earlier."""
        for hashed in boundary.hashes:
            self.add(bytes.fromhex(hashed))
        if boundary.buckets:
            self.rows += boundary.rows
            self._single = False
            self._sums = [
                one + other for one, other in zip(self._sums, boundary.buckets, strict=True)
            ]

    @property
    def marks(self) -> int | None:
        """The sum of the marks of all rows; None: there are too many, or one has no mark."""
        return self._mark_sum if self._single and self._marked == self.rows else None

    def build(self, most: int = MAX_WINDOW_HASHES) -> Boundary:
        """The boundary of all rows added; by buckets, if there are more than `most`."""
        if self._single and self.rows <= most:
            return Boundary.of(self._hashes)
        return Boundary.of_buckets(self.rows, self._sums)


def fingerprint(record: bytes) -> bytes:
    """The first bytes of the SHA-256 of a rendered record."""
    return hashlib.sha256(record).digest()[:_BYTES]


def changed_buckets(saved: tuple[int, ...], present: Mapping[int, tuple[int, int]]) -> set[int]:
    """The buckets in which a row has changed.

    `present` is the current (rows, sum of fingerprints) of each.
    """
    return {
        number
        for number in range(BUCKETS)
        if saved[number] != present.get(number, (0, 0))[1] % 2**64
    }
