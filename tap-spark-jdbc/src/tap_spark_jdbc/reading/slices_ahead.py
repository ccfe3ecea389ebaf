"""Slices ahead of whoever takes them: several are worked at side by side, and come out in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Generic, TypeVar

from singer_spark.process import stdout
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.source.lost_connection import again

if TYPE_CHECKING:
    from tap_spark_jdbc.snapshot.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.source.database import Database

R = TypeVar("R")
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Lane:
    """What streams are read over, one after another: connections and a snapshot of the lane's own, and threads.

    Attributes:
        makers: As many threads as slices are worked at at the same time, by all lanes of a run.
        planner: One thread, which cuts the slices of this lane in their order.
        on_cut: Called once all slices of a stream are cut, in the planner's thread.
        on_trouble: Called before something is tried anew because a connection broke, in any thread.
    """

    database: Database
    snapshots: StreamSnapshots
    makers: Executor
    on_cut: Callable[[], None] = lambda: None
    on_trouble: Callable[[], object] = lambda: None
    planner: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "plan"), init=False)

    @classmethod
    def of(cls, database: Database, snapshots: StreamSnapshots) -> Lane:
        """The first lane of a run; no thread is begun before it has work."""
        return cls(database, snapshots, ThreadPoolExecutor(database.n_jobs, "make"))

    def beside(self) -> Lane:
        """Another one, whose connections are opened when they are first used."""
        database = self.database.beside()
        return replace(self, database=database, snapshots=self.snapshots.beside(database))


class Ahead(Generic[R]):
    """Makes something of each slice; twice as much as is worked at is there at most."""

    def __init__(self, slices: Iterator[Slice[Point]], make: Callable[[Slice[Point]], R], lane: Lane) -> None:
        """Makes nothing before `start` or `results`.

        Args:
            slices: Consumed lazily, by the lane's planner.
            make: Called again where a connection breaks; it removes what a failed attempt leaves.
            lane: Whose threads work.
        """
        self._slices = slices
        self._make = make
        self._lane = lane
        self._pending: deque[Future[Future[R] | None]] = deque()
        self._last_made: Future[R] | None = None
        self._over = Event()

    def start(self, most: int) -> None:
        """Begins with so many slices before anybody asks for them."""
        while len(self._pending) < most:
            self._pending.append(self._lane.planner.submit(self._cut))

    def results(self) -> Iterator[R]:
        """What was made, in the order of the slices."""
        try:
            while True:
                self.start(2 * self._lane.database.n_jobs)
                making = result_of(self._pending.popleft())
                if making is None:
                    return
                yield result_of(making)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Nothing more is needed; what is worked at comes to its end unseen."""
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
        self._last_made = None if each is None else self._lane.makers.submit(self._made, each)
        return self._last_made

    def _made(self, each: Slice[Point]) -> R:
        if self._over.is_set():
            raise CancelledError
        return again(partial(self._make, each), self._pause)

    def _pause(self, seconds: float) -> None:
        self._lane.on_trouble()
        if self._over.wait(seconds):
            raise CancelledError


def result_of(work: Future[R]) -> R:
    """Waits for work in another thread as long as somebody reads the output."""
    while not wait([work], timeout=LOOK_SECONDS).done:
        stdout.check_reader()
    return work.result()
