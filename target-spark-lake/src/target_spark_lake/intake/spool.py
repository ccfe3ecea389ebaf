"""Buffers RECORD lines on the local disk until they are enough for a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

    from target_spark_lake.intake.singer_lines import RecordLines

MEGABYTE = 1 << 20
FIRST_BATCH_BYTES = 32 * MEGABYTE
LARGEST_BATCH_BYTES = 256 * MEGABYTE
# A batch is the stream's data before it, divided by this: the first is staged early, later ones
# make large files.
GROWTH = 3
# Lines are at least this many times larger than the Parquet file made of them, except for
# incompressible text.
LINES_TO_FILE = 4
DEFAULT_TARGET_FILE_MB = 128
PIECE_BYTES = 4 * MEGABYTE


def batch_bytes(before: int, target_file_mb: int = DEFAULT_TARGET_FILE_MB) -> int:
    """Size at which a stream's batch is closed, given the bytes of the stream before it."""
    largest = min(LARGEST_BATCH_BYTES, target_file_mb * MEGABYTE * LINES_TO_FILE)
    return min(largest, max(FIRST_BATCH_BYTES, before // GROWTH))


def pieces(path: Path) -> Iterator[bytes]:
    """Pieces of whole lines of a spooled file."""
    with path.open("rb") as lines:
        # A piece is held only by the code that takes it.
        yield from iter(lambda: lines.read(PIECE_BYTES) + lines.readline(), b"")


@dataclass
class SpooledBatch:
    """Lines of one stream in their own file; `received` is when the batch was started."""

    path: Path
    received: datetime = field(default_factory=lambda: datetime.now(UTC))
    rows: int = 0
    size: int = 0
    _segments: list[tuple[int, int, str | None, int]] = field(default_factory=list)
    _file: BinaryIO | None = None
    _mark: tuple[int, int, int] = (0, 0, 0)

    @property
    def variants(self) -> list[int]:
        """The numbers of the SCHEMAs that its lines are under."""
        return sorted({variant for *_, variant in self._segments})

    def variant_of_lines(self) -> bytes:
        """The number of each line's SCHEMA."""
        return b"".join(bytes([variant]) * rows for _, rows, _, variant in self._segments)

    def write(self, lines: RecordLines, variant: int = 0) -> None:
        """Append a group of lines under the SCHEMA of this number, below 256."""
        if self._file is None:
            self._file = self.path.open("wb", buffering=0)
        rest = memoryview(lines.data)
        while rest:
            # A disk that fills up accepts a part first, and refuses the rest.
            rest = rest[self._file.write(rest) :]
        self._segments.append((lines.first_line, lines.rows, lines.file, variant))
        self.rows += lines.rows
        self.size += len(lines.data)

    def mark(self) -> None:
        """Mark the end of the lines so far, for `cut_back`."""
        self._mark = (self.rows, self.size, len(self._segments))

    def cut_back(self) -> None:
        """Drop the lines after the mark; without a mark all of them."""
        self.rows, self.size, segments = self._mark
        del self._segments[segments:]
        if self._file is not None:
            self._file.truncate(self.size)

    def close(self) -> None:
        """Close the file; no more lines follow."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def location_of(self, line: bytes) -> str | None:
        """Where a line first occurred, in words: in the input or a batch file; scans the file, so
        only for errors.
        """
        wanted = line.rstrip(b"\n")
        with self.path.open("rb") as lines:
            index = next(
                (index for index, each in enumerate(lines) if each.rstrip(b"\n") == wanted), None
            )
        if index is None:
            return None
        for first, rows, file, _ in self._segments:
            if index < rows:
                at = f"line {first + index}"
                return f"input {at}" if file is None else f"{at} of batch file {file}"
            index -= rows
        return None

    def lines_at(self, positions: Sequence[int]) -> Iterator[bytes]:
        """The lines at these positions, ascending from 0."""
        wanted = set(positions)
        with self.path.open("rb") as lines:
            first = islice(lines, positions[-1] + 1)
            yield from (line for number, line in enumerate(first) if number in wanted)

    def remove(self) -> None:
        """Free the disk space."""
        self.close()
        self.path.unlink(missing_ok=True)
