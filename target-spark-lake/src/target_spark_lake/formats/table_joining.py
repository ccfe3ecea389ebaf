"""Joining of files of one table, for `spark-lake compact` and for runs that find many small
files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.core.lake_type import columns_from_text
from singer_spark.errors import SchemaError, StorageError
from target_spark_lake.columns.partitioning import folder_names, folder_values
from target_spark_lake.formats.compaction_plan import Join, planned_joins
from target_spark_lake.formats.file_joiner import FileJoiner
from target_spark_lake.layout import JOINED, table_folders
from target_spark_lake.table.row_order import read_parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from singer_spark.store.files import FileInfo
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.table_record import TableRecord


def joins_of(
    run: PipelineRun,
    settings: TargetSettings,
    table: str,
    record: TableRecord,
    files: Sequence[FileInfo],
    share: int,
) -> list[Join]:
    """The possible joins of a table's files (`planned_joins`).

    In a partitioned table only files in proper folders.
    """
    wanted = folder_names(record.partition_by)
    files = [
        each
        for each in files
        if not wanted or tuple(folder_values(table_folders(table, each.path))) == wanted
    ]
    parts = read_parts(run.storage, run.layout, table, [file.path for file in files])
    return planned_joins(table, files, settings.file_bytes, parts, share=share)


def reason_against(run: PipelineRun, table: str, record: TableRecord) -> str:
    """Why files of a table with its own log can't be joined here; empty if they can."""
    log = run.logs.of(record.format)
    if log is None:
        return ""
    snapshot = run.logs.snapshot(table, record)
    if snapshot is None:
        raise StorageError(log.missing_message(record.stream, table))
    try:
        snapshot.current_record(record)
    except SchemaError:
        return "got a column by someone else that this program can't keep"
    return snapshot.reason_against_joining(record)


def joined_files(
    run: PipelineRun,
    settings: TargetSettings,
    table: str,
    record: TableRecord,
    joins: Sequence[Join],
    scratch: Path,
) -> tuple[StagedFile, ...]:
    """Stage the new files."""
    folder = f"{run.staging_path(record.stream)}/{JOINED}/{table}"
    columns, logged = columns_from_text(record.columns), run.logs.of(record.format) is not None
    # For such a table only the log says which columns readers see, whatever else files hold.
    joiner = FileJoiner(
        run.storage, columns, folder, scratch, settings.compression, settings.file_bytes, logged
    )
    staged = [
        file for number, join in enumerate(joins) for file in joiner.joined(join, f"{number:05d}")
    ]
    # An empty one has its columns in the log, and needs no file for them.
    return tuple(file for file in staged if file.rows or not logged)
