"""Slices ahead of whoever takes them: several are worked at side by side, and come out in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Generic, TypeVar

from singer_spark.process import stdout
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.source.lost_connection import again

R = TypeVar("R")
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Threads:
    """Who works ahead.

    Attributes:
        planner: One thread, which cuts the slices in their order.
        makers: As many as slices are worked at at the same time.
    """

    planner: Executor
    makers: Executor

    @classmethod
    def of(cls, n_jobs: int) -> Threads:
        """Threads for one stream alone."""
        return cls(planner(), makers(n_jobs))

    def close(self) -> None:
        """Begins nothing more, and waits for nothing."""
        for each in (self.planner, self.makers):
            each.shutdown(wait=False, cancel_futures=True)


def planner() -> Executor:
    """The thread that cuts; it is begun when it has work."""
    return ThreadPoolExecutor(1, thread_name_prefix="plan")


def makers(n_jobs: int) -> Executor:
    """Threads that work at slices; none is begun before it has work."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix="make")


class Ahead(Generic[R]):
    """Makes something of each slice; twice as much as is worked at is there at most."""

    def __init__(
        self,
        slices: Iterator[Slice[Point]],
        make: Callable[[Slice[Point]], R],
        n_jobs: int,
        threads: Threads,
        *,
        all_cut: Callable[[], None] = lambda: None,
        troubled: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares; nothing is made before `start` or `results`.

        Args:
            slices: Consumed lazily, by the planner.
            make: Once more where a connection breaks; what a failed attempt leaves is its own to remove.
            n_jobs: Slices that are worked at side by side.
            threads: That work for it.
            all_cut: Called, in another thread, once the last slice is cut.
            troubled: Called, in another thread, before something is made anew because its connection broke.
        """
        self._slices = slices
        self._make = make
        self._n_jobs = n_jobs
        self._threads = threads
        self._all_cut = all_cut
        self._troubled = troubled
        self._pending: deque[Future[Future[R] | None]] = deque()
        self._last_made: Future[R] | None = None
        self._over = Event()

    def start(self, most: int) -> None:
        """Begins with slices that nobody asks for yet.

        Args:
            most: How many.
        """
        while len(self._pending) < most:
            self._pending.append(self._threads.planner.submit(self._cut))

    def results(self) -> Iterator[R]:
        """What was made, in the order of the slices."""
        try:
            while True:
                self.start(2 * self._n_jobs)
                making = result_of(self._pending.popleft())
                if making is None:
                    return
                yield result_of(making)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Nobody wants anything of it any more; what is worked at comes to its end unseen."""
        self._over.set()
        for each in self._pending:
            each.cancel()

    def wait_for_last(self) -> None:
        """Waits, where slices are cut, for what becomes of the one before: it may decide how large the next one is."""
        if self._last_made is not None:
            wait([self._last_made])

    def _cut(self) -> Future[R] | None:
        if self._over.is_set():
            raise CancelledError
        each = next(self._slices, None)
        if each is None:
            self._all_cut()
            return None
        self._last_made = self._threads.makers.submit(self._made, each)
        return self._last_made

    def _made(self, each: Slice[Point]) -> R:
        if self._over.is_set():
            raise CancelledError
        return again(partial(self._make, each), self._pause)

    def _pause(self, seconds: float) -> None:
        self._troubled()
        if self._over.wait(seconds):
            raise CancelledError


def result_of(work: Future[R]) -> R:
    """Waits for work in another thread, which may take long, but only as long as somebody reads the output."""
    while not wait([work], timeout=LOOK_SECONDS).done:
        stdout.check_reader()
    return work.result()
