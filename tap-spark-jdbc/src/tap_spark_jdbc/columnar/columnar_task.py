"""One slice from the database to one Parquet file, by Arrow batches: in a thread of the tap, or in a Spark task."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from singer_spark.storage.repeating_columns import repeating
from singer_spark.storage.storage import Storage
from tap_spark_jdbc.columnar.columnar_query import EDGE, ColumnarQuery, CrowdedError, Outcome, read, writing
from tap_spark_jdbc.source.columnar_database import ColumnarDatabase

Unsent = Callable[[pa.RecordBatch, pa.Array, pa.Array | None], pa.RecordBatch]
# A row group is collected in memory as a whole.
GROUP_BYTES = 24 << 20
MOST_EDGE_BYTES = 16 << 20


@dataclass(frozen=True)
class FilePlan:
    """Everything needed to write the file of a slice.

    Attributes:
        columns: The columns that are read.
        constants: The file's columns after those that are read, with one value each for all rows.
        folder: URL of a folder that no other slice is written to.
        options: fsspec's options for that location.
        long: Columns whose values are too long to be repeated in a dictionary or a footer.
    """

    columns: pa.Schema
    constants: Mapping[str, pa.Scalar]
    folder: str
    options: Mapping[str, Any] = field(repr=False)
    codec: str
    long: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file."""
        fixed = (pa.field(name, each.type) for name, each in self.constants.items())
        return pa.schema([*self.columns, *fixed])


@dataclass(frozen=True)
class ColumnarTask:
    """Everything a worker needs to write a slice.

    Attributes:
        edges: Edges whose rows are returned.
    """

    query: ColumnarQuery
    file: FilePlan
    edges: tuple[int, ...] = ()


def written(task: ColumnarTask, unsent: Unsent, database: ColumnarDatabase) -> Outcome:
    """Write a slice; `unsent` selects a batch's rows that belong in the file, given all of them and their edges."""
    return read(task.query, ParquetFile(task.file, unsent), database)


def outcome_fields(task: ColumnarTask) -> dict[str, Any]:
    """`written` in a worker, with the rows at edges; as fields, since the outcome's class is another one there."""
    kept = _Kept(task.edges)
    with closing(ColumnarDatabase()) as database:
        outcome = written(task, kept, database)
    return asdict(outcome if outcome.state is not None else replace(outcome, edges=kept.stream()))


class _Kept:
    """Collects the rows at some edges for the tap; all rows belong in the file."""

    def __init__(self, edges: tuple[int, ...]) -> None:
        self._edges = pa.array(edges, pa.int32())
        self._batches: list[pa.RecordBatch] = []

    def __call__(self, rows: pa.RecordBatch, edge: pa.Array, _records: pa.Array | None) -> pa.RecordBatch:
        at_edges = rows.append_column(EDGE, edge).filter(pc.is_in(edge, self._edges))
        if at_edges.num_rows:
            self._batches.append(at_edges)
        if sum(each.nbytes for each in self._batches) > MOST_EDGE_BYTES:
            raise CrowdedError
        return rows

    def stream(self) -> bytes:
        """All collected rows, as an Arrow stream."""
        if not self._batches:
            return b""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as stream:
            for each in self._batches:
                stream.write_batch(each)
        return bytes(sink.getvalue())


class ParquetFile:
    """A Parquet file that grows by row groups; it is created with its first row."""

    def __init__(self, plan: FilePlan, unsent: Unsent) -> None:
        """Nothing is written yet; `unsent` as in `written`."""
        self._plan = plan
        self._schema = plan.schema
        self._unsent = unsent
        self._name = f"part-{uuid.uuid4().hex}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._stream: Any = None
        self._group: list[pa.RecordBatch] = []
        self._held = self._rows = 0

    def add(self, read: pa.RecordBatch, edge: pa.Array, records: pa.Array | None = None) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, edge, records)
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
                self._stream = _opened(f"{self._plan.folder}/{self._name}", self._plan.options)
                self._writer = pq.ParquetWriter(
                    self._stream,
                    self._schema,
                    compression=self._plan.codec.upper(),
                    use_dictionary=[name for name in repeating(rows) if name not in self._plan.long],
                    write_statistics=[name for name in self._schema.names if name not in self._plan.long],
                    store_schema=False,
                )
            self._writer.write_table(rows, row_group_size=rows.num_rows)


def _opened(url: str, options: Mapping[str, Any]) -> IO[bytes]:
    folder, _, name = url.rpartition("/")
    return Storage(folder, options).open_writer(name)
