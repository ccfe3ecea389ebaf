"""Writing of rows to Parquet files in this process: one file, or one per hive folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa

from target_spark_lake.columns.arrow_partitions import FolderWriter
from target_spark_lake.columns.lake_parquet import parquet_writer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from singer_spark.singer.lake_type import Struct
    from target_spark_lake.columns.lake_parquet import LakeFile
    from target_spark_lake.staging.batch_plan import BatchPlan
    from target_spark_lake.staging.place import StagingPlace

ROW_GROUP_BYTES = 1 << 25
# How many bytes of rows are split into hive folders at once: the more, the fewer files.
FOLDERS_BYTES = 1 << 27
# One file keeps the rows in their order; where Spark writes, there are several.
PLAIN_FILE, PLAIN_FOLDER = "plain.parquet", "plain"


def stage_rows(parts: Iterable[pa.RecordBatch], place: StagingPlace, plan: BatchPlan, columns: Struct) -> int:
    """Write rows; leaves no files behind on failure.

    Args:
        parts: The rows, in order.
        place: Their staging folder.
        plan: Codec and hive folders.
        columns: The rows' columns.

    Returns:
        The number of rows.

    Raises:
        OSError: a file can't be written.
        RecordError: a value can't be the name of a hive folder.
        ConfigurationError: there are too many hive folders.
    """
    folders = plan.partitioning
    destination = place.path(PLAIN_FILE if folders is None else PLAIN_FOLDER)
    try:
        if folders is None:
            with parquet_writer(destination, columns, plan.codec) as writer:
                return _write(parts, writer, ROW_GROUP_BYTES)
        return _write(parts, FolderWriter(destination, columns, plan.codec, folders), FOLDERS_BYTES)
    except BaseException:
        # On a full disk too: the report of the failed run needs some room.
        _remove(destination)
        raise


def _write(parts: Iterable[pa.RecordBatch], writer: LakeFile | FolderWriter, bytes_at_once: int) -> int:
    waiting: list[pa.RecordBatch] = []
    rows = waiting_bytes = 0
    for part in parts:
        waiting.append(part)
        rows += part.num_rows
        waiting_bytes += part.nbytes
        if waiting_bytes >= bytes_at_once:
            writer.write_table(pa.Table.from_batches(waiting))
            waiting.clear()
            waiting_bytes = 0
    if waiting:
        writer.write_table(pa.Table.from_batches(waiting))
    return rows


def _remove(destination: Path) -> None:
    if destination.is_dir():
        shutil.rmtree(destination, ignore_errors=True)
    else:
        destination.unlink(missing_ok=True)
