"""Prefetch of slices: several are processed in parallel, with results in order. The spool has
slices that are rendered ahead into local files, while those before them are being sent.

The lines of one long scan become files of bounded size. Each is made once the one before it is
sent, and the scan waits meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, BinaryIO, Generic, Protocol, TypeVar

from singer_spark.core import stdout
from singer_spark.core.scratch import scratch_folder
from tap_spark_jdbc.extract.slice_bounds import SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.source.connection_errors import again

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.fingerprints import Found
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.source.database import Database

R = TypeVar("R")
CHUNK_BYTES = 1 << 22
# Size of a piece of a scan that can't be cut.
PIECE_BYTES = 32_000_000


@dataclass(frozen=True)
class ReadContext:
    """The connections, snapshot and threads over which streams are read, one after another.

    Attributes:
        makers: A thread for each slice processed at the same time, shared by all contexts of a run.
        planner: One thread, which cuts the slices of this context in order.
        on_cut: Called once all slices of a stream are cut, in the planner's thread.
        on_trouble: Called before a retry because a connection broke, in any thread.
    """

    database: Database
    snapshots: StreamSnapshots
    makers: Executor
    on_cut: Callable[[], None] = lambda: None
    on_trouble: Callable[[], object] = lambda: None
    planner: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "plan"), init=False)

    @classmethod
    def of(cls, database: Database, snapshots: StreamSnapshots) -> ReadContext:
        """The first context of a run; threads are started when there is work."""
        return cls(database, snapshots, ThreadPoolExecutor(database.n_jobs, "make"))

    def beside(self) -> ReadContext:
        """Another context, whose connections are opened on first use."""
        database = self.database.beside()
        return replace(self, database=database, snapshots=self.snapshots.beside(database))


class SlicePrefetch(Generic[R]):
    """Makes a result of each slice; at most twice as many are kept as are processed at a time."""

    def __init__(
        self,
        slices: Iterator[Slice[Point]],
        make: Callable[[Slice[Point]], R],
        context: ReadContext,
    ) -> None:
        """Nothing is made before `start` or `results`.

        The context's planner consumes the slices lazily.

        `make` is called again if a connection breaks; it removes what a failed attempt leaves.
        """
        self._slices = slices
        self._make = make
        self._context = context
        self._pending: deque[Future[Future[R] | None]] = deque()
        self._last_made: Future[R] | None = None
        self._over = Event()

    def start(self, most: int) -> None:
        """Begin up to `most` slices before their results are requested."""
        while len(self._pending) < most:
            self._pending.append(self._context.planner.submit(self._cut))

    def results(self) -> Iterator[R]:
        """The results, in the order of the slices."""
        try:
            while True:
                self.start(2 * self._context.database.n_jobs)
                making = result_of(self._pending.popleft())
                if making is None:
                    return
                yield result_of(making)
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Cancel: nothing more is needed, and results still under way are discarded."""
        self._over.set()
        for each in self._pending:
            each.cancel()

    def wait_for_last(self) -> None:
        """Wait for the result of the slice before: it may decide the size of the next one."""
        if self._last_made is not None:
            wait([self._last_made])

    def _cut(self) -> Future[R] | None:
        if self._over.is_set():
            raise CancelledError
        each = next(self._slices, None)
        self._last_made = None if each is None else self._context.makers.submit(self._made, each)
        return self._last_made

    def _made(self, each: Slice[Point]) -> R:
        if self._over.is_set():
            raise CancelledError
        return again(partial(self._make, each), self._pause)

    def _pause(self, seconds: float) -> None:
        self._context.on_trouble()
        if self._over.wait(seconds):
            raise CancelledError


def result_of(work: Future[R]) -> R:
    """Wait for work in another thread, as long as the output still has a reader."""
    while not wait([work], timeout=stdout.LOOK_SECONDS).done:
        stdout.check_reader()
    return work.result()


class LineFile(Protocol):
    """Where lines are written: a file, or the pieces of a long scan."""

    def write(self, lines: memoryview, /) -> object:
        """Write whole lines."""

    def close(self) -> None:
        """Everything is written."""


class UnwantedError(Exception):
    """The lines of a scan are no longer read."""


class LinePieces:
    """Takes the lines of a scan like a file, and cuts them into files of about this size."""

    def __init__(self, folder: Path, piece_bytes: int) -> None:
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._names = (folder / f"piece-{number:06d}.txt" for number in count())
        self._file: BinaryIO | None = None
        self._ready: Path | None = None
        self._changed = Condition()
        self._over = self._unwanted = False

    def write(self, lines: memoryview) -> None:
        """Write whole lines, once the last piece was requested; UnwantedError: it never will be."""
        if self._file is None:
            self._file = self._opened()
        self._file.write(lines)
        if self._file.tell() >= self._piece_bytes:
            self._hand_over()

    def close(self) -> None:
        """Everything is written."""
        if self._file is not None:
            self._hand_over()

    def end(self) -> None:
        """No piece follows, whatever became of the one that was begun."""
        if self._file is not None:
            self._file.close()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def next(self) -> Path | None:
        """Wait, while the output has a reader, for the next piece, to be removed; None: no more."""
        with self._changed:
            while not self._changed.wait_for(
                lambda: self._ready is not None or self._over or self._unwanted,
                timeout=stdout.LOOK_SECONDS,
            ):
                stdout.check_reader()
            piece, self._ready = self._ready, None
            self._changed.notify_all()
        return None if self._unwanted else piece

    def refuse(self) -> None:
        """Take no more lines, from any thread, and remove the files."""
        with self._changed:
            self._unwanted = True
            self._changed.notify_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _opened(self) -> BinaryIO:
        try:
            return next(self._names).open("wb")
        except OSError:
            if self._unwanted:  # the folder is gone
                raise UnwantedError from None
            raise

    def _hand_over(self) -> None:
        file, self._file = self._file, None
        assert file is not None
        file.close()
        with self._changed:
            self._changed.wait_for(lambda: self._ready is None or self._unwanted)
            if self._unwanted:
                raise UnwantedError
            self._ready = Path(file.name)
            self._changed.notify_all()


class StreamedLines(Generic[R]):
    """The lines that a job writes, in pieces.

    Attributes:
        result: What the job returned, once there is no further piece.
    """

    result: R

    def __init__(self, job: Callable[[LinePieces], R], folder: Path, piece_bytes: int) -> None:
        """Start the job, in a thread of its own; the pieces are in a new folder."""
        folder.mkdir()
        self._pieces = LinePieces(folder, piece_bytes)
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, args=(job,), name="stream", daemon=True)
        self._thread.start()

    def next(self) -> Path | None:
        """The next piece, to be removed; None at the end. Raises what the job failed with."""
        piece, failure = self._pieces.next(), self._failure
        if piece is None and failure is not None and not isinstance(failure, UnwantedError):
            raise failure
        return piece

    def close(self) -> None:
        """Stop reading, from any thread."""
        self._pieces.refuse()

    def _run(self, job: Callable[[LinePieces], R]) -> None:
        try:
            self.result = job(self._pieces)
        except BaseException as error:
            self._failure = error
        finally:
            self._pieces.end()


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
        """Render a slice into a file that `render` opens; a failed attempt leaves nothing."""
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
