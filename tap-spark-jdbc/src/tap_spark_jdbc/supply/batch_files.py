"""Slices as batch files, Parquet or JSON lines. A file grows as rows come, by the database's
columnar driver or over JDBC, in a thread of the tap or in a Spark task.

Arrow releases Python's lock, so threads use all cores of this machine, and no worker is started. A
task's Python worker writes the file on its executor's machine.
"""

from __future__ import annotations

import gzip
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

import tap_spark_jdbc
from singer_spark.core.arrow_schema import repeating
from singer_spark.core.messages import METADATA_COLUMNS
from singer_spark.store.storage import Storage
from tap_spark_jdbc.extract.fingerprints import Found, Look
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.source.libpq import ColumnarDatabase
from tap_spark_jdbc.supply.batch_location import Written
from tap_spark_jdbc.supply.columnar_query import (
    LEFT,
    UNREACHABLE,
    ColumnarQuery,
    Outcome,
    read,
    writing,
)
from tap_spark_jdbc.supply.record_lines import BoundaryRows, Unsent, joined_text, rendered

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.supply.batch_location import BatchColumns
    from tap_spark_jdbc.supply.columnar_query import Sink
    from tap_spark_jdbc.supply.columnar_source import ColumnarSource
    from tap_spark_jdbc.supply.jdbc_reader import JdbcReader, Work

# A row group is collected in memory as a whole.
GROUP_BYTES = 12 << 20
FileFound = tuple[str, list[bytes], list[bytes], tuple[list[int], list[int]], int]
R = TypeVar("R")
# The rows of a stream, and their bytes in memory, that this process reads in less time than a
# cluster takes to start a session and a task's Python worker. All slices together: however small
# they are, a large table is the executors' work.
SMALL_ROWS, SMALL_BYTES = 500_000, 256 << 20
# A cluster processes more slices in parallel than this machine.
_HERE = threading.BoundedSemaphore(os.cpu_count() or 1)
# A slice that is read by a process of its own keeps two cores busy, besides the server's.
_APART = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))


@dataclass(frozen=True)
class FilePlan:
    """Everything needed to write the file of a slice.

    Attributes:
        columns: The columns that are read.
        constants: The file's columns after those that are read, with one value each for all rows.
        folder: URL of a folder that no other slice is written to.
        options: fsspec's options for that location.
        format: `parquet` or `jsonl`.
        long: Columns whose values are too long to be repeated in a dictionary or a footer.
    """

    columns: pa.Schema
    constants: Mapping[str, pa.Scalar]
    folder: str
    options: Mapping[str, Any] = field(repr=False)
    format: str
    codec: str
    long: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file."""
        fixed = (pa.field(name, each.type) for name, each in self.constants.items())
        return pa.schema([*self.columns, *fixed])


class ParquetFile:
    """A Parquet file that grows by row groups; it is created with its first row.

    Attributes:
        name: Its name in its folder; no other attempt to write the slice has it.
    """

    def __init__(self, plan: FilePlan, unsent: Unsent) -> None:
        """Nothing is written yet.

        `unsent` selects a batch's rows that belong in the file, as `BoundaryRows` does.
        """
        self._plan = plan
        self._schema = plan.schema
        self._unsent = unsent
        self.name = f"part-{uuid.uuid4().hex}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._stream: Any = None
        self._group: list[pa.RecordBatch] = []
        self._held = self._rows = 0

    def add(self, read: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, boundary)
        self._rows += rows.num_rows
        fixed = [pa.repeat(value, rows.num_rows) for value in self._plan.constants.values()]
        group = pa.RecordBatch.from_arrays([*rows.columns, *fixed], schema=self._schema)
        self._group.append(group)
        self._held += group.nbytes
        if self._held >= GROUP_BYTES:
            self._flush()

    def close(self) -> int:
        """As `Sink.close`."""
        self._flush()
        if self._writer is not None:
            with writing():
                self._writer.close()
                self._stream.close()
        return self._rows

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._group, self._schema)
        self._group, self._held = [], 0
        if rows.num_rows == 0:
            return
        with writing():
            if self._writer is None:
                long = self._plan.long
                self._stream = _opened(f"{self._plan.folder}/{self.name}", self._plan.options)
                self._writer = pq.ParquetWriter(
                    self._stream,
                    self._schema,
                    compression=self._plan.codec.upper(),
                    use_dictionary=[name for name in repeating(rows) if name not in long],
                    write_statistics=[name for name in self._schema.names if name not in long],
                    store_schema=False,
                )
            self._writer.write_table(rows, row_group_size=rows.num_rows)


class JsonFile:
    """A file of records, one a line; it is created with its first row.

    Attributes:
        name: As `ParquetFile`'s.
    """

    def __init__(self, plan: FilePlan, unsent: Unsent) -> None:
        """As `ParquetFile`."""
        self._plan = plan
        self._is_gzip = plan.codec == "gzip"
        self._unsent = unsent
        self._opened = ExitStack()
        self._file: Any = None
        self._rows = 0
        self.name = f"part-{uuid.uuid4().hex}.json{'.gz' * self._is_gzip}"

    def add(self, read: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, boundary)
        self._rows += rows.num_rows
        if not rows.num_rows:
            return
        with writing():
            if self._file is None:
                url = f"{self._plan.folder}/{self.name}"
                self._file = self._opened.enter_context(_opened(url, self._plan.options))
                if self._is_gzip:
                    self._file = self._opened.enter_context(gzip.open(self._file, "wb"))
            self._file.write(joined_text(rendered(rows, "", "\n")))

    def close(self) -> int:
        """As `Sink.close`."""
        with writing():
            self._opened.close()
        return self._rows


def file_work(
    plan: FilePlan, look: Look, sent: Counter[str]
) -> tuple[Sink, Callable[[], FileFound]]:
    """Write the file of a slice (`jdbc_reader.Work`), without rows `sent` at the bookmark before.

    It finds the file's name, the fingerprints at both boundaries, and more.
    """
    rows = BoundaryRows(look, sent)
    file = (JsonFile if plan.format == "jsonl" else ParquetFile)(plan, rows.unsent)
    return file, lambda: (file.name, rows.at_bookmark, rows.at_upper, rows.marks, rows.unread)


def _opened(url: str, options: Mapping[str, Any]) -> IO[bytes]:
    folder, _, name = url.rpartition("/")
    return Storage(folder, options).open_writer(name)


def done(query: ColumnarQuery, work: Work[R], database: ColumnarDatabase) -> tuple[Outcome, R]:
    """Read a slice, and do the work with its rows."""
    sink, found = work()
    return read(query, sink, database), found()


def outcome_fields(query: ColumnarQuery, work: Work[R]) -> tuple[dict[str, Any], R]:
    """`done` in a worker, with the outcome as fields, since its class is another one there."""
    with closing(ColumnarDatabase()) as database:
        outcome, found = done(query, work, database)
    return asdict(outcome), found


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
        self._lock = threading.Lock()
        self._rows_here = self._bytes_here = 0

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
        plan = self._plan(reader.rows.schema, folder, wide=wide)
        work = partial(file_work, plan, look, sent)
        outcome, found = reader.work(each, work, plan.folder, fetch_size)
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
        plan = self._plan(query.columns, folder, wide=wide)
        work = partial(file_work, plan, look, sent)
        in_task = not self._is_read_here(each)
        if in_task:
            outcome, found = self._in_task(query, work, plan.folder)
        else:
            with _APART if columnar.is_apart else _HERE:
                outcome, found = done(query, work, self._database.columnar)
            with self._lock:
                self._bytes_here += outcome.size
        if outcome.state in (LEFT, UNREACHABLE):
            self._location.discard(folder)
        if not columnar.has_read(outcome, plan.folder, in_task=in_task):
            return None
        return self._found(folder, outcome, found, look)

    def _in_task(
        self, query: ColumnarQuery, work: Work[FileFound], location: str
    ) -> tuple[Outcome, FileFound]:
        from singer_spark.engine.python_tasks import in_remote_task, in_task

        in_worker = partial(outcome_fields, query, work)
        with self._job_errors(location):
            context = self._database.context
            if context is None:
                fields, found = in_remote_task(self._database.spark, tap_spark_jdbc, in_worker)
            else:
                fields, found = in_task(context, tap_spark_jdbc, in_worker)
        return Outcome(**fields), found

    def _is_read_here(self, each: Slice[Point]) -> bool:
        # This process may not reach what a Spark Connect server reaches.
        if self._database.settings.spark.remote:
            return False
        if self._database.shares_disk:
            return not self._database.by_spark
        # Rows that came late, or have no key, are usually few; otherwise a task would be no faster.
        if each.late or (each.nulls and each.key is None):
            return True
        rows = each.most
        if rows is None and each == Slice():
            rows = self._columns.plan.table.row_estimate
        return rows is not None and self._reserve(rows)

    def _reserve(self, rows: int) -> bool:
        """Count these rows as read here, if the stream is still small with them; whether it is."""
        with self._lock:
            if self._rows_here + rows > SMALL_ROWS or self._bytes_here > SMALL_BYTES:
                return False
            self._rows_here += rows
        return True

    def _plan(self, read: pa.Schema, folder: str, *, wide: bool) -> FilePlan:
        """The plan of a slice's file in this folder: these columns and the metadata's."""
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
