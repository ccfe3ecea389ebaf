"""Writing of rows to Parquet files in this process: one file, or one per hive folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from target_spark_lake.columns.arrow_partitions import write_folders
from target_spark_lake.columns.lake_parquet import LakeFile, gathered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from singer_spark.singer.lake_type import Struct
    from target_spark_lake.staging.batch_plan import BatchPlan
    from target_spark_lake.staging.place import StagingPlace

ROW_GROUP_BYTES = 1 << 25
# How many bytes of rows are split into hive folders at once: the more, the fewer files.
FOLDERS_BYTES = 1 << 27
# One file keeps the rows in their order; where Spark writes, there are several.
PLAIN_FILE, PLAIN_FOLDER = "plain.parquet", "plain"


def stage_rows(parts: Iterable[pa.RecordBatch], place: StagingPlace, plan: BatchPlan, columns: Struct) -> None:
    """Write rows in their order, or into the plan's hive folders; leaves no files behind on failure.

    Raises:
        OSError: a file can't be written.
        RecordError: a value can't be the name of a hive folder.
        ConfigurationError: there are too many hive folders.
    """
    folders = plan.partitioning
    destination = place.path(PLAIN_FILE if folders is None else PLAIN_FOLDER)
    try:
        if folders is None:
            with LakeFile(destination, columns, plan.codec) as file:
                for rows in gathered(parts, ROW_GROUP_BYTES):
                    file.write_table(rows)
                    del rows  # before the next ones are gathered
            return
        for number, rows in enumerate(gathered(parts, FOLDERS_BYTES)):
            write_folders(rows, destination, f"{number:05d}.parquet", columns, plan.codec, folders)
            del rows
    except BaseException:
        # On a full disk too: the report of the failed run needs some room.
        _remove(destination)
        raise


def _remove(destination: Path) -> None:
    if destination.is_dir():
        shutil.rmtree(destination, ignore_errors=True)
    else:
        destination.unlink(missing_ok=True)
