"""Converts a batch's lines to Parquet files in Spark tasks, which run `line_rows` as this process does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

import target_spark_lake
from singer_spark.singer.lake_type import Field, Scalar, Struct
from singer_spark.spark.lake_columns import spark_columns
from singer_spark.spark.python_tasks import send_along
from target_spark_lake.columns.spark_partitions import write_parquet
from target_spark_lake.columns.staged_metadata import POSITION
from target_spark_lake.staging.line_rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from target_spark_lake.staging.batch_plan import BatchPlan

_PLACE = Field(POSITION, Scalar("bigint"))


def stage_pieces(session: SparkSession, source: str, destination: str, plan: BatchPlan) -> None:
    """Write the rows of all lines that are certainly valid; for a merge with their positions in the batch.

    Both URLs are of folders: that of the lines in pieces, and one that does not exist yet.
    """
    columns = staged_columns(plan)
    rows = _pieces(session, source).mapInArrow(partial(_right_rows, plan), spark_columns(columns))
    write_parquet(rows, destination, plan.codec, plan.partitioning)


def doubtful_lines(session: SparkSession, source: str, plan: BatchPlan) -> list[int]:
    """The positions of all other lines, as sorted line numbers of the batch."""
    found = _pieces(session, source).mapInArrow(partial(_doubtful, plan), spark_columns(Struct((_PLACE,))))
    return sorted(found.toArrow().column(0).to_pylist())


def staged_columns(plan: BatchPlan) -> Struct:
    """The columns of rows that are not kept in their order."""
    return Struct((*plan.staged, _PLACE)) if plan.merging else plan.staged


def _pieces(session: SparkSession, source: str) -> DataFrame:
    send_along(session, target_spark_lake)
    first = F.element_at(F.split("path", "/"), -1).cast("bigint")
    return session.read.format("binaryFile").load(source).select(first.alias("first"), "content")


def _right_rows(plan: BatchPlan, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for first, part in _parts(plan, pieces):
        if isinstance(part, pa.RecordBatch):
            yield with_positions(part, range(first, first + part.num_rows)) if plan.merging else part


def _doubtful(plan: BatchPlan, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for first, part in _parts(plan, pieces):
        if isinstance(part, bytes):
            positions = pa.array(range(first, first + part.count(b"\n")), pa.int64())
            yield pa.RecordBatch.from_arrays([positions], [POSITION])


def _parts(plan: BatchPlan, pieces: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch | bytes]]:
    """The converted parts, each with the number of its first line."""
    for batch in pieces:
        for first, content in zip(batch.column("first").to_pylist(), batch.column("content"), strict=True):
            position = first
            for part in rows_of(content.as_py(), plan):
                yield position, part
                position += part.count(b"\n") if isinstance(part, bytes) else part.num_rows


def with_positions(rows: pa.RecordBatch, positions: range | list[int]) -> pa.RecordBatch:
    """The rows with their positions in the batch."""
    return rows.append_column(POSITION, pa.array(positions, pa.int64()))
