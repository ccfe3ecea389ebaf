"""A stream's slices as batch files: written by the executors, named in BATCH messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from singer_spark.singer import messages
from tap_spark_jdbc.extraction.slice_size import SliceSize
from tap_spark_jdbc.source.lost_connection import again
from tap_spark_jdbc.streams.stream_reading import StreamReading

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extraction.run_state import RunState
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.reading.batch_place import BatchFile, BatchPlace
    from tap_spark_jdbc.reading.batch_writer import BatchWriter, Written
    from tap_spark_jdbc.reading.edges import Found
    from tap_spark_jdbc.reading.lane import Lane

# Of a file as it is compressed; no row of it passes a pipe.
FILE_BYTES = 128_000_000


@dataclass(frozen=True)
class SliceBatch:
    """What was written of a slice.

    Attributes:
        slice: Which.
        files: None where there is nothing to send.
        found: What was read of it.
    """

    slice: Slice[Point]
    files: tuple[BatchFile, ...]
    found: Found


class BatchReading(StreamReading[SliceBatch]):
    """A stream whose records are sent as files."""

    def __init__(
        self,
        plan: StreamPlan,
        state: RunState,
        settings: TapSettings,
        lane: Lane,
        place: BatchPlace,
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
            place: Where the files go.
            all_cut: See `Ahead`.
            troubled: See `Ahead`.
        """
        super().__init__(plan, state, settings, lane, all_cut=all_cut, troubled=troubled)
        self._place = place
        # Bytes read for each byte of a file.
        self._expansion = 1.0

    def message(self, batch: SliceBatch) -> bytes:
        """The BATCH line that names a slice's files."""
        self._place.name(batch.files)
        return messages.batch_message(
            self.plan.stream,
            self._place.settings.encoding,
            [file.url for file in batch.files],
            files=[{"rows": file.rows, "bytes": file.size} for file in batch.files],
            time_extracted=self.extracted,
            record_metadata=self._writer.metadata,
        )

    def sent(self) -> Iterator[tuple[SliceBatch, int]]:
        """What was written, in the order of the slices, with its rows; it is to be named before the next is asked for.

        Raises:
            SourceError: the database refused.
            StorageError: a file can't be written.
        """
        for batch in self._begun.results():
            twins: list[BatchFile] = []
            rows = self.edges.settle(batch.found, partial(self._send_twins, batch.slice, twins))
            yield replace(batch, files=(*batch.files, *twins)), rows

    def _new_size(self) -> SliceSize:
        return SliceSize(*self._said, slice_bytes=FILE_BYTES, look=self._first_width)

    def _rows(self) -> int:
        # Nothing is known of the rows' width before the first slice is written.
        if not self.size.known:
            self._begun.wait_for_last()
        return self.size.rows()

    @cached_property
    def _writer(self) -> BatchWriter:
        from tap_spark_jdbc.reading.batch_writer import BatchWriter

        return BatchWriter(self.plan, self._reader, self._place, self.extracted)

    def _make(self, each: Slice[Point]) -> SliceBatch:
        look = self.edges.look(each)

        def write(fetch_size: int) -> tuple[str, Written]:
            folder = self._place.new_folder(self.plan.stream)
            written = self._writer.write(
                each, folder, fetch_size=fetch_size, look=look, wide=self.size.wide, changed_buckets=self._changed
            )
            return folder, written

        folder, written = self._fetching(write)
        found = written.found
        rows = found.rows - found.left_out(look.sent).total()
        files = self._files(folder, rows)
        if files:
            stored = files[0].size / rows
            if written.width is not None:
                self._expansion = written.width / stored
            self.size.learn(rows, files[0].size, stored * self._expansion)
        return SliceBatch(each, files, found)

    def _send_twins(self, each: Slice[Point], files: list[BatchFile], twins: Counter[str]) -> tuple[bytes, ...]:
        """Writes twins of rows that were sent before into a file of their own."""

        def write(fetch_size: int) -> tuple[bytes, ...]:
            folder, look = self._place.new_folder(self.plan.stream), self.edges.look(each)
            with self.reading():
                sent = self._writer.write_twins(each, folder, fetch_size=fetch_size, look=look, twins=twins)
            files.extend(self._files(folder, len(sent)))
            return sent

        return again(lambda: self._fetching(write))

    def _files(self, folder: str, rows: int) -> tuple[BatchFile, ...]:
        if rows:
            return (self._place.file(folder, rows),)
        # Spark writes one without rows, too.
        self._place.discard(folder)
        return ()
