"""A stream's slices as batch files: written by the executors, named in BATCH messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from singer_spark.core import messages
from tap_spark_jdbc.extract.slice_bounds import SliceSize, row_width
from tap_spark_jdbc.plan.slices import Slice, page_slices
from tap_spark_jdbc.send.stream_reading import StreamReading
from tap_spark_jdbc.supply.batch_location import BatchColumns
from tap_spark_jdbc.supply.reading_errors import reading_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extract.fingerprints import Found
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.supply.batch_location import BatchFile, BatchLocation
    from tap_spark_jdbc.supply.columnar_writer import SliceWriter
    from tap_spark_jdbc.supply.slice_prefetch import ReadContext

# The size of a compressed file; its rows do not pass through a pipe.
FILE_BYTES = 128_000_000
# Some databases scan the whole table for each slice of this size.
MOST_ROWS = 2_000_000
# The least factor by which a file is smaller than the rows read, for rows whose width was not
# measured.
COMPRESSION = 3
# Smaller slices would cost more than an idle core at the end does.
FEWEST_ROWS = 250_000
# For a table that is not cut by a key: 64 MB are not worth a second task, and 256 MB make a file of
# about 60 MB.
FEW_PAGES = 8_192
MOST_PAGES = 32_768


@dataclass(frozen=True)
class SliceBatch:
    """What was written of a slice; no file if there is nothing to send."""

    slice: Slice[Point]
    file: BatchFile | None
    found: Found


class BatchReading(StreamReading[SliceBatch]):
    """A stream whose records are sent as files."""

    def __init__(
        self,
        plan: StreamPlan,
        context: ReadContext,
        state: RunState,
        settings: TapSettings,
        location: BatchLocation,
    ) -> None:
        super().__init__(plan, context, state, settings)
        self._location = location
        self.as_json = location.settings.format == "jsonl"
        # Bytes read for each byte of a file.
        self._expansion = 1.0

    def message(self, file: BatchFile) -> bytes:
        """The BATCH line that names a slice's file."""
        self._location.name(file)
        return messages.batch_message(
            self.plan.stream,
            self._location.settings.encoding,
            [file.url],
            files=[{"rows": file.rows, "bytes": file.size}],
            time_extracted=self.extracted,
            record_metadata=self._columns.metadata,
        )

    def sent(self) -> Iterator[SliceBatch]:
        """The slices' batches in order.

        Name a batch's file in a message before requesting the next one.
        """
        for batch in self._begun.results():
            self.account.record(batch.found)
            yield batch

    def _new_size(self) -> SliceSize:
        return SliceSize(*self._fixed_sizes, slice_bytes=FILE_BYTES, look=self._first_width)

    def _rows(self) -> int:
        # The rows' width is unknown before the first slice is written.
        if not self.size.known:
            if self._begins_at_large and self._unmeasured_rows >= FEWEST_ROWS:
                return self._unmeasured_rows
            self._begun.wait_for_last()
            if not self.size.known:
                return self.size.rows()
        return self.size.rows(self._most_rows)

    @property
    def _begins_at_large(self) -> bool:
        """Whether a process of its own would be started for a first slice of few rows, which costs
        as much as many.
        """
        return (
            not self.extraction.is_delta and self._columnar is not None and self._columnar.is_apart
        )

    @cached_property
    def _unmeasured_rows(self) -> int:
        """The rows of a slice by the widths of their types, and of the first rows where those are
        unbounded.
        """
        # Statistics are off by a few per cent: a last slice of these rows would cost a process.
        most = self._most_rows + self._most_rows // 10
        return min(most, int(COMPRESSION * FILE_BYTES / row_width(self.plan, self.size.guessed)))

    @cached_property
    def _most_rows(self) -> int:
        """The most rows a slice may have, so that all slices of a whole table end at about the same
        time.
        """
        rows, jobs = self.plan.table.row_estimate, self.context.database.n_jobs
        if not rows or self.extraction.sql.bookmark is not None:
            return MOST_ROWS
        # An old estimate may be far too low.
        return max(-(-rows // (jobs * -(-rows // (jobs * MOST_ROWS)))), FEWEST_ROWS)

    def _slices(self) -> Iterator[Slice[Point]]:
        if self.plan.replication_key is None and self.extraction.sql.split is None:
            snapshots = self.context.snapshots
            # A row written meanwhile moves to another page, so all pages are read in one snapshot,
            # or in one slice.
            pages = snapshots.server.pages(self.plan.table) if snapshots.held is not None else 0
            if pages > FEW_PAGES and not self.extraction.progress.complete:
                yield from page_slices(pages, MOST_PAGES, self.context.database.n_jobs)
                return
        yield from super()._slices()

    @cached_property
    def _columns(self) -> BatchColumns:
        return BatchColumns(self.plan, self._location, self.extracted)

    @cached_property
    def _writer(self) -> SliceWriter:
        from tap_spark_jdbc.supply.columnar_writer import SliceWriter

        job_errors = partial(reading_errors, self.plan, self.context.snapshots.source)
        return SliceWriter(
            self._columns, self._columnar, lambda: self._reader, self.context.database, job_errors
        )

    def _unfit(self) -> str | None:
        if self._location.settings.format != "parquet":
            return f"it writes Parquet, and batch_config asks for {self._location.settings.format}"
        return self._unfit_columns()

    def _make(self, each: Slice[Point]) -> SliceBatch:
        look = self.account.look(each)
        written = self._fetching(
            lambda rows: self._writer.write(
                each, self.account.sent, fetch_size=rows, look=look, wide=self.size.wide
            )
        )
        file = written.file
        if not file.rows:
            self._location.discard(file.folder)
            return SliceBatch(each, None, written.found)
        stored = file.size / file.rows
        if written.width is not None:
            self._expansion = written.width / stored
        self.size.learn(file.rows, file.size, stored * self._expansion)
        return SliceBatch(each, file, written.found)
