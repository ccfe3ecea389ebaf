"""The order of a run's streams: most are begun before their turn, so that bounds are queried and
first slices are made while the streams before are being sent; some are read from the database's
log.

A stream is begun once all slices of the one before it are cut. So small tables don't wait for each
other's jobs, and none holds a snapshot for as long as a large one before it takes. Streams are sent
in order, and an error is raised when its stream's turn has come.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConnectionLostError, one_line
from tap_spark_jdbc.source.connection_errors import again
from tap_spark_jdbc.supply.slice_prefetch import ReadContext, result_of
from tap_spark_jdbc.supply.stream_errors import OF_A_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.send.jdbc_stream import JdbcStream, TapRun
    from tap_spark_jdbc.send.stream_reading import StreamReading
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.supply.stream_errors import StreamErrors
    from tap_spark_jdbc.wal.change_log import ChangeLog

logger = logging.getLogger("tap-spark-jdbc")

# The streams begun beyond the one being sent. Each has a connection for its bounds, and on
# PostgreSQL another for its snapshot.
MOST_PREFETCHED = 3
# The slices made of a stream that waits for its turn; the second slice shows whether it has more
# than one.
SLICES_AHEAD = 2


class StreamPrefetch:
    """The streams of a run, in order; a context manager around all of them."""

    def __init__(
        self,
        plans: Iterable[StreamPlan],
        make: Callable[[StreamPlan, ReadContext], StreamReading[Any]],
        context: ReadContext,
        *,
        alone: bool = False,
    ) -> None:
        """Nothing is begun yet.

        If the context's `n_jobs` is 1, or with `alone`, no stream is begun before its turn.
        """
        n_jobs = context.database.n_jobs
        self._waiting = deque(plans)
        self._make = make
        most = 1 + min(n_jobs, MOST_PREFETCHED) if n_jobs > 1 and not alone else 1
        self._most = min(most, context.database.streams_at_once or most)
        self._contexts = [replace(context, on_cut=self._go_on, on_trouble=self._withdraw)]
        self._free = list(self._contexts)
        self._begun: deque[tuple[StreamReading[Any], Future[None]]] = deque()
        self._lock = RLock()
        self._over = False

    @contextmanager
    def turn(self) -> Iterator[StreamReading[Any]]:
        """The next stream, whose turn the context is; SourceError: it can't be begun."""
        with self._lock:
            if not self._begun:
                self._begin()
            reading, begun = self._begun[0]
        try:
            try:
                result_of(begun)
            except ConnectionLostError:
                if len(self._contexts) == 1:
                    raise
                reading, begun = self._anew()
                result_of(begun)
            yield reading
        finally:
            with self._lock:
                if self._begun and self._begun[0][0] is reading:
                    self._let_go(self._begun.popleft()[0])
                self._go_on()

    def __enter__(self) -> StreamPrefetch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Begin nothing more; work under way is only awaited after a success."""
        with self._lock:
            self._over = True
            for reading, _begun in self._begun:
                reading.cancel()
        for executor in (*(each.planner for each in self._contexts), self._contexts[0].makers):
            executor.shutdown(wait=kind is None, cancel_futures=kind is not None)
        for context in self._contexts:
            context.snapshots.unwatch()

    def _go_on(self) -> None:
        """Begin streams as long as all slices of those before are cut."""
        with self._lock:
            while not self._over and self._waiting and len(self._begun) < self._most:
                if self._begun and not self._begun[-1][0].cut:
                    return
                self._begin()

    def _begin(self, *, patiently: bool = False) -> None:
        """Begin the next stream; the lock is held."""
        if not self._free:
            self._free.append(self._contexts[0].beside())
            self._contexts.append(self._free[-1])
        # The context that was used last already has its connections.
        context = self._free.pop()
        reading = self._make(self._waiting.popleft(), context)
        self._begun.append(
            (reading, context.planner.submit(_prepare, reading, patiently=patiently))
        )

    def _let_go(self, reading: StreamReading[Any]) -> None:
        """Release the context: its next work is queued after the end of the snapshot."""
        reading.cancel()
        reading.context.planner.submit(reading.context.snapshots.end)
        self._free.append(reading.context)

    def _withdraw(self, keep: int = 1) -> list[Future[None]]:
        """Free the connections of all but the first streams, because one broke, perhaps for lack of
        further connections at the server.
        """
        with self._lock:
            if self._over:
                return []
            if self._most > 1:
                logger.warning(
                    "from here on each stream begins after the one before, over as few connections "
                    "as possible"
                )
            self._most = 1
            while len(self._begun) > keep:
                reading, _ = self._begun.pop()
                self._waiting.appendleft(reading.plan)
                self._let_go(reading)
            return [each.planner.submit(each.database.disconnect) for each in self._free]

    def _anew(self) -> tuple[StreamReading[Any], Future[None]]:
        """Begin the first stream again, alone."""
        for closing in self._withdraw(keep=0):
            result_of(closing)
        with self._lock:
            # A server takes a moment to notice that a connection was closed.
            self._begin(patiently=True)
            return self._begun[0]


def _prepare(reading: StreamReading[Any], *, patiently: bool) -> None:
    if patiently:
        again(reading.context.database.connect)
    reading.begin()
    reading.start(SLICES_AHEAD)


def log_of(
    database: Database, snapshots: StreamSnapshots, state: RunState, pipeline: str
) -> ChangeLog[Any]:
    """The log of this kind of database; nothing is queried yet."""
    if database.source.dialect.name == "mariadb":
        from tap_spark_jdbc.binlog.binlog_run import BinlogRun

        return BinlogRun(database, state)
    from tap_spark_jdbc.wal.log_run import LogRun

    return LogRun(database, snapshots, state, pipeline)


def begin_log(
    streams: Iterable[JdbcStream], run: TapRun, pipeline: str, errors: StreamErrors
) -> ChangeLog[Any] | None:
    """The log, ready to be read; None if no stream is read from it."""
    chosen = [
        each
        for each in streams
        if each.plan.is_log_based and each.selected and each.name not in errors.reasons
    ]
    if not chosen:
        return None

    def taken_back(stream: str) -> Callable[[], None]:
        return partial(run.state.skip, stream, [stream])

    def prepared(streams: Sequence[JdbcStream]) -> ChangeLog[Any]:
        log = log_of(run.database, run.snapshots, run.state, pipeline)
        log.prepare([each.plan for each in streams])
        return log

    for each in chosen:
        if each.name in errors.strangers:
            with errors.of(each.name, taken_back(each.name)):
                log_of(run.database, run.snapshots, run.state, pipeline).check(each.plan)
    chosen = [each for each in chosen if each.name not in errors.reasons]
    known = [each for each in chosen if each.name not in errors.strangers]
    if not chosen:
        return None
    log: ChangeLog[Any] | None = None
    with errors.of_all({each.name: taken_back(each.name) for each in chosen}):
        try:
            log = prepared(chosen)
        except OF_A_STREAM as error:
            if errors.skips_all or not known or known == chosen:
                raise
            # Perhaps one of the streams that join is at fault, such as a table that this user may
            # not publish.
            for each in (each for each in chosen if each not in known):
                errors.skip(each.name, f"stream {each.name}: {one_line(error)}")
                taken_back(each.name)()
            log, chosen = prepared(known), known
    if log is None or any(each.name in errors.reasons for each in chosen):
        return None
    for each in chosen:
        each.plan, each.log_start = log.plans[each.name], log.starts.get(each.name)
    return log


def send_changes(
    log: ChangeLog[Any], streams: Iterable[JdbcStream], run: TapRun, errors: StreamErrors
) -> None:
    """Send the changes of the streams whose tables were read in an earlier run."""
    with errors.of_all({each.name: each.take_back for each in streams if log.reads(each.name)}):
        log.send(run.budget, run.progress)
