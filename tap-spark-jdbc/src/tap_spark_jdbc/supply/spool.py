"""The spool: slices rendered ahead into local files, while those before them are being sent."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.core.scratch import scratch_folder
from tap_spark_jdbc.extract.slice_size import SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.source.connection_errors import again
from tap_spark_jdbc.supply.streamed_lines import StreamedLines

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.fingerprints import Found
    from tap_spark_jdbc.supply.streamed_lines import LineFile

CHUNK_BYTES = 1 << 22
# Size of a piece of a scan that can't be cut.
PIECE_BYTES = 32_000_000


@dataclass(frozen=True)
class Lines:
    """The result of rendering a slice.

    Attributes:
        rows: Number of lines.
    """

    found: Found
    rows: int


@dataclass(frozen=True)
class SpoolFile:
    """The lines of a slice, or of a piece of a long scan.

    Attributes:
        rows: Number of lines.
        found: What was found in the slice; None for a piece of one.
    """

    slice: Slice[Point]
    path: Path
    rows: int
    found: Found | None


class Spool:
    """The files of one stream, in a folder of its own."""

    def __init__(self, size: SliceSize) -> None:
        self._size = size
        self._streams: list[StreamedLines[Lines]] = []
        self._numbers = count()
        self._folder = Path(tempfile.mkdtemp(prefix="spool-", dir=scratch_folder()))

    def file(
        self, each: Slice[Point], render: Callable[[Callable[[], LineFile]], Lines]
    ) -> SpoolFile:
        """Render a slice into a file of its own, which `render` opens; a failed attempt leaves
        nothing.
        """
        folder = self._new_folder()
        folder.mkdir()
        path = folder / "lines.txt"
        try:
            lines = render(lambda: path.open("wb"))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._size.learn(lines.rows, path.stat().st_size)
        return SpoolFile(each, path, lines.rows, lines.found)

    def stream(
        self,
        each: Slice[Point],
        render: Callable[[Callable[[], LineFile]], Lines],
        on_trouble: Callable[[], object],
        on_end: Callable[[Found], object],
    ) -> Iterator[SpoolFile]:
        """Render a slice of any size piece by piece.

        A piece is deleted, and the next one made, once that is requested.

        Rendering begins when the slice's turn has come: while waiting for a reader it would occupy
        a task that the slices before it need. It is retried if it fails before the first piece,
        when nothing is sent yet. `on_end` is called with what was found in the slice, once there is
        no further piece.
        """

        def begin() -> tuple[StreamedLines[Lines], Path | None]:
            lines = StreamedLines(
                lambda pieces: render(lambda: pieces), self._new_folder(), PIECE_BYTES
            )
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
                yield SpoolFile(each, path, count_lines(path), None)
                path.unlink()
                path = lines.next()
            on_end(lines.result.found)
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
