"""One slice by the columnar driver to one Parquet file: in a thread of the tap, or in a Spark task."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.columnar.batch_files import FilePlan, ParquetFile
from tap_spark_jdbc.columnar.columnar_query import EDGE, ColumnarQuery, CrowdedError, Outcome, Unsent, read
from tap_spark_jdbc.source.columnar_database import ColumnarDatabase

MOST_EDGE_BYTES = 16 << 20


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
    file = ParquetFile(task.file, unsent)
    return replace(read(task.query, file, database), name=file.name)


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
