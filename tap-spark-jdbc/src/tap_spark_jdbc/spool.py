"""The spool: slices rendered ahead into local files, while those before them are being sent."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from singer_spark import stdout
from singer_spark.scratch import scratch_folder
from tap_spark_jdbc.lost_connection import again
from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.stream_sql import Point

SLICE_BYTES = 32_000_000
# Of all files that may be on the disk at a time, as long as slices need not be smaller for it than they are at first.
SPOOL_BYTES = 512_000_000
# A slice is this part of what was rendered before it: the first ones are soon on their way, later ones cost fewer jobs.
GROWTH = 4
FETCH_BYTES = 4_000_000
FIRST_SLICE_ROWS = 20_000
# Of a slice that comes through memory, as on a cluster.
FIRST_ROWS_IN_MEMORY = 2_000
FIRST_FETCH_SIZE = 1_000
CHUNK_BYTES = 1 << 22
LOOK_SECONDS = 1.0
T = TypeVar("T")


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

    def __init__(
        self,
        slice_rows: int | None,
        fetch_size: int | None,
        *,
        slice_bytes: int = SLICE_BYTES,
        in_memory: bool = False,
    ) -> None:
        self._fixed_rows = slice_rows
        self._in_memory = in_memory
        self._first_rows = FIRST_ROWS_IN_MEMORY if in_memory else FIRST_SLICE_ROWS
        self._fixed_fetch = fetch_size
        self._slice_bytes = slice_bytes
        self._row_bytes: float | None = None
        self._read_bytes: float | None = None
        self._largest = slice_bytes
        self._rendered = 0

    @property
    def known(self) -> bool:
        """Whether the rows of the next slice are no guess."""
        return self._fixed_rows is not None or self._row_bytes is not None

    def share(self, files: int) -> None:
        """Takes how many files may be on the disk at a time."""
        if not self._in_memory:
            self._largest = max(self._slice_bytes, SPOOL_BYTES // files)

    def rows(self) -> int:
        """Rows a slice."""
        size = min(self._largest, max(self._slice_bytes, self._rendered // GROWTH))
        return self._fixed_rows or _fitting(size, self._row_bytes, self._first_rows, 100, 1_000_000)

    def fetch_size(self) -> int:
        """JDBC rows a round trip."""
        return self._fixed_fetch or _fitting(FETCH_BYTES, self._read_bytes, FIRST_FETCH_SIZE, 10, 10_000)

    def learn(self, rows: int, size: int, width: float | None = None) -> None:
        """Takes the width of rows just rendered, by any thread.

        Args:
            rows: How many.
            size: Their bytes in a file.
            width: Bytes of one as the database sent it, where a file says nothing of that.
        """
        self._rendered += size
        if rows:
            self._row_bytes = size / rows
            self._read_bytes = self._row_bytes if width is None else width


def _fitting(size: int, row_bytes: float | None, first: int, least: int, most: int) -> int:
    return first if row_bytes is None else min(most, max(least, int(size / max(row_bytes, 1e-3))))


@dataclass(frozen=True)
class SpoolThreads:
    """Who works for a spool.

    Attributes:
        planner: One thread, which cuts the slices in their order.
        renderers: As many as slices are rendered at the same time.
    """

    planner: Executor
    renderers: Executor

    @classmethod
    def of(cls, n_jobs: int) -> SpoolThreads:
        """Threads for one spool alone."""
        return cls(ThreadPoolExecutor(1, thread_name_prefix="plan"), renderers_of(n_jobs))

    def close(self) -> None:
        """Begins nothing more, and waits for nothing."""
        for each in (self.planner, self.renderers):
            each.shutdown(wait=False, cancel_futures=True)


def renderers_of(n_jobs: int) -> Executor:
    """Threads that render; nothing is begun before they have work."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix="render")


class Spool:
    """Renders a stream's slices ahead, several side by side; twice as many files are on disk at most."""

    def __init__(
        self,
        folder: Path,
        slices: Iterator[Slice[Point]],
        render: Callable[[Slice[Point], Path], Path],
        size: SliceSize,
        n_jobs: int,
        threads: SpoolThreads | None = None,
        *,
        all_cut: Callable[[], None] = lambda: None,
        troubled: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares; nothing is read before `start` or `files`.

        Args:
            folder: Where files go.
            slices: Consumed lazily, in a thread of its own.
            render: Renders a slice into a new folder and gives the file; once more where a connection breaks.
            size: Learns from what was rendered.
            n_jobs: Slices that are rendered at the same time.
            threads: That work for it; None: its own.
            all_cut: Called, in another thread, once the last slice is cut.
            troubled: Called, in another thread, before something is read anew because its connection broke.
        """
        self._folder = folder
        self._slices = slices
        self._render = render
        self._size = size
        self._n_jobs = n_jobs
        size.share(2 * n_jobs)
        self._threads = threads
        self._all_cut = all_cut
        self._troubled = troubled
        self._pending: deque[Future[Future[SpoolFile] | None]] = deque()
        self._count = 0
        self._over = Event()

    def start(self, most: int) -> None:
        """Begins to render slices whose files nobody asks for yet.

        Args:
            most: How many.
        """
        threads = self._threads = self._threads or SpoolThreads.of(self._n_jobs)
        while len(self._pending) < most:
            folder = self._folder / f"slice-{self._count:06d}"
            self._pending.append(threads.planner.submit(self._cut, threads.renderers, folder))
            self._count += 1

    def files(self) -> Iterator[SpoolFile]:
        """The files in the order of their slices; each is deleted once the next one is asked for."""
        own = self._threads is None
        try:
            while True:
                self.start(2 * self._n_jobs)
                rendering = result_of(self._pending.popleft())
                if rendering is None:
                    return
                file = result_of(rendering)
                yield file
                shutil.rmtree(file.path.parent, ignore_errors=True)
        finally:
            self.give_up()
            if own and self._threads is not None:
                self._threads.close()

    def give_up(self) -> None:
        """Nobody wants its files any more; what is being rendered comes to its end unseen."""
        self._over.set()
        for each in self._pending:
            each.cancel()

    def _cut(self, renderers: Executor, folder: Path) -> Future[SpoolFile] | None:
        if self._over.is_set():
            raise CancelledError
        each = next(self._slices, None)
        if each is None:
            self._all_cut()
            return None
        return renderers.submit(self._rendered, each, folder)

    def _rendered(self, each: Slice[Point], folder: Path) -> SpoolFile:
        if self._over.is_set():
            raise CancelledError
        path = again(partial(self._anew, each, folder), self._pause)
        file = SpoolFile(each, path, count_lines(path))
        self._size.learn(file.rows, path.stat().st_size)
        return file

    def _anew(self, each: Slice[Point], folder: Path) -> Path:
        # What an attempt that failed has left, of which nothing was sent.
        shutil.rmtree(folder, ignore_errors=True)
        return self._render(each, folder)

    def _pause(self, seconds: float) -> None:
        self._troubled()
        if self._over.wait(seconds):
            raise CancelledError


def result_of(work: Future[T]) -> T:
    """Waits for work in another thread, which may take long, but only as long as somebody waits for its lines."""
    while not wait([work], timeout=LOOK_SECONDS).done:
        stdout.check_reader()
    return work.result()


def count_lines(path: Path) -> int:
    """How many lines a file has."""
    with path.open("rb", buffering=0) as file:
        chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
        return sum(chunk.count(b"\n") for chunk in chunks)


def new_spool_folder() -> Path:
    """A folder of this run's own."""
    return Path(tempfile.mkdtemp(prefix="spool-", dir=scratch_folder()))


def remove_spool_folder(folder: Path) -> None:
    """Gives its disk space back."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spool_folder() -> Iterator[Path]:
    """A folder of this run's own, gone afterwards."""
    folder = new_spool_folder()
    try:
        yield folder
    finally:
        remove_spool_folder(folder)
