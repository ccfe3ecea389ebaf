"""Fingerprints of the rows at a run's boundaries, by which rows sent before are recognised, and the
database's own checksum of the rows at a bookmark: if it is unchanged, they are not read again
(PostgreSQL).

A fingerprint is taken of a record's bytes, so a row that changed in any column is new.

The checksum is computed in the same snapshot in which the rows were read and fingerprinted, so an
equal one later means equal rows. With any other result, the rows are read and compared by their
fingerprints.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import BUCKETS, HASH_CHARACTERS, MAX_WINDOW_HASHES, Boundary
from singer_spark.errors import SourceError
from tap_spark_jdbc.plan.slices import Range
from tap_spark_jdbc.plan.stream_sql import Point, checksum_of, range_condition

if TYPE_CHECKING:
    from singer_spark.core.bookmark import Bookmark
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots

logger = logging.getLogger("tap-spark-jdbc")

Sums = dict[int, tuple[int, int, int]]
"""(rows, sum of fingerprints, sum of marks) by bucket."""
_BYTES = HASH_CHARACTERS // 2
# Two sums of 64 bits each, independent of the rows' order; a row's text distinguishes NULL from an
# empty text.
_SUMS = """
SELECT CAST(pg_catalog.pg_current_snapshot() AS text), COUNT(*),
  CAST(SUM(pg_catalog.hashtextextended(t, 0)) AS text),
  CAST(SUM(pg_catalog.hashtextextended(t, 1)) AS text)
FROM (SELECT CAST(ROW(q.*) AS text) COLLATE "C" AS t FROM ({rows}) q) h
"""


@dataclass(frozen=True)
class Look:
    """Which rows of a slice need a second look: those in the bookmark's window, those in the next
    window, and those without replication key.

    Attributes:
        changed: There are too many rows at the bookmark for single fingerprints, and these buckets
            have changed: only their rows are sent.
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
        marks: The marks of the rows at both boundaries; 0: none (`plan.stream_sql`).
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


@dataclass
class WindowSums:
    """The rows in the bookmark's window.

    Attributes:
        present: Sums of all of them.
        following: Sums of those that are also in the window of the upper bound.
        single: Fingerprint and mark of each of the latter; None: there are too many.
    """

    present: Sums = field(default_factory=dict)
    following: Sums = field(default_factory=dict)
    single: list[tuple[bytes, int]] | None = field(default_factory=list)

    def add(self, hashed: bytes, mark: int, *, follows: bool) -> None:
        """Add a row; `follows`: it is also in the window of the upper bound."""
        for sums in (self.present, self.following) if follows else (self.present,):
            rows, total, marks = sums.get(hashed[0], (0, 0, 0))
            sums[hashed[0]] = rows + 1, total + int.from_bytes(hashed, "big"), marks + mark
        if follows and self.single is not None:
            self.single.append((hashed, mark))
            if len(self.single) > MAX_WINDOW_HASHES:
                self.single = None


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

    def add_bucket(self, number: int, rows: int, total: int, marks: int = 0) -> None:
        """Add a whole bucket of rows of which only the sums are known."""
        # Either all rows of a stream have marks, or none has.
        self._marked += rows if marks else 0
        self._mark_sum += marks
        self.rows += rows
        self._single = False
        self._sums[number] += total

    def add_buckets(self, sums: Sums, changed: set[int]) -> None:
        """Add the buckets that have not changed."""
        for number, bucket in sums.items():
            if number not in changed:
                self.add_bucket(number, *bucket)

    def add_following(self, sums: WindowSums, changed: set[int]) -> None:
        """Add the rows of one window that are also in the next, without those of the changed
        buckets.
        """
        if sums.single is not None:
            for hashed, mark in sums.single:
                if hashed[0] not in changed:
                    self.add(hashed, mark)
            return
        self.add_buckets(sums.following, changed)

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
        """The sum of the marks of all rows; None: one has no mark."""
        return self._mark_sum if self._marked == self.rows else None

    def build(self, most: int = MAX_WINDOW_HASHES) -> Boundary:
        """The boundary of all rows added; by buckets, if there are more than `most`."""
        if self._single and self.rows <= most:
            return Boundary.of(self._hashes)
        return Boundary.of_buckets(self.rows, self._sums)


def fingerprint(record: bytes) -> bytes:
    """The first bytes of the SHA-256 of a rendered record."""
    return hashlib.sha256(record).digest()[:_BYTES]


def changed_buckets(saved: tuple[int, ...], present: Sums) -> set[int]:
    """The buckets with a changed row."""
    return {
        number
        for number in range(BUCKETS)
        if saved[number] != present.get(number, (0, 0, 0))[1] % 2**64
    }


def without_unchanged(extraction: Extraction) -> Extraction:
    """The extraction without the rows at the bookmark, if none of them has changed; otherwise the
    same extraction.
    """
    boundary = extraction.bookmark.boundary if extraction.bookmark is not None else None
    at = extraction.sql.bookmark
    if boundary is None or boundary.checksum is None or boundary.since is not None:
        return extraction
    if at is None or not _is_quick(extraction):
        return extraction
    found = _checksum(extraction, at)
    is_same = found is not None and found[1] == boundary.checksum
    return extraction.behind_bookmark() if is_same else extraction


def sealed(
    bookmark: Bookmark | None, extraction: Extraction, snapshots: StreamSnapshots
) -> Bookmark | None:
    """The bookmark that a stream ends with, with the checksum of the rows at it, if the snapshot is
    still held.

    None, for a bookmark that stays as it was, stays None.
    """
    upper = extraction.sql.upper
    if bookmark is None or bookmark.boundary is None or upper is None or not _is_quick(extraction):
        return bookmark
    if not bookmark.boundary.rows or bookmark.boundary.since is not None or snapshots.held is None:
        return bookmark
    # Some rows at the bookmark were sent by a run that died, and have not been looked at since.
    if extraction.progress.split is not None:
        return bookmark
    found = _checksum(extraction, upper)
    # A connection that broke meanwhile has been replaced by one outside of the snapshot.
    if found is None or found[0] != snapshots.held:
        return bookmark
    return replace(bookmark, boundary=replace(bookmark.boundary, checksum=found[1]))


def _is_quick(extraction: Extraction) -> bool:
    """Whether the rows are found by an index, and none is masked: the database would hash unmasked
    values.
    """
    key = extraction.plan.replication_key
    if any(column.made_mask for column in extraction.plan.columns):
        return False
    return extraction.sql.dialect.shares_snapshots and key is not None and key.indexed


def _checksum(extraction: Extraction, at: Point) -> tuple[str, str] | None:
    """The snapshot of the database's answer, and its checksum of the rows at a key; None if it
    can't compute one.
    """
    sql, connection = extraction.sql, extraction.connection
    key = extraction.plan.replication_key
    assert key is not None
    condition = range_condition(sql.dialect.operand(key.column), Range(at, at, closed=True))
    selected = [f"{sql.dialect.select(each)} AS {alias}" for alias, each in sql.aliased]
    query = _SUMS.replace("{rows}", f"SELECT {', '.join(selected)} {sql.source} AND {condition}")
    try:
        ((snapshot, *sums),) = connection.rows(query)
    except SourceError as error:
        stream = sql.plan.stream
        logger.debug("stream %s: no checksum of the rows at the bookmark: %s", stream, error)
        return None
    return str(snapshot), checksum_of(sql.dialect, sql.plan, sums)
