"""RECORD lines wait on the local disk until a batch of them is worth a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from target_spark_lake.intake.singer_lines import RecordLines

MEGABYTE = 1 << 20
FIRST_BATCH_BYTES = 32 * MEGABYTE
LARGEST_BATCH_BYTES = 256 * MEGABYTE
# A batch is this part of what the stream had before: the first one is soon at work, later ones make large files.
GROWTH = 3
# Lines are at least so many times as large as the Parquet file that they become, but for texts that don't compress.
LINES_TO_FILE = 4
DEFAULT_TARGET_FILE_MB = 128
PIECE_BYTES = 4 * MEGABYTE


def batch_bytes(before: int, target_file_mb: int = DEFAULT_TARGET_FILE_MB) -> int:
    """Size at which a stream's batch is closed.

    Args:
        before: Bytes that came before it.
        target_file_mb: Megabytes aimed at for the file that the batch becomes.
    """
    largest = min(LARGEST_BATCH_BYTES, target_file_mb * MEGABYTE * LINES_TO_FILE)
    return min(largest, max(FIRST_BATCH_BYTES, before // GROWTH))


def pieces(path: Path) -> Iterator[bytes]:
    """A spooled file in pieces of whole lines."""
    with path.open("rb") as lines:
        while piece := lines.read(PIECE_BYTES) + lines.readline():
            yield piece


@dataclass
class SpooledBatch:
    """Lines of one stream under one schema, in a file of their own.

    Attributes:
        path: The file.
        received: When the batch was begun.
        batched: When it was closed.
        rows: Lines in it.
        size: Bytes in it.
    """

    path: Path
    received: datetime = field(default_factory=lambda: datetime.now(UTC))
    batched: datetime | None = None
    rows: int = 0
    size: int = 0
    _segments: list[tuple[int, int, str | None]] = field(default_factory=list)
    _file: BinaryIO | None = None
    _mark: tuple[int, int, int] = (0, 0, 0)

    def write(self, lines: RecordLines) -> None:
        """Appends a group of lines."""
        if self._file is None:
            self._file = self.path.open("wb", buffering=0)
        rest = memoryview(lines.data)
        while rest:
            # A disk that fills up takes a part first, and refuses what is left of it.
            rest = rest[self._file.write(rest) :]
        self._segments.append((lines.first_line, lines.rows, lines.file))
        self.rows += lines.rows
        self.size += len(lines.data)

    def mark(self) -> None:
        """Notes the end of the lines so far, for `cut_back`."""
        self._mark = (self.rows, self.size, len(self._segments))

    def cut_back(self) -> None:
        """Drops the lines behind the mark; without a mark all of them."""
        self.rows, self.size, segments = self._mark
        del self._segments[segments:]
        if self._file is not None:
            self._file.truncate(self.size)

    def close(self) -> None:
        """No more lines come."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.batched = datetime.now(UTC)

    def place_of(self, line: bytes) -> str | None:
        """Where this line stood first, in words: in the input or a batch file; reads all, so only for an error."""
        wanted = line.rstrip(b"\n")
        with self.path.open("rb") as lines:
            index = next((index for index, each in enumerate(lines) if each.rstrip(b"\n") == wanted), None)
        if index is None:
            return None
        for first, rows, file in self._segments:
            if index < rows:
                return f"input line {first + index}" if file is None else f"line {first + index} of batch file {file}"
            index -= rows
        return None

    def lines_at(self, positions: Sequence[int]) -> Iterator[bytes]:
        """The lines with these numbers, which grow, from 0."""
        wanted = set(positions)
        with self.path.open("rb") as lines:
            yield from (line for number, line in enumerate(islice(lines, positions[-1] + 1)) if number in wanted)

    def remove(self) -> None:
        """Gives the disk space back."""
        self.close()
        self.path.unlink(missing_ok=True)
