"""Slices to batch files by the database's columnar driver: in threads of the tap, or by tasks of a cluster.

Arrow releases Python's lock, so threads use all cores of this machine, and no worker is started. A task's Python worker
writes the file on its executor's machine. Rows at the bookmark that were sent before must be left out, and their
fingerprints are compared in this process: on a cluster such slices are read here, or over JDBC if they are large.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

import tap_spark_jdbc
from singer_spark.errors import SourceError
from singer_spark.singer.metadata_columns import METADATA_COLUMNS
from tap_spark_jdbc.columnar import columnar_task
from tap_spark_jdbc.columnar.batch_files import FilePlan
from tap_spark_jdbc.columnar.columnar_query import LEFT, UNREACHABLE, CrowdedError, Outcome
from tap_spark_jdbc.columnar.columnar_task import ColumnarTask
from tap_spark_jdbc.columnar.edge_rows import EdgeRows
from tap_spark_jdbc.extraction.fingerprints import Found, Look
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import AT_UPPER, Point
from tap_spark_jdbc.reading.batch_place import Written

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tap_spark_jdbc.columnar.columnar_source import ColumnarSource
    from tap_spark_jdbc.reading.batch_columns import BatchColumns
    from tap_spark_jdbc.reading.batch_place import BatchFile, SliceWriter
    from tap_spark_jdbc.source.database import Database

# Rows read here in less time than a cluster takes to start a task's Python worker.
SMALL_ROWS = 500_000
# A cluster processes more slices in parallel than this machine.
_HERE = threading.BoundedSemaphore(os.cpu_count() or 1)
# A slice that a process of its own reads keeps two cores busy, and the server's.
_APART = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


class ColumnarWriter:
    """Writes the slices of one stream."""

    def __init__(
        self,
        source: ColumnarSource,
        columns: BatchColumns,
        database: Database,
        job_errors: Callable[[str], AbstractContextManager[None]],
        by_jdbc: Callable[[], SliceWriter],
    ) -> None:
        """Nothing is written yet; `by_jdbc` makes the writer over JDBC of the same stream.

        `job_errors` turns errors of a Spark job that writes to a location into the stream's.
        """
        self._source = source
        self._columns = columns
        self._place = columns.place
        self._database = database
        self._job_errors = job_errors
        self._by_jdbc = by_jdbc

    def write(
        self, each: Slice[Point], sent: Counter[str], *, fetch_size: int, look: Look, wide: bool = False
    ) -> Written:
        """As `SliceWriter.write`, here or in one task; once the database was out of reach, by that writer."""
        found = self._written(each, sent, look, wide=wide) if self._source.reads(each, look) else None
        if found is not None:
            return found
        return self._by_jdbc().write(each, sent, fetch_size=fetch_size, look=look, wide=wide)

    def _written(self, each: Slice[Point], sent: Counter[str], look: Look, *, wide: bool) -> Written | None:
        """The written slice; None: it must be read over JDBC."""
        here = self._is_read_here(each)
        if not here and self._source.may_hold_sent_rows(each):
            return None
        folder = self._place.new_folder(self._columns.plan.stream)
        query = self._source.query(each)
        file = file_plan(self._columns, query.columns, folder, wide=wide)
        task = ColumnarTask(query, file, AT_UPPER if look.upper else ())
        edge_rows = EdgeRows(look, sent, self._source.number)
        outcome = self._here(task, edge_rows) if here else self._in_task(task, edge_rows)
        if outcome.state in (LEFT, UNREACHABLE):
            self._place.discard(folder)
        if not self._source.has_read(outcome, file.folder):
            return None
        file_of_slice = self._place.file(folder, outcome.rows, outcome.name)
        return written_file(file_of_slice, outcome, edge_rows.found(outcome.read, outcome.nulls))

    def _here(self, task: ColumnarTask, edge_rows: EdgeRows) -> Outcome:
        with _APART if self._source.is_apart else _HERE:
            return columnar_task.written(task, edge_rows.unsent, self._database.columnar)

    def _in_task(self, task: ColumnarTask, edge_rows: EdgeRows) -> Outcome:
        from singer_spark.spark.python_tasks import in_remote_task, in_task

        work = partial(columnar_task.outcome_fields, task)
        try:
            with self._job_errors(task.file.folder):
                context = self._database.context
                if context is None:
                    fields = in_remote_task(self._database.spark, tap_spark_jdbc, work)
                else:
                    fields = in_task(context, tap_spark_jdbc, work)
        except SourceError as error:
            # Executors may have no Python with Arrow, or another version of it.
            if self._source.only or self._source.works:
                raise
            return Outcome(state=UNREACHABLE, refused=str(error))
        outcome = Outcome(**fields)
        try:
            for batch in pa.ipc.open_stream(outcome.edges) if outcome.edges else ():
                # By its place: the stream may have a column of that name.
                *own, last = range(batch.num_columns)
                edge_rows.unsent(batch.select(own), batch.column(last))
        except CrowdedError:
            return Outcome(state=LEFT)
        return outcome

    def _is_read_here(self, each: Slice[Point]) -> bool:
        # This process may not reach what a Spark Connect server reaches.
        if self._database.settings.spark.remote:
            return False
        # Rows that came late, or have no key, are usually few; otherwise a task would be no faster.
        if self._database.shares_disk:
            return not self._database.by_spark
        if each.late or (each.nulls and each.key is None):
            return True
        rows = self._columns.plan.table.row_estimate if each == Slice() and each.most is None else each.most
        return rows is not None and rows <= SMALL_ROWS


def file_plan(columns: BatchColumns, read: pa.Schema, folder: str, *, wide: bool) -> FilePlan:
    """The plan of a slice's file in this folder of its place, with these columns and the metadata's."""
    place = columns.place
    values = columns.metadata_values.items()
    return FilePlan(
        read,
        {name: _metadata_scalar(value, METADATA_COLUMNS[name]) for name, value in values},
        f"{place.storage.url}/{folder}",
        place.storage.options,
        place.settings.format,
        place.settings.compression,
        tuple(columns.long if wide else ()),
    )


def written_file(file: BatchFile, outcome: Outcome, found: Found) -> Written:
    """What was found while a file was written."""
    return Written(found, file, outcome.size / outcome.read if outcome.read else None)


def _metadata_scalar(value: int | None, kind: str) -> pa.Scalar:
    return pa.scalar(value, pa.timestamp("us", "UTC") if kind == "timestamp" else pa.int64())
