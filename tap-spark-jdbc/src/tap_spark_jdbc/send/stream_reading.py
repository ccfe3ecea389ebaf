"""The reading of one stream: its bounds and snapshot, then its slices.

It can begin before the stream's turn.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from singer_spark.core import messages
from singer_spark.engine.session import import_pyspark
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.extraction import Extraction
from tap_spark_jdbc.extract.fingerprints import Frame, without_unchanged
from tap_spark_jdbc.extract.late_window import LateWindow
from tap_spark_jdbc.extract.slice_bounds import FETCH_BOUND, SliceSize, first_width
from tap_spark_jdbc.extract.stream_progress import RunBudget
from tap_spark_jdbc.source.connection_errors import again
from tap_spark_jdbc.supply.boundary_account import BoundaryAccount
from tap_spark_jdbc.supply.slice_prefetch import ReadContext, SlicePrefetch
from tap_spark_jdbc.supply.stream_errors import TooWideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extract.fingerprints import WindowSums
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.supply.columnar_source import ColumnarSource
    from tap_spark_jdbc.supply.jdbc_reader import JdbcReader

logger = logging.getLogger("tap-spark-jdbc")

R = TypeVar("R")
T = TypeVar("T")
# Slices of keys rendered before the last record is sent.
KEYS_AHEAD = 2


class StreamReading(ABC, Generic[R]):
    """One stream in one run, read over one context; a subclass defines what a slice is made into.

    Attributes:
        context: The context, which no other stream uses until `end`.
        keys: Reads the keys of all rows, if they are sent after the records.
        budget: The run's limits.
        stopped_at: Where the run's budget ended the stream; None: it is read to its upper bound.
        cut: Whether all of its slices are known.
        moment: The server's text of the snapshot that shows what is read, for a stream that
            continues in the database's log.
        as_json: Whether its rows become JSON.
        must_be_columnar: Whether to raise an error if the columnar driver was requested but can't
            read the stream.
    """

    must_be_columnar = True
    as_json = False

    def __init__(
        self, plan: StreamPlan, context: ReadContext, state: RunState, settings: TapSettings
    ) -> None:
        self.plan = plan
        self.context = context
        self.keys: StreamReading[Any] | None = None
        self.budget = RunBudget()
        self.stopped_at: Point | None = None
        self.cut = False
        self._state = state
        self._settings = settings
        self._prefetch: SlicePrefetch[R] | None = None
        self._alone = Lock()

    def begin(self) -> None:
        """Fix the bounds and take the snapshot.

        Raises:
            SourceError: the database refused, or there are NULL keys and the settings forbid them.
            StateError: the stream's bookmark can't be used.
        """
        plan, state = self.plan, self._state
        database, snapshots = self.context.database, self.context.snapshots
        # A failed stream may have left its snapshot, in which nothing new is visible.
        snapshots.end()
        dialect = database.source.dialect
        began = Extraction.begin(
            database.connection,
            dialect,
            plan,
            state.bookmark(plan),
            LateWindow.of(plan, self._settings, dialect),
            state.progress(plan),
            may_end_early=self._settings.has_budget,
            oldest=database.oldest_transaction,
        )
        extraction, self.extracted = snapshots.begin(began), datetime.now(UTC)
        suffix = messages.record_suffix(self.extracted)
        self._prepare(extraction, Frame(messages.record_prefix(plan.stream), suffix))

    def _prepare(self, extraction: Extraction, frame: Frame) -> None:
        self.extraction = extraction
        self.frame = frame
        self.moment = self.context.snapshots.moment() if self.plan.is_log_based else ""
        self.reading = self.context.snapshots.reading
        self.account = BoundaryAccount(extraction)
        self.size = self._new_size()
        self._prefetch = SlicePrefetch(self._undisturbed_slices(), self._made, self.context)

    def start(self, most: int) -> None:
        """Begin up to `most` slices before they are requested; to be called after `begin`."""
        self._begun.start(most)

    def cancel(self) -> None:
        """Cancel reading; the stream's snapshot is still held."""
        if self._prefetch is not None:
            self._prefetch.cancel()
        if self.keys is not None:
            self.keys.cancel()

    @abstractmethod
    def _new_size(self) -> SliceSize:
        """The size of slices."""

    @abstractmethod
    def _make(self, each: Slice[Point]) -> R:
        """Read a slice, in a thread of its own."""

    @property
    def _begun(self) -> SlicePrefetch[R]:
        assert self._prefetch is not None
        return self._prefetch

    @cached_property
    def _reader(self) -> JdbcReader:
        """The stream as it is read over JDBC."""
        database, source = self.context.database, self.context.snapshots.source
        reader: type[JdbcReader]
        if database.by_spark:
            import_pyspark()  # a session's thread may be importing it as well
            from tap_spark_jdbc.supply.spark_reader import SparkReader as reader
        else:
            from tap_spark_jdbc.supply.jdbc_reader import JvmReader as reader
        sql, as_json = self.extraction.sql, self.as_json
        fetch_bytes = None if self._settings.fetch_size is not None else FETCH_BOUND
        return reader(database, source, sql, as_json=as_json, fetch_bytes=fetch_bytes)

    @cached_property
    def _columnar(self) -> ColumnarSource | None:
        """The stream as the database's columnar driver reads it; None: its rows are read over JDBC.

        Raises:
            ConfigurationError: the user chose this reader, and it can't read the stream.
        """
        database, only = self.context.database, self._settings.reader == "arrow"
        driver = database.source.dialect.columnar_driver
        if self._settings.reader == "jdbc" or database.only_spark or (driver is None and not only):
            return None
        why_not = _lacking(driver) or self._unfit()
        if why_not is None:
            from tap_spark_jdbc.supply.columnar_source import ColumnarSource

            return ColumnarSource(
                self.extraction.sql, self.context, self.size, only=only, as_json=self.as_json
            )
        if only and self.must_be_columnar:
            raise ConfigurationError(
                TapCode.READER_UNSUITABLE,
                f"stream {self.plan.stream}: reader arrow can't read it: {why_not}; use jdbc",
            )
        logger.info("stream %s: read over JDBC: %s", self.plan.stream, why_not)
        return None

    def _unfit(self) -> str | None:
        """Why the database's columnar driver can't read the stream; None if it can."""
        return "Spark's tasks read it" if self.context.database.by_spark else self._unfit_columns()

    def _unfit_columns(self) -> str | None:
        from tap_spark_jdbc.supply.columnar_source import unfit

        return unfit(self.plan, self.context)

    def _fetching(self, read: Callable[[int], T]) -> T:
        """Read with a suitable number of rows a round trip, fewer if they are too wide."""
        while True:
            rows = self.size.fetch_size()
            try:
                with self._alone if self.size.wide else nullcontext():
                    return read(rows)
            except TooWideError:
                self.size.fetch_fewer(rows)

    @property
    def _fixed_sizes(self) -> tuple[int | None, int | None]:
        """Rows a slice and rows a round trip, if they don't depend on the rows' width."""
        best = self.context.database.source.dialect.fetch_size
        return self._settings.slice_rows, self._settings.fetch_size or best

    def _first_width(self) -> float | None:
        return first_width(self.extraction.connection, self.extraction.sql)

    def _rows(self) -> int:
        """The number of rows the next slice should have."""
        return self.size.rows()

    def _made(self, each: Slice[Point]) -> R:
        with self.reading():
            return self._make(each)

    def _undisturbed_slices(self) -> Iterator[Slice[Point]]:
        slices = self._slices()
        last: Slice[Point] | None = None
        while True:
            with self.reading():
                each = None if self._ends_behind(last) else next(slices, None)
            if each is None:
                break
            self.budget.cut(each.most or 0)
            yield (last := each)
        # Without a snapshot, keys are read last, because a row may be added between them and the
        # records.
        if self.keys is not None and self.context.snapshots.held is not None:
            self.keys.start(KEYS_AHEAD)
        self.cut = True
        self.context.on_cut()

    def _ends_behind(self, last: Slice[Point] | None) -> bool:
        """Whether the run's budget is spent and the next run can continue after this slice."""
        if last is None or self.budget.spent is None or not self.account.may_end_behind(last):
            return False
        self.stopped_at = last.resume_at
        self.budget.stop()
        return True

    def _rows_left(self) -> int:
        """The rows the next slice should have, within the run's budget if that ends the stream."""
        rows, key = self._rows(), self.plan.replication_key
        may_end = key is not None and key.indexed and self.plan.end_value is None
        return self.budget.bounded(rows) if may_end else rows

    def _slices(self) -> Iterator[Slice[Point]]:
        extraction = without_unchanged(self.extraction)
        at_bookmark = extraction is self.extraction and extraction.sql.bookmark is not None
        if at_bookmark and extraction.saved_buckets:
            changed = self.account.changed_buckets(*self._bucket_sums())
            extraction = extraction if changed else extraction.behind_bookmark()
        yield from extraction.slices(self._rows_left)

    def _bucket_sums(self) -> tuple[WindowSums, WindowSums | None]:
        return again(lambda: self._fetching(self._reader.bucket_sums))


def _lacking(columnar_driver: str | None) -> str | None:
    """The first part of the columnar driver that is not installed, if any."""
    modules = () if columnar_driver is None else ("pyarrow", columnar_driver)
    lacking = next((name for name in modules if find_spec(name) is None), None)
    return None if lacking is None else f"{lacking} is not installed"
