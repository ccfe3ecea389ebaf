"""A stream's slices as batch files: written by the executors, named in BATCH messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING

from singer_spark import messages
from tap_spark_jdbc.ahead import Ahead
from tap_spark_jdbc.batch_writer import BatchWriter
from tap_spark_jdbc.boundary import Frame
from tap_spark_jdbc.boundary_checksum import without_unchanged
from tap_spark_jdbc.edges import Edges
from tap_spark_jdbc.lost_connection import again
from tap_spark_jdbc.reader import SliceReader
from tap_spark_jdbc.spool import SliceSize

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Iterator

    from tap_spark_jdbc.batch_place import BatchFile
    from tap_spark_jdbc.edges import Found
    from tap_spark_jdbc.extraction import Extraction
    from tap_spark_jdbc.slices import Slice
    from tap_spark_jdbc.stream_sql import Point
    from tap_spark_jdbc.tap import TapSparkJdbc

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


class StreamBatches:
    """What a stream sends where batches are asked for."""

    def __init__(self, tap: TapSparkJdbc, extraction: Extraction) -> None:
        """Reads nothing yet.

        Args:
            tap: Whose stream it is; it has a place for batches.
            extraction: The stream in this run, whose snapshot has begun.
        """
        if tap.batches is None:
            raise ValueError("batches are asked for, and no place is known for them")
        settings, self._database = tap.settings, tap.database
        self._place = tap.batches
        self._extraction = extraction
        self._extracted = datetime.now(UTC)
        frame = Frame(messages.record_prefix(extraction.plan.stream), messages.record_suffix(self._extracted))
        self._frame, self._source = frame, tap.snapshots.source
        self._size = SliceSize(settings.slice_rows, settings.fetch_size, slice_bytes=FILE_BYTES)
        self._numbers = count()
        self.edges = Edges(extraction, frame)

    @cached_property
    def _reader(self) -> SliceReader:
        """Made when there is something to read: nobody starts Spark where there is not."""
        return SliceReader(self._database.spark, self._source, self._extraction.sql, self._frame)

    @cached_property
    def _writer(self) -> BatchWriter:
        return BatchWriter(self._extraction.plan, self._reader, self._place, self._extracted)

    def message(self, batch: SliceBatch) -> bytes:
        """The BATCH line that names a slice's files."""
        return messages.batch_message(
            self._extraction.plan.stream,
            self._place.settings.encoding,
            [file.url for file in batch.files],
            files=[{"rows": file.rows, "bytes": file.size} for file in batch.files],
            time_extracted=self._extracted,
            record_metadata=self._writer.metadata,
        )

    def sent(self) -> Iterator[tuple[SliceBatch, int]]:
        """What was written, in the order of the slices, with its rows; it is to be named before the next is asked for.

        Raises:
            SourceError: the database refused.
            StorageError: a file can't be written.
        """
        extraction, size, changed = without_unchanged(self._extraction), self._size, None
        if extraction is self._extraction and extraction.saved_buckets and extraction.sql.bookmark is not None:
            sums = again(partial(self._reader.bucket_sums, extraction.sql.bookmark, size.fetch_size()))
            changed = self.edges.changed_buckets(sums)
            extraction = extraction if changed else extraction.behind_bookmark()
        write = partial(self._write, changed_buckets=changed)
        # Nothing is known of the rows' width before the first slice is written.
        ahead = Ahead(extraction.slices(size.rows), write, self._database.n_jobs, alone=lambda: not size.known)
        for batch in ahead.results():
            twins: list[BatchFile] = []
            rows = self.edges.settle(batch.found, partial(self._send_twins, batch.slice, twins))
            yield replace(batch, files=(*batch.files, *twins)), rows

    def _write(self, each: Slice[Point], *, changed_buckets: Collection[int] | None) -> SliceBatch:
        folder, look = self._new_folder(), self.edges.look(each)
        written = self._writer.write(
            each, folder, fetch_size=self._size.fetch_size(), look=look, changed_buckets=changed_buckets
        )
        found = written.found
        rows = found.rows - found.left_out(look.sent).total()
        files = self._files(folder, rows)
        if files:
            self._size.learn(rows, files[0].size, written.width)
        return SliceBatch(each, files, found)

    def _send_twins(self, each: Slice[Point], files: list[BatchFile], twins: Counter[str]) -> tuple[bytes, ...]:
        """Writes twins of rows that were sent before into a file of their own."""

        def write() -> tuple[bytes, ...]:
            folder = self._new_folder()
            look, fetch_size = self.edges.look(each), self._size.fetch_size()
            sent = self._writer.write_twins(each, folder, fetch_size=fetch_size, look=look, twins=twins)
            files.extend(self._files(folder, len(sent)))
            return sent

        return again(write)

    def _new_folder(self) -> str:
        """Each attempt has its own: a file that an attempt which failed has left is never named."""
        return self._place.slice_folder(self._extraction.plan.stream, next(self._numbers))

    def _files(self, folder: str, rows: int) -> tuple[BatchFile, ...]:
        if rows:
            return (self._place.file(folder, rows),)
        # Spark writes one without rows, too.
        self._place.discard(folder)
        return ()
