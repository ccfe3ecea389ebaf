"""One stream as it is read: its bounds and snapshot, then its slices as files. It can begin before its turn comes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING

from singer_spark import messages
from tap_spark_jdbc.boundary import Frame
from tap_spark_jdbc.boundary_checksum import without_unchanged
from tap_spark_jdbc.edges import Edges
from tap_spark_jdbc.extraction import Extraction
from tap_spark_jdbc.lost_connection import again
from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.spool import SliceSize, Spool, new_spool_folder, remove_spool_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tap_spark_jdbc.database import Database
    from tap_spark_jdbc.reader import SliceReader
    from tap_spark_jdbc.run_state import RunState
    from tap_spark_jdbc.settings import TapSettings
    from tap_spark_jdbc.spool import SpoolFile, SpoolThreads
    from tap_spark_jdbc.stream_plan import StreamPlan
    from tap_spark_jdbc.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.stream_sql import Point


@dataclass(frozen=True)
class Lane:
    """The connections over which streams are read, one after another.

    Attributes:
        database: With connections of the lane's own.
        snapshots: The snapshot of the stream that is read.
        threads: That work for it.
    """

    database: Database
    snapshots: StreamSnapshots
    threads: SpoolThreads


class StreamReading:
    """One stream in one run, over one lane."""

    def __init__(
        self,
        plan: StreamPlan,
        state: RunState,
        settings: TapSettings,
        lane: Lane,
        *,
        limit: int | None = None,
        all_cut: Callable[[], None] = lambda: None,
        troubled: Callable[[], None] = lambda: None,
    ) -> None:
        """Asks nothing yet.

        Args:
            plan: The stream.
            state: Where it starts.
            settings: The tap's.
            lane: Free for this stream until `end`.
            limit: At most so many rows, for a test of the connection.
            all_cut: See `Spool`.
            troubled: See `Spool`.
        """
        self.plan = plan
        self.lane = lane
        self._state = state
        self._settings = settings
        self._limit = limit
        self._all_cut = all_cut
        self._troubled = troubled
        self._folder: Path | None = None

    def begin(self) -> None:
        """Fixes the bounds and takes the snapshot.

        Raises:
            SourceError: the database refused, or there are NULL keys where the user wants none.
            StateError: the stream's bookmark can't be used.
        """
        plan, state, settings, database = self.plan, self._state, self._settings, self.lane.database
        # A stream that failed may have left its own, by which nothing new is seen.
        self.lane.snapshots.end()
        dialect, lag = database.source.dialect, settings.safety_lag_seconds
        began = Extraction.begin(database.connection, dialect, plan, state.bookmark(plan), lag, state.progress(plan))
        self.extraction = extraction = self.lane.snapshots.begin(began)
        self._frame = Frame(messages.record_prefix(plan.stream), messages.record_suffix(datetime.now(UTC)))
        self.edges = Edges(extraction, self._frame)
        self._size = SliceSize(settings.slice_rows, settings.fetch_size, in_memory=not database.shares_disk)
        self._changed: set[int] | None = None
        self._folder = new_spool_folder()
        self.spool = Spool(
            self._folder,
            self._slices(),
            self._render,
            self._size,
            database.n_jobs,
            self.lane.threads,
            all_cut=self._all_cut,
            troubled=self._troubled,
        )

    def files(self) -> Iterator[SpoolFile]:
        """The files in the order of their slices; each is deleted once the next one is asked for."""
        return self.spool.files()

    def give_up(self) -> None:
        """Nothing of it is wanted any more; its snapshot is still held."""
        if self._folder is not None:
            self.spool.give_up()
            remove_spool_folder(self._folder)

    def end(self) -> None:
        """Gives up, and lets go of the snapshot; never raises."""
        self.give_up()
        self.lane.snapshots.end()

    @cached_property
    def _reader(self) -> SliceReader:
        """Made when there is something to read: nobody starts Spark where there is not."""
        from tap_spark_jdbc.reader import SliceReader

        return SliceReader(self.lane.database.spark, self.lane.snapshots.source, self.extraction.sql, self._frame)

    def _slices(self) -> Iterator[Slice[Point]]:
        if self._limit is not None:
            yield Slice()
            return
        extraction = without_unchanged(self.extraction)
        if extraction is self.extraction and extraction.saved_buckets and extraction.sql.bookmark is not None:
            sums = again(partial(self._reader.bucket_sums, extraction.sql.bookmark, self._size.fetch_size()))
            self._changed = self.edges.changed_buckets(sums)
            extraction = extraction if self._changed else extraction.behind_bookmark()
        yield from extraction.slices(self._size.rows)

    def _render(self, each: Slice[Point], folder: Path) -> Path:
        fetch = self._size.fetch_size()
        return self._reader.render(each, folder, fetch_size=fetch, limit=self._limit, changed_buckets=self._changed)
