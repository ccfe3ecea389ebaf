"""Writing of rows to Parquet files in this process: one file, or one per hive folder."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from typing import TYPE_CHECKING

from target_spark_lake.columns.arrow_partitions import FolderFiles
from target_spark_lake.columns.lake_parquet import ROW_GROUP_BYTES, LakeFile, gathered
from target_spark_lake.columns.stored_group import StoredGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from singer_spark.core.lake_type import Struct
    from target_spark_lake.columns.partitioning import Partitioning
    from target_spark_lake.stage.staging_location import StagingLocation

# How many bytes of rows are split into hive folders at once; the more, the fewer files.
FOLDERS_BYTES = 1 << 27
# One file keeps the rows in their order; where Spark writes, there are several.
PLAIN_FILE, PLAIN_FOLDER = "plain.parquet", "plain"


def stage_rows(
    parts: Iterable[pa.RecordBatch | StoredGroup],
    location: StagingLocation,
    columns: Struct,
    codec: str,
    folders: Partitioning | None,
    file_bytes: int | None = None,
) -> None:
    """Write rows in their order, or into hive folders; leaves no files behind on failure.

    Without folders, the rows are in one file, or in several of about `file_bytes`.

    Raises:
        OSError: a file can't be written.
        RecordError: a value can't be the name of a hive folder.
        ConfigurationError: there are too many hive folders.
    """
    destination = location.path(
        PLAIN_FILE if folders is None and file_bytes is None else PLAIN_FOLDER
    )
    try:
        if folders is not None:
            with FolderFiles(destination, columns, codec, folders, file_bytes) as files:
                for rows in gathered(parts, FOLDERS_BYTES):
                    files.write(rows)
                    del rows
        elif file_bytes is None:
            with LakeFile(destination, columns, codec) as file:
                for rows in gathered(parts, ROW_GROUP_BYTES):
                    file.write(rows)
                    del rows  # before the next ones are gathered
        else:
            _write_files(
                gathered(parts, min(ROW_GROUP_BYTES, file_bytes)),
                destination,
                columns,
                codec,
                file_bytes,
            )
    except BaseException:
        # Also on a full disk, because the report of the failed run needs some room.
        _remove(destination)
        raise


def _write_files(
    groups: Iterator[pa.Table | StoredGroup],
    destination: Path,
    columns: Struct,
    codec: str,
    file_bytes: int,
) -> None:
    """Write the groups; one is encoded while the rows of the next one are read."""
    group = next(groups, None)
    with ThreadPoolExecutor(1, thread_name_prefix="writing") as pool:
        for number in count():
            with LakeFile(destination / f"{number:05d}.parquet", columns, codec) as file:
                while group is not None and file.size < file_bytes:
                    writing = pool.submit(file.write, group)
                    try:
                        if isinstance(group, StoredGroup):
                            writing.result()  # its file is open until the next one is requested
                        del group
                        group = next(groups, None)
                    finally:
                        wait([writing])
                    writing.result()
            if group is None:
                return


def _remove(destination: Path) -> None:
    if destination.is_dir():
        shutil.rmtree(destination, ignore_errors=True)
    else:
        destination.unlink(missing_ok=True)
