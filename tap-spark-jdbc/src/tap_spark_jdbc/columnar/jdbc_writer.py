"""Slices to batch files over JDBC, by a stream's reader: in this process, or each in a Spark task."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tap_spark_jdbc.columnar.batch_files import FileWork
from tap_spark_jdbc.columnar.columnar_writer import file_plan, written_file

if TYPE_CHECKING:
    from tap_spark_jdbc.columnar.jdbc_reader import JdbcReader
    from tap_spark_jdbc.extraction.fingerprints import Look
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.reading.batch_columns import BatchColumns
    from tap_spark_jdbc.reading.batch_place import Written


class JdbcWriter:
    """Writes the slices of one stream."""

    def __init__(self, reader: JdbcReader, columns: BatchColumns) -> None:
        self._reader = reader
        self._columns = columns

    def write(
        self, each: Slice[Point], sent: Counter[str], *, fetch_size: int, look: Look, wide: bool = False
    ) -> Written:
        """As `SliceWriter.write`."""
        place = self._columns.place
        folder = place.new_folder(self._columns.plan.stream)
        plan = file_plan(self._columns, self._reader.rows.schema, folder, wide=wide)
        outcome, found = self._reader.work(each, FileWork(plan, look, sent), plan.folder, fetch_size)
        return written_file(place, folder, outcome, found, look)
