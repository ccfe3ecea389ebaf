"""One stream as it is read: its bounds and snapshot, then its slices. It can begin before its turn comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from singer_spark.singer import messages
from tap_spark_jdbc.extraction.extraction import Extraction
from tap_spark_jdbc.extraction.fingerprints import Frame
from tap_spark_jdbc.extraction.slice_bounds import first_width
from tap_spark_jdbc.extraction.slice_size import FETCH_BOUND
from tap_spark_jdbc.reading.bookmark_checksum import without_unchanged
from tap_spark_jdbc.reading.edges import Edges
from tap_spark_jdbc.reading.slices_ahead import Ahead
from tap_spark_jdbc.reading.source_keys import PresentKeys
from tap_spark_jdbc.source.lost_connection import again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extraction.run_state import RunState
    from tap_spark_jdbc.extraction.slice_size import SliceSize
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.reading.lane import Lane
    from tap_spark_jdbc.reading.spark_reader import SliceReader

R = TypeVar("R")
T = TypeVar("T")
# Slices of keys that are rendered before the last record is sent.
KEYS_AHEAD = 2


class StreamReading(ABC, Generic[R]):
    """One stream in one run, over one lane; what becomes of a slice is a subclass's to say.

    Attributes:
        plan: The stream.
        lane: Free for this stream until `end`.
        keys: The keys of all rows, where they are sent behind the records.
    """

    def __init__(
        self,
        plan: StreamPlan,
        state: RunState,
        settings: TapSettings,
        lane: Lane,
        *,
        all_cut: Callable[[], None] = lambda: None,
        troubled: Callable[[], None] = lambda: None,
    ) -> None:
        """Asks nothing yet.

        Args:
            plan: The stream.
            state: Where it starts.
            settings: The tap's.
            lane: Over which it is read.
            all_cut: See `Ahead`.
            troubled: See `Ahead`.
        """
        self.plan = plan
        self.lane = lane
        self.keys = PresentKeys(plan, settings, lane) if plan.detect_deletes else None
        self._state = state
        self._settings = settings
        self._all_cut = all_cut
        self._troubled = troubled
        self._ahead: Ahead[R] | None = None
        self._alone = Lock()

    def begin(self) -> None:
        """Fixes the bounds and takes the snapshot.

        Raises:
            SourceError: the database refused, or there are NULL keys where the user wants none.
            StateError: the stream's bookmark can't be used.
        """
        plan, state, database, snapshots = self.plan, self._state, self.lane.database, self.lane.snapshots
        # A stream that failed may have left its own, by which nothing new is seen.
        snapshots.end()
        dialect, lag = database.source.dialect, self._settings.safety_lag_seconds
        began = Extraction.begin(database.connection, dialect, plan, state.bookmark(plan), lag, state.progress(plan))
        self.extraction = snapshots.begin(began)
        self.reading = snapshots.reading
        self.extracted = datetime.now(UTC)
        self.frame = Frame(messages.record_prefix(plan.stream), messages.record_suffix(self.extracted))
        self.edges = Edges(self.extraction, self.frame)
        self.size = self._new_size()
        self._changed: set[int] | None = None
        self._ahead = Ahead(
            self._undisturbed_slices(),
            self._made,
            database.n_jobs,
            self.lane.threads,
            all_cut=self._go_on,
            troubled=self._troubled,
        )

    def start(self, most: int) -> None:
        """Begins with slices, so many, that nobody asks for yet; it has begun."""
        self._begun.start(most)

    def give_up(self) -> None:
        """Nothing of it is wanted any more; its snapshot is still held."""
        if self._ahead is not None:
            self._ahead.give_up()
        if self.keys is not None:
            self.keys.give_up()

    def end(self) -> None:
        """Gives up, and lets go of the snapshot; never raises."""
        self.give_up()
        self.lane.snapshots.end()

    @abstractmethod
    def _new_size(self) -> SliceSize:
        """How large slices are."""

    @abstractmethod
    def _make(self, each: Slice[Point]) -> R:
        """Reads a slice, in a thread of its own."""

    @property
    def _begun(self) -> Ahead[R]:
        if self._ahead is None:
            raise ValueError(f"stream {self.plan.stream} was not begun")
        return self._ahead

    @cached_property
    def _reader(self) -> SliceReader:
        """Made when there is something to read: nobody starts Spark where there is not."""
        return self._new_reader(None if self._settings.fetch_size is not None else FETCH_BOUND)

    def _new_reader(self, fetch_bytes: int | None) -> SliceReader:
        from tap_spark_jdbc.reading.spark_reader import SliceReader

        spark, source = self.lane.database.spark, self.lane.snapshots.source
        return SliceReader(spark, source, self.extraction.sql, self.frame, fetch_bytes=fetch_bytes)

    def _fetching(self, read: Callable[[int], T]) -> T:
        """Reads by so many rows a round trip as are thought right, and by fewer where they turn out too wide."""
        from tap_spark_jdbc.reading.spark_reader import TooWideError

        while True:
            rows = self.size.fetch_size()
            try:
                with self._alone if self.size.wide else nullcontext():
                    return read(rows)
            except TooWideError:
                self.size.fetch_fewer(rows)

    @property
    def _said(self) -> tuple[int | None, int | None]:
        """Rows a slice and rows a round trip, where these are no matter of the rows' width."""
        return self._settings.slice_rows, self._settings.fetch_size or self.lane.database.source.dialect.fetch_size

    def _first_width(self) -> float | None:
        return first_width(self.extraction.connection, self.extraction.sql)

    def _rows(self) -> int:
        """How many rows the next slice should have."""
        return self.size.rows()

    def _made(self, each: Slice[Point]) -> R:
        with self.reading():
            return self._make(each)

    def _undisturbed_slices(self) -> Iterator[Slice[Point]]:
        slices = self._slices()
        while True:
            with self.reading():
                each = next(slices, None)
            if each is None:
                return
            yield each

    def _slices(self) -> Iterator[Slice[Point]]:
        extraction = without_unchanged(self.extraction)
        if extraction is self.extraction and extraction.saved_buckets and extraction.sql.bookmark is not None:
            read = partial(self._reader.bucket_sums, extraction.sql.bookmark)
            sums = again(lambda: self._fetching(read))
            self._changed = self.edges.changed_buckets(sums)
            extraction = extraction if self._changed else extraction.behind_bookmark()
        yield from extraction.slices(self._rows)

    def _go_on(self) -> None:
        """All is cut. Without a snapshot keys are read last: a row may come between them and the records."""
        if self.keys is not None and self.lane.snapshots.held is not None:
            self.keys.start(KEYS_AHEAD)
        self._all_cut()
