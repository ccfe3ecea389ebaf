"""The spool: slices rendered ahead into local files, while those before them are being sent."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from singer_spark.process.scratch import scratch_folder
from tap_spark_jdbc.extraction.slice_size import SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.reading.streamed_lines import StreamedLines
from tap_spark_jdbc.source.lost_connection import again

CHUNK_BYTES = 1 << 22
# Size of a piece of a scan that can't be cut.
PIECE_BYTES = 32_000_000


@dataclass(frozen=True)
class SpoolFile:
    """The rendered lines of a slice, or of a piece of a long scan, and their number when rendered."""

    slice: Slice[Point]
    path: Path
    rows: int


class Spool:
    """The files of one stream, in a folder of its own."""

    def __init__(self, size: SliceSize) -> None:
        self._size = size
        self._streams: list[StreamedLines] = []
        self._numbers = count()
        self._folder = Path(tempfile.mkdtemp(prefix="spool-", dir=scratch_folder()))

    def file(self, each: Slice[Point], render: Callable[[Path], tuple[Path, int]]) -> SpoolFile:
        """Render a slice into a new folder; `render` returns its file and rows, and a failed attempt leaves nothing."""
        folder = self._new_folder()
        try:
            path, rows = render(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        file = SpoolFile(each, path, rows)
        self._size.learn(file.rows, path.stat().st_size)
        return file

    def stream(
        self, each: Slice[Point], job: Callable[[Path], None], on_trouble: Callable[[], object]
    ) -> Iterator[SpoolFile]:
        """Render a slice of any size piece by piece; a piece is deleted, and the next one made, once that is requested.

        Rendering begins when the slice's turn has come: while waiting for a reader it would occupy a task that the
        slices before it need. The job writes into a named pipe; it is retried if it fails before the first piece, when
        nothing is sent yet.
        """

        def begin() -> tuple[StreamedLines, Path | None]:
            lines = StreamedLines(job, self._new_folder(), PIECE_BYTES)
            self._streams.append(lines)
            try:
                return lines, lines.next()
            except BaseException:
                lines.close()
                raise

        def pause(seconds: float) -> None:
            on_trouble()
            time.sleep(seconds)

        lines, path = again(begin, pause)
        try:
            while path is not None:
                yield SpoolFile(each, path, count_lines(path))
                path.unlink()
                path = lines.next()
        finally:
            lines.close()

    def _new_folder(self) -> Path:
        return self._folder / f"slice-{next(self._numbers):06d}"

    def remove(self) -> None:
        """Free the disk space."""
        for each in self._streams:
            each.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def one_by_one(made: Iterator[SpoolFile | Iterator[SpoolFile]]) -> Iterator[SpoolFile]:
    """Yield the files; each is deleted when the next one is requested."""
    for each in made:
        if isinstance(each, SpoolFile):
            yield each
            shutil.rmtree(each.path.parent, ignore_errors=True)
        else:
            yield from each


def count_lines(path: Path) -> int:
    """Count the lines of a file."""
    with path.open("rb", buffering=0) as file:
        chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
        return sum(chunk.count(b"\n") for chunk in chunks)
