"""Streams are begun before their turn: their bounds asked, their first slices made, while those before are sent.

A stream is begun once all slices of the one before are cut. So small tables don't wait for each other's jobs, and none
holds a snapshot for as long as a large one before it takes. What is sent keeps its order, and an error its place: it is
raised when the stream's turn has come.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConnectionLostError
from tap_spark_jdbc.reading.lane import Lane
from tap_spark_jdbc.reading.slices_ahead import Threads, makers, planner, result_of
from tap_spark_jdbc.source.lost_connection import again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from types import TracebackType

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.snapshot.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.streams.stream_reading import StreamReading

logger = logging.getLogger("tap-spark-jdbc")

# Beyond the stream that is sent; each has one connection for its bounds, and on PostgreSQL one for its snapshot.
MOST_AHEAD = 3
# Of a stream that waits for its turn; the second one finds out whether it has more than one.
SLICES_AHEAD = 2


@dataclass(eq=False)
class _Turn:
    """A stream that was begun.

    Attributes:
        plan: The stream.
        reading: How it is read.
        lane: Over which connections.
        begun: Done once its bounds are fixed.
        cut: Whether all of its slices are known.
    """

    plan: StreamPlan
    lane: Lane
    reading: StreamReading[Any] = field(init=False)
    begun: Future[None] = field(init=False)
    cut: bool = False


class ReadAhead:
    """The streams of a run, in their order; a context manager around all of them."""

    def __init__(
        self,
        plans: Iterable[StreamPlan],
        make: Callable[[StreamPlan, Lane, Callable[[], None], Callable[[], None]], StreamReading[Any]],
        database: Database,
        snapshots: StreamSnapshots,
    ) -> None:
        """Begins nothing yet.

        Args:
            plans: The streams.
            make: Gives the reading of a stream over a lane; called by it are, in other threads, the first function once
                all is cut, and the second before something is read anew because a connection broke.
            database: The first lane's connections; with one of its `n_jobs` no stream is begun before its turn.
            snapshots: Of these.
        """
        n_jobs = database.n_jobs
        self._waiting = deque(plans)
        self._make = make
        self._database = database
        self._snapshots = snapshots
        self._makers = makers(n_jobs)
        self._most = 1 + min(n_jobs, MOST_AHEAD) if n_jobs > 1 else 1
        self._free = [self._lane(database, snapshots)]
        self._lanes = list(self._free)
        self._turns: deque[_Turn] = deque()
        self._closing: list[Future[None]] = []
        self._lock = Lock()
        self._over = False

    @contextmanager
    def turn(self, plan: StreamPlan) -> Iterator[StreamReading[Any]]:
        """A stream whose turn it is; the next one's comes once this one is left.

        Args:
            plan: The next one in the order.

        Raises:
            SourceError: it can't be begun.
        """
        turn = self._front(plan)
        try:
            try:
                result_of(turn.begun)
            except ConnectionLostError:
                if len(self._lanes) == 1:
                    raise
                turn = self._anew(turn)
                result_of(turn.begun)
            yield turn.reading
        finally:
            self._leave(turn)

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Begins nothing more; what is under way is only waited for after a success."""
        with self._lock:
            self._over = True
            for turn in self._turns:
                turn.reading.give_up()
        for executor in (*(each.threads.planner for each in self._lanes), self._makers):
            executor.shutdown(wait=kind is None, cancel_futures=kind is not None)
        for lane in self._lanes:
            lane.snapshots.unwatch()

    def _front(self, plan: StreamPlan) -> _Turn:
        with self._lock:
            if not self._turns:
                self._begin()
            front = self._turns[0]
            if front.plan is not plan:
                raise ValueError(f"stream {plan.stream} is not the next one, {front.plan.stream} is")
        return front

    def _leave(self, turn: _Turn) -> None:
        with self._lock:
            if turn in self._turns:
                self._turns.remove(turn)
                self._let_go(turn)
            self._go_on()

    def _let_go(self, turn: _Turn) -> None:
        """What the lane does next comes behind the end of the snapshot."""
        turn.reading.give_up()
        turn.lane.threads.planner.submit(turn.lane.snapshots.end)
        self._free.append(turn.lane)

    def _go_on(self) -> None:
        """Begins streams, as long as all before are cut; the lock is held."""
        while not self._over and self._waiting and len(self._turns) < self._most:
            if self._turns and not self._turns[-1].cut:
                return
            self._begin()

    def _begin(self, *, patiently: bool = False) -> None:
        """The next stream; the lock is held."""
        if not self._free:
            database = self._database.beside()
            self._free.append(self._lane(database, self._snapshots.beside(database)))
            self._lanes.append(self._free[-1])
        # The one that was used last has its connections already.
        turn = _Turn(self._waiting.popleft(), self._free.pop())
        turn.reading = self._make(turn.plan, turn.lane, lambda: self._all_cut(turn), self._withdraw)
        turn.begun = turn.lane.threads.planner.submit(_prepare, turn.reading, patiently=patiently)
        self._turns.append(turn)

    def _all_cut(self, turn: _Turn) -> None:
        with self._lock:
            turn.cut = True
            if turn in self._turns:
                self._go_on()

    def _withdraw(self) -> None:
        """A connection broke, perhaps as the server has no more of them: only the stream at the front keeps its own."""
        with self._lock:
            if self._most == 1:
                return
            self._most = 1
            logger.warning("from here on each stream begins after the one before, over as few connections as possible")
            while len(self._turns) > 1:
                self._put_back(self._turns.pop())
            self._disconnect_free()

    def _anew(self, turn: _Turn) -> _Turn:
        """Begins the stream at the front once more, alone."""
        self._withdraw()
        with self._lock:
            self._turns.remove(turn)
            self._put_back(turn)
            self._disconnect_free()
        for each in self._closing:
            result_of(each)
        with self._lock:
            # A server takes a moment to notice that a connection was closed.
            self._begin(patiently=True)
            return self._turns[0]

    def _put_back(self, turn: _Turn) -> None:
        """It waits again; nothing of it was sent."""
        self._waiting.appendleft(turn.plan)
        self._let_go(turn)

    def _disconnect_free(self) -> None:
        for lane in self._free:
            self._closing.append(lane.threads.planner.submit(lane.database.disconnect))

    def _lane(self, database: Database, snapshots: StreamSnapshots) -> Lane:
        return Lane(database, snapshots, Threads(planner(), self._makers))


def _prepare(reading: StreamReading[Any], *, patiently: bool) -> None:
    if patiently:
        again(reading.lane.database.connect)
    reading.begin()
    reading.start(SLICES_AHEAD)
