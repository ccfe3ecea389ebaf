"""Writes slices to batch files: by the database's columnar driver, in threads of the tap or tasks
of a cluster, or over JDBC.

Arrow releases Python's lock, so threads use all cores of this machine, and no worker is started. A
task's Python worker writes the file on its executor's machine.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

import tap_spark_jdbc
from singer_spark.core.messages import METADATA_COLUMNS
from singer_spark.errors import SourceError
from tap_spark_jdbc.extract.fingerprints import Found, Look
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.supply import columnar_task
from tap_spark_jdbc.supply.batch_files import FilePlan, FileWork
from tap_spark_jdbc.supply.batch_location import Written
from tap_spark_jdbc.supply.columnar_query import LEFT, UNREACHABLE, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.supply.batch_files import FileFound
    from tap_spark_jdbc.supply.batch_location import BatchColumns
    from tap_spark_jdbc.supply.columnar_query import ColumnarQuery
    from tap_spark_jdbc.supply.columnar_source import ColumnarSource
    from tap_spark_jdbc.supply.jdbc_reader import JdbcReader

# Rows read here in less time than a cluster takes to start a task's Python worker.
SMALL_ROWS = 500_000
# A cluster processes more slices in parallel than this machine.
_HERE = threading.BoundedSemaphore(os.cpu_count() or 1)
# A slice that is read by a process of its own keeps two cores busy, besides the server's.
_APART = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


class SliceWriter:
    """Writes the slices of one stream."""

    def __init__(
        self,
        columns: BatchColumns,
        columnar: ColumnarSource | None,
        reader: Callable[[], JdbcReader],
        database: Database,
        job_errors: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Nothing is written yet.

        Without `columnar`, rows are read over JDBC, by the reader that `reader` makes.

        `job_errors` turns errors of a Spark job that writes to a location into the stream's.
        """
        self._columns = columns
        self._location = columns.location
        self._columnar = columnar
        self._reader = reader
        self._database = database
        self._job_errors = job_errors

    def write(
        self,
        each: Slice[Point],
        sent: Counter[str],
        *,
        fetch_size: int,
        look: Look,
        wide: bool = False,
    ) -> Written:
        """Write a slice, here or in one task.

        Rows at the bookmark that were sent before are left out.

        `sent` counts these by their fingerprints in hexadecimal. If rows are `wide`, each copy of
        one matters.
        """
        found = None
        if self._columnar is not None and self._columnar.reads(each):
            found = self._by_columns(self._columnar, each, sent, look, wide=wide)
        return found or self._by_jdbc(each, sent, fetch_size, look, wide=wide)

    def _by_jdbc(
        self, each: Slice[Point], sent: Counter[str], fetch_size: int, look: Look, *, wide: bool
    ) -> Written:
        reader, folder = self._reader(), self._location.new_folder(self._columns.plan.stream)
        work = FileWork(self._plan(reader.rows.schema, folder, wide=wide), look, sent)
        outcome, found = reader.work(each, work, work.plan.folder, fetch_size)
        return self._found(folder, outcome, found, look)

    def _by_columns(
        self,
        columnar: ColumnarSource,
        each: Slice[Point],
        sent: Counter[str],
        look: Look,
        *,
        wide: bool,
    ) -> Written | None:
        """The written slice; None: it must be read over JDBC."""
        folder = self._location.new_folder(self._columns.plan.stream)
        query = columnar.query(each)
        work = FileWork(self._plan(query.columns, folder, wide=wide), look, sent)
        outcome, found = self._done(columnar, query, work, here=self._is_read_here(each))
        if outcome.state in (LEFT, UNREACHABLE):
            self._location.discard(folder)
        if not columnar.has_read(outcome, work.plan.folder) or found is None:
            return None
        return self._found(folder, outcome, found, look)

    def _done(
        self, columnar: ColumnarSource, query: ColumnarQuery, work: FileWork, *, here: bool
    ) -> tuple[Outcome, FileFound | None]:
        if here:
            with _APART if columnar.is_apart else _HERE:
                return columnar_task.done(query, work, self._database.columnar)
        from singer_spark.engine.python_tasks import in_remote_task, in_task

        in_worker = partial(columnar_task.outcome_fields, query, work)
        try:
            with self._job_errors(work.plan.folder):
                context = self._database.context
                if context is None:
                    fields, found = in_remote_task(self._database.spark, tap_spark_jdbc, in_worker)
                else:
                    fields, found = in_task(context, tap_spark_jdbc, in_worker)
        except SourceError as error:
            # Executors may have no Python with Arrow, or another version of it.
            if columnar.only or columnar.works:
                raise
            return Outcome(state=UNREACHABLE, refused=error.message), None
        return Outcome(**fields), found

    def _is_read_here(self, each: Slice[Point]) -> bool:
        # This process may not reach what a Spark Connect server reaches.
        if self._database.settings.spark.remote:
            return False
        # Rows that came late, or have no key, are usually few; otherwise a task would be no faster.
        if self._database.shares_disk:
            return not self._database.by_spark
        if each.late or (each.nulls and each.key is None):
            return True
        rows = (
            self._columns.plan.table.row_estimate
            if each == Slice() and each.most is None
            else each.most
        )
        return rows is not None and rows <= SMALL_ROWS

    def _plan(self, read: pa.Schema, folder: str, *, wide: bool) -> FilePlan:
        """The plan of a slice's file in this folder of its place, with these columns and the
        metadata's.
        """
        location, values = self._location, self._columns.metadata_values.items()
        return FilePlan(
            read,
            {name: _metadata_scalar(value, METADATA_COLUMNS[name]) for name, value in values},
            f"{location.storage.url}/{folder}",
            location.storage.options,
            location.settings.format,
            location.settings.compression,
            tuple(self._columns.long if wide else ()),
        )

    def _found(self, folder: str, outcome: Outcome, found: FileFound, look: Look) -> Written:
        """The file that was written in a folder, and what was found meanwhile."""
        name, at_bookmark, at_upper, marks, unread = found
        width = outcome.size / outcome.read if outcome.read else None
        in_slice = Found.of(look, outcome.read, outcome.nulls, at_bookmark, at_upper, marks, unread)
        return Written(in_slice, self._location.file(folder, outcome.rows, name), width)


def _metadata_scalar(value: int | None, kind: str) -> pa.Scalar:
    return pa.scalar(value, pa.timestamp("us", "UTC") if kind == "timestamp" else pa.int64())
