"""A stream's slices as files of RECORD lines, sent as rendered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.core.scratch import scratch_folder
from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.slice_bounds import (
    FIRST_FETCH_SIZE,
    SCAN_FETCHED,
    SliceSize,
    long_columns,
)
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.send.stream_reading import StreamReading
from tap_spark_jdbc.supply.spool import Lines, Spool, SpoolFile, one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tap_spark_jdbc.extract.fingerprints import Look
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.supply.columnar_query import Outcome
    from tap_spark_jdbc.supply.columnar_source import ColumnarSource
    from tap_spark_jdbc.supply.record_lines import RecordLines
    from tap_spark_jdbc.supply.streamed_lines import LineFile


class LineReading(StreamReading["SpoolFile | Iterator[SpoolFile]"]):
    """A stream whose records are sent as lines."""

    as_json = True

    _limit: int | None = None
    _spool: Spool | None = None

    def limit(self, rows: int) -> None:
        """Read at most `rows` rows, and no keys, for a connection test."""
        self._limit, self.keys = rows, None

    def sent(self) -> Iterator[SpoolFile]:
        """The files in the order of their slices.

        Each is deleted when the next one is requested.
        """
        for file in one_by_one(self._begun.results()):
            if file.found is not None:
                self.account.record(file.found)
            else:
                self.account.begin_pieces()
            yield file

    def cancel(self) -> None:
        """Cancel reading; the stream's snapshot is still held."""
        super().cancel()
        if self._spool is not None:
            self._spool.remove()

    def _new_size(self) -> SliceSize:
        database = self.context.database
        size = SliceSize(*self._fixed_sizes, in_memory=database.by_spark, look=self._first_width)
        size.share(2 * database.n_jobs)
        self._spool = Spool(size)
        return size

    def _make(self, each: Slice[Point]) -> SpoolFile | Iterator[SpoolFile]:
        spool, look = self._spool, self.account.look(each)
        assert spool is not None
        if not self._is_scan(each):
            return self._fetching(
                lambda rows: spool.file(each, lambda opened: self._lines(each, look, opened, rows))
            )
        # What was sent can't be fetched again, so few rows are fetched at a time, whatever their
        # width.
        rows = min(
            self.size.fetch_size(), SCAN_FETCHED if long_columns(self.plan) else FIRST_FETCH_SIZE
        )
        rows = self._settings.fetch_size or rows

        def render(opened: Callable[[], LineFile]) -> Lines:
            # It continues to run long after this slice counts as made.
            with self.reading():
                return self._lines(each, look, opened, rows, is_scan=True)

        return spool.stream(each, render, self.context.on_trouble, self.account.record)

    def _lines(
        self,
        each: Slice[Point],
        look: Look,
        opened: Callable[[], LineFile],
        fetch_size: int,
        *,
        is_scan: bool = False,
    ) -> Lines:
        """Write the lines of a slice, without those of rows that were sent before."""
        from tap_spark_jdbc.supply.boundary_rows import BoundaryRows
        from tap_spark_jdbc.supply.record_lines import RecordLines

        columnar, outcome = self._columnar, None
        if columnar is not None and (not is_scan or columnar.streams()) and columnar.reads(each):
            boundary_rows = BoundaryRows(look, self.account.sent)
            with RecordLines(opened, self.frame, boundary_rows.unsent) as lines:
                outcome = self._by_columns(columnar, each, lines, is_scan=is_scan)
        if outcome is None:
            boundary_rows = BoundaryRows(look, self.account.sent)
            with RecordLines(opened, self.frame, boundary_rows.unsent) as lines:
                outcome = self._reader.read(
                    each,
                    lines,
                    str(scratch_folder()),
                    fetch_size,
                    limit=self._limit or 0,
                    bounded=not is_scan,
                )
        return Lines(boundary_rows.found(outcome.read, outcome.nulls), outcome.rows)

    def _by_columns(
        self, columnar: ColumnarSource, each: Slice[Point], lines: RecordLines, *, is_scan: bool
    ) -> Outcome | None:
        """Write lines by the columnar driver; None: the slice must be read over JDBC."""
        from tap_spark_jdbc.supply.columnar_query import read

        outcome = read(columnar.query(each, self._limit), lines, self.context.database.columnar)
        if columnar.has_read(outcome, str(scratch_folder())):
            return outcome
        if lines.rows and is_scan:
            # Its rows may already have been sent.
            raise SourceError(
                TapCode.READING_FAILED, f"stream {self.plan.stream}: {columnar.reason(outcome)}"
            )
        return None

    def _is_scan(self, each: Slice[Point]) -> bool:
        """Whether a slice may be a whole table that can't be cut."""
        key = self.plan.replication_key
        unbounded = key is None or (each.key is not None and not key.indexed)
        return (
            self._limit is None
            and unbounded
            and self.extraction.sql.split is None
            and not each.late
        )

    def _slices(self) -> Iterator[Slice[Point]]:
        if self._limit is None:
            yield from super()._slices()
        else:
            yield Slice()
