"""A plain batch becomes a Parquet file without the JVM: Arrow reads it, `bulk_check` judges it, Arrow writes it.

Arrow parses JSON several times as fast as Spark and is strict about it. What it can't be sure of is Spark's and
jsonschema's: nested values, bytes, texts in an unusual form, and every batch that holds a line that may be wrong.
"""

from __future__ import annotations

import shutil
from datetime import UTC
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet

from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from target_spark_lake.columns.arrow_columns import arrow_schema, fitted, is_dated
from target_spark_lake.columns.arrow_partitions import FolderWriter
from target_spark_lake.columns.lake_parquet import parquet_writer
from target_spark_lake.validation.bulk_check import BLOCK_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.types import DataType

    from target_spark_lake.staging.spark_staging import BatchPlan, BatchTimes
    from target_spark_lake.validation.bulk_check import BulkCheck

INSTANT = pa.timestamp("us", tz="UTC")
ROW_GROUP_BYTES = 1 << 26
# A block holds at least so many lines of average length: one that does not fit into a block is Spark's.
LINES_A_BLOCK = 64
LARGEST_BLOCK_BYTES = 1 << 24
# So many rows are sorted into hive folders at once: the more, the fewer files.
FOLDERS_BYTES = 1 << 27
# What is text in a line and something else in the lake; every other column is read as what it is.
_LAKE_TYPES = {"date": pa.date32(), "timestamp_ntz": pa.timestamp("us"), "timestamp": INSTANT}


def stage_plain(lines: Path, rows: int, destination: Path, plan: BatchPlan, check: BulkCheck) -> bool:
    """Writes a batch as one Parquet file, if all of its lines are surely right; else leaves nothing.

    Args:
        lines: File of RECORD lines.
        rows: How many they are.
        destination: The Parquet file, or where the plan has hive folders, a folder for these; it need not be there.
        plan: The columns, metadata and codec.
        check: What Arrow is asked about the lines.

    Raises:
        OSError: the file can't be written.
        RecordError: a value can't be the name of a hive folder.
        ConfigurationError: the hive folders are too many.
    """
    whole = False
    try:
        whole = not check.has_quoted_decimals(lines) and _write(lines, rows, destination, plan, check) == rows
    except pa.ArrowInvalid:
        return False
    finally:
        # Also of a disk that is full: the report of the failed run needs some room.
        if not whole:
            _remove(destination)
    return whole


def _write(lines: Path, rows: int, destination: Path, plan: BatchPlan, check: BulkCheck) -> int:
    """Gives the number of rows written; -1 where one may be wrong."""
    found, staged, enough = arrow_schema(plan.found), plan.staged, bytes_at_once(plan)
    options = pa.json.ParseOptions(explicit_schema=check.message(), unexpected_field_behavior="ignore")
    # Several blocks are in memory at a time, each a few times as large once it is parsed.
    block_bytes = min(LARGEST_BLOCK_BYTES, max(BLOCK_BYTES, lines.stat().st_size // rows * LINES_A_BLOCK))
    waiting: list[pa.RecordBatch] = []
    written = 0
    with (
        pa.json.open_json(lines, pa.json.ReadOptions(block_size=block_bytes), options) as reader,
        writer_of(destination, plan) as writer,
    ):
        for block in reader:
            if not check.is_right(block.column("record")):
                return -1
            waiting.append(fitted(pa.RecordBatch.from_arrays(_columns(block, plan), schema=found), staged))
            written += block.num_rows
            if sum(each.nbytes for each in waiting) >= enough:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting.clear()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    return written


def bytes_at_once(plan: BatchPlan) -> int:
    """So many bytes of rows are gathered before they are written."""
    return ROW_GROUP_BYTES if plan.partitioning is None else FOLDERS_BYTES


def writer_of(destination: Path, plan: BatchPlan) -> pyarrow.parquet.ParquetWriter | FolderWriter:
    """A writer of rows with the columns that are staged: to a file, or where the plan has hive folders, to a folder."""
    if plan.partitioning is None:
        return parquet_writer(destination, plan.staged, plan.codec)
    return FolderWriter(destination, plan.staged, plan.codec, plan.partitioning)


def _remove(destination: Path) -> None:
    if destination.is_dir():
        shutil.rmtree(destination, ignore_errors=True)
    else:
        destination.unlink(missing_ok=True)


def _columns(block: pa.RecordBatch, plan: BatchPlan) -> list[pa.Array]:
    record = block.column("record")
    fields = {field.name: _lake_column(record.field(field.name), field.dataType) for field in plan.columns.fields}
    own = [column for name, column in fields.items() if name not in METADATA_COLUMNS]
    deleted = fields.get(DELETED_AT)
    metadata = {
        DELETED_AT: pa.nulls(block.num_rows, INSTANT) if deleted is None else deleted,
        TABLE_VERSION: block.column("version"),
    }
    if plan.times is not None:
        metadata |= _of_the_batch(block, plan.times)
    return own + [metadata[name] for name in plan.metadata]


def _lake_column(column: pa.Array, data_type: DataType) -> pa.Array:
    lake = _LAKE_TYPES.get(data_type.simpleString())
    return column if lake is None else _moments(column, lake)


def _moments(column: pa.Array, lake: pa.DataType) -> pa.Array:
    """Texts as dates or times.

    Raises:
        pyarrow.ArrowInvalid: one is none, or is of another year than 1 to 9999 in UTC.
    """
    found = pc.cast(column, lake)
    if lake == INSTANT and not is_dated(found):
        raise pa.ArrowInvalid("a time is of the year 0 or 10000 in UTC")
    return found


def _of_the_batch(block: pa.RecordBatch, times: BatchTimes) -> dict[str, pa.Array]:
    def always(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), block.num_rows)

    return {
        "_sdc_extracted_at": _moments(block.column("time_extracted"), INSTANT),
        "_sdc_received_at": always(times.received.astimezone(UTC), INSTANT),
        "_sdc_batched_at": always(times.batched.astimezone(UTC), INSTANT),
        "_sdc_sequence": always(int(times.received.timestamp() * 1000), pa.int64()),
        "_sdc_sync_started_at": always(times.sync_started, pa.int64()),
    }
