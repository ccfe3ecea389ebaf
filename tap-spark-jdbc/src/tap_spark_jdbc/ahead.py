"""Slices ahead of whoever takes them: several are worked at side by side, and come out in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Event
from typing import Generic, TypeVar

from singer_spark import stdout
from tap_spark_jdbc.lost_connection import again
from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.stream_sql import Point

R = TypeVar("R")
LOOK_SECONDS = 1.0


class Ahead(Generic[R]):
    """Makes something of each slice; twice as much as is worked at is there at most."""

    def __init__(
        self,
        slices: Iterator[Slice[Point]],
        make: Callable[[Slice[Point]], R],
        n_jobs: int,
        *,
        alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepares; nothing is made before `results`.

        Args:
            slices: Consumed lazily, in a thread of its own.
            make: Once more where a connection breaks.
            n_jobs: Slices that are worked at side by side.
            alone: Whether the next slice is cut only when this one is made, as what is learned of it decides its size.
        """
        self._slices = slices
        self._make = make
        self._n_jobs = n_jobs
        self._alone = alone
        self._over = Event()

    def results(self) -> Generator[R, None, None]:
        """What was made, in the order of the slices."""
        planner = ThreadPoolExecutor(1, thread_name_prefix="plan")
        makers = ThreadPoolExecutor(self._n_jobs, thread_name_prefix="write")
        pending: deque[Future[R | None]] = deque()
        try:
            while True:
                cut = planner.submit(next, self._slices, None)
                pending.append(makers.submit(self._made, cut))
                if self._alone():
                    _wait_for(pending[-1])
                if len(pending) < 2 * self._n_jobs:
                    continue
                result = _wait_for(pending.popleft())
                if result is None:
                    return
                yield result
        finally:
            self._over.set()
            planner.shutdown(wait=False, cancel_futures=True)
            makers.shutdown(wait=False, cancel_futures=True)

    def _made(self, cut: Future[Slice[Point] | None]) -> R | None:
        each = cut.result()
        return None if each is None else again(partial(self._make, each), self._pause)

    def _pause(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise CancelledError


def _wait_for(making: Future[R | None]) -> R | None:
    """Waits for a slice, which may take long, but only as long as somebody reads the output."""
    while not wait([making], timeout=LOOK_SECONDS).done:
        stdout.check_reader()
    return making.result()
