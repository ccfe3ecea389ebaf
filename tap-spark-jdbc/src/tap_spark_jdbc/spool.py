"""The spool: slices rendered ahead into local files, while those before them are being sent."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event

from singer_spark import stdout
from singer_spark.scratch import scratch_folder
from tap_spark_jdbc.lost_connection import again
from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.stream_sql import Point

SLICE_BYTES = 32_000_000
FETCH_BYTES = 4_000_000
FIRST_SLICE_ROWS = 20_000
# Of a slice that comes through memory, as on a cluster.
FIRST_ROWS_IN_MEMORY = 2_000
FIRST_FETCH_SIZE = 1_000
CHUNK_BYTES = 1 << 22
LOOK_SECONDS = 1.0


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


class SliceSize:
    """Rows a slice and rows a round trip: what the user says, else measured by the width of rendered rows."""

    def __init__(self, slice_rows: int | None, fetch_size: int | None, *, in_memory: bool = False) -> None:
        self._fixed_rows = slice_rows
        self._first_rows = FIRST_ROWS_IN_MEMORY if in_memory else FIRST_SLICE_ROWS
        self._fixed_fetch = fetch_size
        self._row_bytes: float | None = None

    def rows(self) -> int:
        """Rows a slice."""
        return self._fixed_rows or self._fitting(SLICE_BYTES, self._first_rows, 100, 1_000_000)

    def fetch_size(self) -> int:
        """JDBC rows a round trip."""
        return self._fixed_fetch or self._fitting(FETCH_BYTES, FIRST_FETCH_SIZE, 10, 10_000)

    def learn(self, rows: int, size: int) -> None:
        """Takes the width of rows just rendered."""
        if rows:
            self._row_bytes = size / rows

    def _fitting(self, size: int, first: int, least: int, most: int) -> int:
        return first if self._row_bytes is None else min(most, max(least, int(size / self._row_bytes)))


class Spool:
    """Renders a stream's slices ahead, several side by side; twice as many files are on disk at most."""

    def __init__(
        self,
        folder: Path,
        slices: Iterator[Slice[Point]],
        render: Callable[[Slice[Point], Path], Path],
        size: SliceSize,
        n_jobs: int,
    ) -> None:
        """Prepares; nothing is read before `files`.

        Args:
            folder: Where files go.
            slices: Consumed lazily, in a thread of its own.
            render: Renders a slice into a new folder and gives the file; once more where a connection breaks.
            size: Learns from what was rendered.
            n_jobs: Slices that are rendered at the same time.
        """
        self._folder = folder
        self._slices = slices
        self._render = render
        self._size = size
        self._n_jobs = n_jobs
        self._over = Event()

    def files(self) -> Iterator[SpoolFile]:
        """The files in the order of their slices; each is deleted once the next one is asked for."""
        planner = ThreadPoolExecutor(1, thread_name_prefix="plan")
        renderers = ThreadPoolExecutor(self._n_jobs, thread_name_prefix="render")
        pending: deque[Future[SpoolFile | None]] = deque()
        try:
            for number in count():
                cut = planner.submit(next, self._slices, None)
                pending.append(renderers.submit(self._rendered, cut, self._folder / f"slice-{number:06d}"))
                if len(pending) < 2 * self._n_jobs:
                    continue
                file = _result(pending.popleft())
                if file is None:
                    return
                yield file
                shutil.rmtree(file.path.parent, ignore_errors=True)
        finally:
            self._over.set()
            planner.shutdown(wait=False, cancel_futures=True)
            renderers.shutdown(wait=False, cancel_futures=True)

    def _rendered(self, cut: Future[Slice[Point] | None], folder: Path) -> SpoolFile | None:
        each = cut.result()
        if each is None:
            return None
        path = again(partial(self._anew, each, folder), self._pause)
        file = SpoolFile(each, path, count_lines(path))
        self._size.learn(file.rows, path.stat().st_size)
        return file

    def _anew(self, each: Slice[Point], folder: Path) -> Path:
        # What an attempt that failed has left, of which nothing was sent.
        shutil.rmtree(folder, ignore_errors=True)
        return self._render(each, folder)

    def _pause(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise CancelledError


def _result(rendering: Future[SpoolFile | None]) -> SpoolFile | None:
    """Waits for a slice, which may take long, but only as long as somebody waits for its lines."""
    while not wait([rendering], timeout=LOOK_SECONDS).done:
        stdout.check_reader()
    return rendering.result()


def count_lines(path: Path) -> int:
    """How many lines a file has."""
    with path.open("rb", buffering=0) as file:
        chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
        return sum(chunk.count(b"\n") for chunk in chunks)


@contextmanager
def spool_folder() -> Iterator[Path]:
    """A folder of this run's own, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="spool-", dir=scratch_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
