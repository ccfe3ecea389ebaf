"""A stream's slices as files of RECORD lines, which are sent as they are rendered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tap_spark_jdbc.extraction.slice_bounds import long_columns
from tap_spark_jdbc.extraction.slice_size import FIRST_FETCH_SIZE, SCAN_FETCHED, SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.reading.spool import Spool, SpoolFile, SpoolStream, one_by_one
from tap_spark_jdbc.streams.stream_reading import StreamReading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tap_spark_jdbc.plan.stream_sql import Point


class LineReading(StreamReading[SpoolFile | SpoolStream]):
    """A stream whose records are sent as lines."""

    _limit: int | None = None
    _spool: Spool | None = None

    def limit(self, rows: int) -> None:
        """Reads at most so many rows, and no keys, for a test of the connection."""
        self._limit, self.keys = rows, None

    def files(self) -> Iterator[SpoolFile]:
        """The files in the order of their slices; each is deleted once the next one is asked for."""
        return one_by_one(self._begun.results())

    def give_up(self) -> None:
        """Nothing of it is wanted any more; its snapshot is still held."""
        super().give_up()
        if self._spool is not None:
            self._spool.remove()

    def _new_size(self) -> SliceSize:
        database = self.lane.database
        size = SliceSize(*self._said, in_memory=not database.shares_disk, look=self._first_width)
        size.share(2 * database.n_jobs)
        self._spool = Spool(size)
        return size

    def _make(self, each: Slice[Point]) -> SpoolFile | SpoolStream:
        spool, reader, limit = self._spool, self._reader, self._limit
        assert spool is not None
        if self._is_scan(each):
            # What was sent of it can't be fetched anew: rows of any width come few at a time.
            rows = min(self.size.fetch_size(), SCAN_FETCHED if long_columns(self.plan) else FIRST_FETCH_SIZE)
            if self._settings.fetch_size is not None:
                rows = self._settings.fetch_size
            scan = self._new_reader(fetch_bytes=None).stream

            def stream(pipe: Path) -> None:
                # It goes on long after this slice counts as made.
                with self.reading():
                    scan(each, pipe, fetch_size=rows, changed_buckets=self._changed)

            return spool.stream(each, stream, self._troubled)

        def read(fetch_size: int) -> SpoolFile:
            return spool.file(
                each,
                lambda folder: reader.render(
                    each, folder, fetch_size=fetch_size, limit=limit, changed_buckets=self._changed
                ),
            )

        return self._fetching(read)

    def _is_scan(self, each: Slice[Point]) -> bool:
        """Whether a slice may be a whole table, and there is no way to cut it."""
        key = self.plan.replication_key
        unbounded = key is None or (each.key is not None and not key.indexed)
        return self._limit is None and unbounded and self.extraction.sql.split is None and not each.late

    def _slices(self) -> Iterator[Slice[Point]]:
        if self._limit is None:
            yield from super()._slices()
        else:
            yield Slice()
