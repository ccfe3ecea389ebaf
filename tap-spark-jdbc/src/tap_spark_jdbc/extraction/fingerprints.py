"""Fingerprints of the rows at a run's edges, by which rows sent before are recognised (plain Python).

A fingerprint is taken of a record's bytes, so a row that changed in any column is new. Where rows are written as files,
Spark computes the fingerprints; rows rendered as lines carry a mark of trailing blanks, which JSON ignores.
"""

from __future__ import annotations

import hashlib
import heapq
import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from singer_spark.singer.bookmark import BUCKETS, HASH_CHARACTERS, MAX_WINDOW_HASHES, Boundary
from tap_spark_jdbc.plan.stream_sql import AT_BOOKMARK, AT_UPPER, Edge

MARKS = {Edge.NONE: b"", Edge.BOOKMARK: b" ", Edge.UPPER: b"\t", Edge.NULL: b"  ", Edge.BOTH: b" \t"}
Sums = dict[int, tuple[int, int]]
"""(rows, sum of fingerprints) by bucket."""
CHUNK_BYTES = 1 << 20
WINDOW_BYTES = 1 << 24
_BYTES = HASH_CHARACTERS // 2


@dataclass(frozen=True)
class Look:
    """Which rows of a slice need a second look: in the bookmark's window, in the next one, without replication key.

    Attributes:
        by_buckets: There are too many rows at the bookmark for single fingerprints, and some buckets have changed.
    """

    bookmark: bool
    upper: bool
    nulls: bool
    by_buckets: bool = False


@dataclass(frozen=True)
class Found:
    """What was read of a slice: its rows, those without key, and the fingerprints of the rows at both edges."""

    rows: int
    nulls: int = 0
    at_bookmark: Iterable[bytes] = ()
    at_upper: Iterable[bytes] = ()


@dataclass(frozen=True)
class Frame:
    """The bytes around a stream's records in its RECORD lines; the suffix is without mark and newline."""

    prefix: bytes
    suffix: bytes

    def end(self, edge: Edge) -> bytes:
        """The ending of lines of rows at this edge."""
        return self.suffix + MARKS[edge] + b"\n"


class BoundaryBuilder:
    """Collects fingerprints in constant memory."""

    def __init__(self) -> None:
        self.rows = 0
        self._single = True
        self._hashes: list[str] = []
        self._sums = [0] * BUCKETS

    def add(self, fingerprint: bytes) -> None:
        """Add one row."""
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
            self._sums = [one + other for one, other in zip(self._sums, boundary.buckets, strict=True)]

    def build(self, most: int = MAX_WINDOW_HASHES) -> Boundary:
        """The boundary of all rows added; if they are more than `most`, by buckets."""
        if self._single and self.rows <= most:
            return Boundary.of(self._hashes)
        return Boundary.of_buckets(self.rows, self._sums)


def fingerprint(record: bytes) -> bytes:
    """The first bytes of the SHA-256 of a rendered record."""
    return hashlib.sha256(record).digest()[:_BYTES]


def changed_buckets(saved: tuple[int, ...], present: Mapping[int, tuple[int, int]]) -> set[int]:
    """The buckets in which a row has changed; `present` is the current (rows, sum of fingerprints) of each."""
    return {number for number in range(BUCKETS) if saved[number] != present.get(number, (0, 0))[1] % 2**64}


def found_in(path: Path, frame: Frame, rows: int, look: Look) -> Found:
    """What a spool file of `rows` lines holds; fingerprints are computed lazily, in constant memory."""
    return Found(
        rows,
        sum(1 for _ in edge_lines(path, frame, Edge.NULL)) if look.nulls else 0,
        (hashed for *_, hashed in edge_lines(path, frame, *AT_BOOKMARK)) if look.bookmark else (),
        (hashed for *_, hashed in edge_lines(path, frame, *AT_UPPER)) if look.upper else (),
    )


def edge_lines(path: Path, frame: Frame, *edges: int) -> Iterator[tuple[int, int, bytes]]:
    """Start, end and fingerprint of each line in a spool file marked with one of these edges, in the file's order."""
    return heapq.merge(*(_marked_lines(path, frame, Edge(edge)) for edge in edges))


def _marked_lines(path: Path, frame: Frame, edge: Edge) -> Iterator[tuple[int, int, bytes]]:
    if path.stat().st_size == 0:
        return
    ending = frame.end(edge)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = 0
        while (position := _find(data, ending, end)) >= 0:
            start = data.rfind(b"\n", 0, position) + 1
            end = position + len(ending)
            yield start, end, fingerprint(data[start + len(frame.prefix) : position])


def _find(data: mmap.mmap, ending: bytes, begin: int) -> int:
    """The next position of `ending`, or -1; searched pages are released, so that they do not count as memory."""
    while begin < len(data):
        found = data.find(ending, begin, begin + WINDOW_BYTES + len(ending) - 1)
        if found >= 0:
            return found
        begin += WINDOW_BYTES
        data.madvise(mmap.MADV_DONTNEED)
    return -1


def cut_out(path: Path, frame: Frame, dropped: list[int]) -> None:
    """Rewrite a file without some of its lines, given by their positions among those at the bookmark."""
    if not dropped:
        return
    rewritten, places = path.with_suffix(".rest"), set(dropped)
    with path.open("rb") as source, rewritten.open("wb") as target:
        for place, (start, end, _) in enumerate(edge_lines(path, frame, *AT_BOOKMARK)):
            if place in places:
                _copy(source, target, start - source.tell())
                source.seek(end)
        _copy(source, target, path.stat().st_size - source.tell())
    rewritten.replace(path)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = source.read(min(size, CHUNK_BYTES))
        target.write(chunk)
        size -= len(chunk)
