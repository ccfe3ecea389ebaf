"""A stream's slices as files of RECORD lines, sent as rendered."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError
from tap_spark_jdbc.extraction.fingerprints import cut_out, found_in
from tap_spark_jdbc.extraction.slice_bounds import long_columns
from tap_spark_jdbc.extraction.slice_size import FIRST_FETCH_SIZE, SCAN_FETCHED, SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.reading.spool import Spool, SpoolFile, one_by_one
from tap_spark_jdbc.streams.stream_reading import StreamReading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tap_spark_jdbc.columnar.columnar_source import ColumnarSource
    from tap_spark_jdbc.plan.stream_sql import Point


class LineReading(StreamReading["SpoolFile | Iterator[SpoolFile]"]):
    """A stream whose records are sent as lines."""

    as_json = True

    _limit: int | None = None
    _spool: Spool | None = None

    def limit(self, rows: int) -> None:
        """Read at most `rows` rows, and no keys, for a connection test."""
        self._limit, self.keys = rows, None

    def files(self) -> Iterator[SpoolFile]:
        """The files in the order of their slices; each is deleted when the next one is requested."""
        return one_by_one(self._begun.results())

    def sent(self) -> Iterator[tuple[SpoolFile, int]]:
        """The files without the rows that were sent before, each with its rows."""
        for file in self.files():
            looked_at = self.edges.look(file.slice)
            dropped = self.edges.settle(found_in(file.path, self.frame, file.rows, looked_at))
            cut_out(file.path, self.frame, dropped)
            yield file, file.rows - len(dropped)

    def give_up(self) -> None:
        """Cancel reading; the stream's snapshot is still held."""
        super().give_up()
        if self._spool is not None:
            self._spool.remove()

    def _new_size(self) -> SliceSize:
        database = self.lane.database
        size = SliceSize(*self._fixed_sizes, in_memory=not database.shares_disk, look=self._first_width)
        size.share(2 * database.n_jobs)
        self._spool = Spool(size)
        return size

    def _make(self, each: Slice[Point]) -> SpoolFile | Iterator[SpoolFile]:
        spool = self._spool
        assert spool is not None
        if not self._is_scan(each):
            return self._fetching(lambda rows: spool.file(each, lambda folder: self._rendered(each, folder, rows)))
        # What was sent can't be fetched anew, so few rows are fetched at a time, whatever their width.
        rows = min(self.size.fetch_size(), SCAN_FETCHED if long_columns(self.plan) else FIRST_FETCH_SIZE)
        rows = self._settings.fetch_size or rows

        def stream(pipe: Path) -> None:
            # It runs on long after this slice counts as made.
            with self.reading():
                self._stream(each, pipe, rows)

        return spool.stream(each, stream, self.lane.on_trouble)

    def _rendered(self, each: Slice[Point], folder: Path, fetch_size: int) -> tuple[Path, int]:
        """Render a slice into the single file of a new folder; returns the file and its rows."""
        path = folder / "lines.txt"
        rows = None if self._columnar is None else self._written(self._columnar, each, path)
        if rows is None:
            shutil.rmtree(folder, ignore_errors=True)
            return self._reader.render(each, folder, fetch_size=fetch_size, limit=self._limit)
        return path, rows

    def _stream(self, each: Slice[Point], pipe: Path, fetch_size: int) -> None:
        """Render a slice of any size into a named pipe."""
        # Once rows are sent, the slice can't be handed over to Spark any more, as is done for too many rows at an edge.
        columnar = self._columnar
        if columnar is None or not columnar.streams() or self._written(columnar, each, pipe) is None:
            self._reader.stream(each, pipe, fetch_size=fetch_size)

    def _written(self, columnar: ColumnarSource, each: Slice[Point], path: Path) -> int | None:
        """Write the lines of a slice by the columnar driver; None: Spark must render them."""
        from tap_spark_jdbc.columnar.columnar_query import read
        from tap_spark_jdbc.columnar.record_lines import RecordLines

        if not columnar.reads(each, self.edges.look(each)):
            return None
        with RecordLines(path, self.frame, columnar.number) as lines:
            outcome = read(columnar.query(each, self._limit), lines, self.lane.database.columnar)
        if columnar.has_read(outcome, str(path)):
            return outcome.rows
        if lines.rows and path.is_fifo():
            # Its rows may already have been sent.
            raise SourceError(
                f"stream {self.plan.stream}: {outcome.refused}; "
                "set its type_overrides to text (reader jdbc names the value)"
            )
        return None

    def _unfit(self) -> str | None:
        from tap_spark_jdbc.columnar.columnar_source import unfit

        if self.lane.database.by_spark:
            return "Spark's tasks render its lines"
        return unfit(self.plan, self.lane)

    def _is_scan(self, each: Slice[Point]) -> bool:
        """Whether a slice may be a whole table that can't be cut."""
        key = self.plan.replication_key
        unbounded = key is None or (each.key is not None and not key.indexed)
        return self._limit is None and unbounded and self.extraction.sql.split is None and not each.late

    def _slices(self) -> Iterator[Slice[Point]]:
        if self._limit is None:
            yield from super()._slices()
        else:
            yield Slice()
