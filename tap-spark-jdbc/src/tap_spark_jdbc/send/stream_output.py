"""What becomes of a stream's slices: files of RECORD lines, sent as rendered, or batch files, named
in BATCH messages; and the keys that its table holds now.

Keys are sent after the stream's records: a row whose key is not among them is gone. They form a
stream of their own that is always sent whole and is not in STATE, so what a dead run sent of them
is void.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from singer_spark.core import messages, stdout
from singer_spark.core.scratch import scratch_folder
from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.extraction import Extraction
from tap_spark_jdbc.extract.fingerprints import Frame
from tap_spark_jdbc.extract.slice_bounds import (
    FIRST_FETCH_SIZE,
    SCAN_FETCHED,
    SliceSize,
    long_columns,
    row_width,
)
from tap_spark_jdbc.plan.slices import Slice, page_slices
from tap_spark_jdbc.plan.stream_choice import FULL_TABLE
from tap_spark_jdbc.send.stream_reading import StreamReading
from tap_spark_jdbc.supply.batch_location import BatchColumns
from tap_spark_jdbc.supply.slice_prefetch import Lines, Spool, SpoolFile, one_by_one
from tap_spark_jdbc.supply.stream_errors import reading_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extract.fingerprints import Found, Look
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.supply.batch_files import SliceWriter
    from tap_spark_jdbc.supply.batch_location import BatchFile, BatchLocation
    from tap_spark_jdbc.supply.columnar_query import Outcome
    from tap_spark_jdbc.supply.columnar_source import ColumnarSource
    from tap_spark_jdbc.supply.record_lines import RecordLines
    from tap_spark_jdbc.supply.slice_prefetch import LineFile, ReadContext

logger = logging.getLogger("tap-spark-jdbc")

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


class LineReading(StreamReading["SpoolFile | Iterator[SpoolFile]"]):
    """A stream whose records are sent as lines."""

    as_json = True

    _limit: int | None = None
    _spool: Spool | None = None

    def limit(self, rows: int) -> None:
        """Read at most `rows` rows, and no keys, for a connection test."""
        self._limit, self.keys = rows, None

    def sent(self) -> Iterator[SpoolFile]:
        """The files in the slices' order, each deleted when the next one is requested."""
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
        # What was sent can't be fetched again, so few rows are fetched at a time.
        most = SCAN_FETCHED if long_columns(self.plan) else FIRST_FETCH_SIZE
        rows = self._settings.fetch_size or min(self.size.fetch_size(), most)

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
        from tap_spark_jdbc.supply.record_lines import BoundaryRows, RecordLines

        columnar, outcome = self._columnar, None
        if columnar is not None and (not is_scan or columnar.streams()) and columnar.reads(each):
            rows = BoundaryRows(look, self.account.sent)
            with RecordLines(opened, self.frame, rows.unsent) as lines:
                outcome = self._by_columns(columnar, each, lines, is_scan=is_scan)
        if outcome is None:
            rows, limit = BoundaryRows(look, self.account.sent), self._limit or 0
            with RecordLines(opened, self.frame, rows.unsent) as lines:
                outcome = self._reader.read(
                    each, lines, str(scratch_folder()), fetch_size, limit=limit, bounded=not is_scan
                )
        return Lines(rows.found(outcome.read, outcome.nulls), outcome.rows)

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
        if self._limit is not None or self.extraction.sql.split is not None or each.late:
            return False
        key = self.plan.replication_key
        return key is None or (each.key is not None and not key.indexed)

    def _slices(self) -> Iterator[Slice[Point]]:
        if self._limit is None:
            yield from super()._slices()
        else:
            yield Slice()


class KeyReading(LineReading):
    """The keys of one stream, read over the stream's context, in its snapshot.

    The plan is `keys_plan`'s.
    """

    must_be_columnar = False

    def announce(self, stream: str) -> None:
        """Write their SCHEMA, so that a target that can't use keys can refuse them before it takes
        in a record.
        """
        plan, keys = self.plan, list(self.plan.sent_keys)
        line = messages.schema_message(
            plan.stream,
            plan.schema,
            keys,
            [],
            replication_method=FULL_TABLE,
            extent="full",
            keys_of=stream,
        )
        stdout.write(line)

    def begin(self) -> None:
        """Fix what is read, unless that was done before."""
        if self._prefetch is None:
            connection, source = self.context.database.connection, self.context.database.source
            extraction = Extraction.begin(connection, source.dialect, self.plan, None)
            # Without `time_extracted`, which would be a third of the line.
            self._prepare(extraction, Frame(messages.record_prefix(self.plan.stream), b"}"))

    def start(self, most: int) -> None:
        """Begin to render up to `most` slices of keys before they are sent."""
        self.begin()
        super().start(most)

    def send(self, stream: str) -> None:
        """Read the keys, several slices at a time, and forward the lines as Spark renders them."""
        self.begin()
        logger.info("stream %s: the keys of all its rows follow, for detect_deletes", stream)
        rows = 0
        for file in self.sent():
            stdout.send_file(file.path)
            rows += file.rows
        logger.info("stream %s: %d keys sent", stream, rows)

    def statement(self) -> str:
        """The SQL of what is read, for users."""
        self.begin()
        return self.extraction.sql.statement(Slice())


def keys_plan(plan: StreamPlan) -> StreamPlan:
    """The plan of a stream's keys: those of all rows under the same `where`, regardless of the
    bookmark.
    """
    return replace(
        plan,
        stream=messages.keys_stream(plan.stream),
        columns=tuple(column for column in plan.columns if column.name in plan.key_properties),
        replication_method=FULL_TABLE,
        replication_key=None,
        start_value=None,
        load_method=None,
        detect_deletes=False,
    )


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
        """The slices' batches in order; name a file in a message before the next request."""
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
        if self.extraction.is_delta or self._columnar is None:
            return False
        return self._columnar.is_apart

    @cached_property
    def _unmeasured_rows(self) -> int:
        """The rows of a slice by the types' widths, or the first rows' where unbounded."""
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
        from tap_spark_jdbc.supply.batch_files import SliceWriter

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
