"""Slices to batch files over JDBC, in this process: the counterpart of `BatchWriter` without a Spark session."""

from __future__ import annotations

import gzip
import uuid
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tap_spark_jdbc.columnar.columnar_query import writing
from tap_spark_jdbc.columnar.columnar_task import ParquetFile
from tap_spark_jdbc.columnar.columnar_writer import file_plan, written_file
from tap_spark_jdbc.columnar.edge_rows import EdgeRows
from tap_spark_jdbc.columnar.record_lines import rendered
from tap_spark_jdbc.reading.text_buffer import joined_text

if TYPE_CHECKING:
    import pyarrow as pa

    from tap_spark_jdbc.columnar.columnar_query import Sink
    from tap_spark_jdbc.columnar.columnar_task import Unsent
    from tap_spark_jdbc.columnar.jdbc_reader import JdbcReader
    from tap_spark_jdbc.extraction.fingerprints import Look
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.reading.batch_columns import BatchColumns
    from tap_spark_jdbc.reading.batch_place import BatchPlace, Written


class JdbcWriter:
    """Writes the slices of one stream."""

    def __init__(self, reader: JdbcReader, columns: BatchColumns) -> None:
        self._reader = reader
        self._columns = columns

    def write(
        self, each: Slice[Point], sent: Counter[str], *, fetch_size: int, look: Look, wide: bool = False
    ) -> Written:
        """As `BatchWriter.write`."""
        place = self._columns.place
        folder = place.new_folder(self._columns.plan.stream)
        edge_rows = EdgeRows(look, sent)
        file = file_plan(self._columns, self._reader.schema, folder, wide=wide)
        sink: Sink = ParquetFile(file, edge_rows.unsent)
        if place.settings.format == "jsonl":
            sink = _JsonLines(place, folder, edge_rows.unsent)
        outcome = self._reader.read(each, sink, file.folder, fetch_size)
        return written_file(place.file(folder, outcome.rows), outcome, edge_rows, look)


class _JsonLines:
    """A file of records; it is created with its first row."""

    def __init__(self, place: BatchPlace, folder: str, unsent: Unsent) -> None:
        self._storage = place.storage
        self._is_gzip = place.settings.compression == "gzip"
        self._path = f"{folder}/part-{uuid.uuid4().hex}.json{'.gz' * self._is_gzip}"
        self._unsent = unsent
        self._opened = ExitStack()
        self._file: Any = None
        self._rows = 0

    def add(self, read: pa.RecordBatch, edge: pa.Array, records: pa.Array | None = None) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, edge, records)
        self._rows += rows.num_rows
        if not rows.num_rows:
            return
        with writing():
            if self._file is None:
                file = self._opened.enter_context(self._storage.open_writer(self._path))
                self._file = self._opened.enter_context(gzip.open(file, "wb")) if self._is_gzip else file
            self._file.write(joined_text(rendered(rows, "", "\n")))

    def close(self) -> int:
        """As `Sink.close`."""
        with writing():
            self._opened.close()
        return self._rows
