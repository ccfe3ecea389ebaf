"""The spool: slices rendered ahead into local files, while those before them are being sent."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from singer_spark.scratch import scratch_folder
from tap_spark_jdbc.slice_size import SliceSize
from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.stream_sql import Point

CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class SpoolFile:
    """The rendered lines of one slice.

    Attributes:
        slice: Which.
        path: Where they are.
        rows: How many they were when rendered.
    """

    slice: Slice[Point]
    path: Path
    rows: int


class Spool:
    """The files of one stream, in a folder of its own."""

    def __init__(self, size: SliceSize) -> None:
        """Makes the folder.

        Args:
            size: Learns from what was rendered.
        """
        self._size = size
        self._numbers = count()
        self._folder = Path(tempfile.mkdtemp(prefix="spool-", dir=scratch_folder()))

    def file(self, each: Slice[Point], render: Callable[[Path], Path]) -> SpoolFile:
        """Renders a slice; an attempt that fails leaves nothing.

        Args:
            each: Which.
            render: Renders it into a new folder and gives the file.
        """
        folder = self._folder / f"slice-{next(self._numbers):06d}"
        try:
            path = render(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        file = SpoolFile(each, path, count_lines(path))
        self._size.learn(file.rows, path.stat().st_size)
        return file

    def remove(self) -> None:
        """Gives the disk space back."""
        shutil.rmtree(self._folder, ignore_errors=True)


def one_by_one(files: Iterator[SpoolFile]) -> Iterator[SpoolFile]:
    """The files; each is deleted once the next one is asked for."""
    for file in files:
        yield file
        shutil.rmtree(file.path.parent, ignore_errors=True)


def count_lines(path: Path) -> int:
    """How many lines a file has."""
    with path.open("rb", buffering=0) as file:
        chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
        return sum(chunk.count(b"\n") for chunk in chunks)
