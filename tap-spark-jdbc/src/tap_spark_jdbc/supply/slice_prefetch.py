"""Prefetch of slices: several are processed in parallel, with results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Generic, TypeVar

from singer_spark.core import stdout
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.source.connection_errors import again

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.source.database import Database

R = TypeVar("R")


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
        """Wait, while cutting, for the result of the slice before: it may decide the size of the
        next one.
        """
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
