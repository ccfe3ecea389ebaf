"""Rows at the bookmark's value: which of them were sent before, and the fingerprints of those that are (plain Python).

Only rows at the very edge of a run are looked at here, found in the rendered lines by the mark behind each line's end:
blanks, which JSON ignores. A fingerprint is taken of the record's bytes, so a row that changed in any column is new.
"""

from __future__ import annotations

import hashlib
import mmap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from singer_spark.singer.bookmark import BUCKETS, HASH_CHARACTERS, MAX_BOUNDARY_HASHES, Boundary
from tap_spark_jdbc.plan.stream_sql import Edge

MARKS = {Edge.NONE: b"", Edge.BOOKMARK: b" ", Edge.UPPER: b"\t", Edge.NULL: b"  "}
CHUNK_BYTES = 1 << 20
WINDOW_BYTES = 1 << 24
_BYTES = HASH_CHARACTERS // 2


@dataclass(frozen=True)
class Frame:
    """What stands around a stream's records in its RECORD lines.

    Attributes:
        prefix: Up to the record.
        suffix: Behind the record, without mark and newline.
    """

    prefix: bytes
    suffix: bytes

    def end(self, edge: Edge) -> bytes:
        """How the lines of rows at this edge end."""
        return self.suffix + MARKS[edge] + b"\n"


class BoundaryBuilder:
    """Collects fingerprints in constant memory."""

    def __init__(self) -> None:
        self.rows = 0
        self._single = True
        self._hashes: list[str] = []
        self._sums = [0] * BUCKETS

    def add(self, fingerprint: bytes) -> None:
        """One row."""
        self.rows += 1
        self._sums[fingerprint[0]] += int.from_bytes(fingerprint, "big")
        if self.rows <= MAX_BOUNDARY_HASHES:
            self._hashes.append(fingerprint.hex())

    def add_bucket(self, number: int, rows: int, total: int) -> None:
        """A whole bucket of rows that is known by its sum alone."""
        self.rows += rows
        self._single = False
        self._sums[number] += total

    def add_boundary(self, boundary: Boundary) -> None:
        """All rows of a boundary that was built before."""
        for hashed in boundary.hashes:
            self.add(bytes.fromhex(hashed))
        if boundary.buckets:
            self.rows += boundary.rows
            self._single = False
            self._sums = [one + other for one, other in zip(self._sums, boundary.buckets, strict=True)]

    def build(self) -> Boundary:
        """The boundary of all rows added."""
        if self._single and self.rows == len(self._hashes):
            return Boundary.of(self._hashes)
        return Boundary.of_buckets(self.rows, self._sums)


def fingerprint(record: bytes) -> bytes:
    """Of a record as it is rendered: the first bytes of its SHA-256."""
    return hashlib.sha256(record).digest()[:_BYTES]


def edge_lines(path: Path, frame: Frame, edge: Edge) -> Iterator[tuple[int, int, bytes]]:
    """Start, end and fingerprint of each line in a spool file that is marked with this edge."""
    if path.stat().st_size == 0:
        return
    ending = frame.end(edge)
    behind_record = len(ending)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = _find(data, ending, 0)
        while position >= 0:
            start = data.rfind(b"\n", 0, position) + 1
            end = position + behind_record
            yield start, end, fingerprint(data[start + len(frame.prefix) : position])
            position = _find(data, ending, end)


def _find(data: mmap.mmap, ending: bytes, begin: int) -> int:
    """Where it is found next, -1 for nowhere; what was looked through on the way does not count as memory any more."""
    while begin < len(data):
        found = data.find(ending, begin, begin + WINDOW_BYTES + len(ending) - 1)
        if found >= 0:
            return found
        begin += WINDOW_BYTES
        data.madvise(mmap.MADV_DONTNEED)
    return -1


def drop_sent(path: Path, frame: Frame, sent: Counter[str], present: BoundaryBuilder) -> tuple[int, int]:
    """Takes the lines out of a spool file that were sent by an earlier run and have not changed since.

    Args:
        path: The file.
        frame: Of its lines.
        sent: Fingerprints of the rows sent at the bookmark, counted; what is found here is taken off.
        present: Gets every row at the bookmark, sent before or not.

    Returns:
        How many rows at the bookmark were taken out, and how many stay.
    """
    dropped: list[tuple[int, int]] = []
    kept = 0
    for start, end, hashed in edge_lines(path, frame, Edge.BOOKMARK):
        present.add(hashed)
        name = hashed.hex()
        if sent[name] > 0:
            sent[name] -= 1
            dropped.append((start, end))
        else:
            kept += 1
    if dropped:
        _cut_out(path, dropped)
    return len(dropped), kept


def _cut_out(path: Path, ranges: list[tuple[int, int]]) -> None:
    """Rewrites a file without these ascending byte ranges."""
    rewritten = path.with_suffix(".rest")
    with path.open("rb") as source, rewritten.open("wb") as target:
        for start, end in ranges:
            _copy(source, target, start - source.tell())
            source.seek(end)
        _copy(source, target, path.stat().st_size - source.tell())
    rewritten.replace(path)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = source.read(min(size, CHUNK_BYTES))
        target.write(chunk)
        size -= len(chunk)
