"""What a run wants to change in the table of one stream, once all of its batches are staged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from target_spark_lake.changes import StagedFile, TableChange
from target_spark_lake.lake_parquet import parquet_writer
from target_spark_lake.lake_type import columns_from_text
from target_spark_lake.settings import OVERWRITE, TargetSettings
from target_spark_lake.table_record import TableRecord
from target_spark_lake.uniform_table import with_one_schema

if TYPE_CHECKING:
    from target_spark_lake.pipeline_run import PipelineRun
    from target_spark_lake.sink import StreamSink


def change_of(sink: StreamSink, settings: TargetSettings, run: PipelineRun, spool: Path) -> TableChange:
    """The change that a stream makes.

    Args:
        sink: The stream, all of its batches staged, prepared if it has an effect on its table.
        settings: The target's.
        run: The open run.
        spool: A folder on the local disk.

    Raises:
        StorageError: the storage failed.
    """
    stream, table = sink.schema.stream, sink.table
    if not sink.is_loaded:
        return TableChange(stream, table)
    staged = sink.staged()
    retire: tuple[str, ...] = ()
    if sink.schema.load_method == OVERWRITE:
        retire = run.table_files(table)
        staged = staged or (_stage_nothing(sink, settings, run, spool),)
    record = TableRecord(run.layout.pipeline, stream, sink.all_columns, sink.schema.load_method)
    change = TableChange(stream, table, staged, retire, record, f"{settings.compression}.parquet")
    return with_one_schema(
        change, sink.record, run, spool / "rewritten", settings.compression, staged_is_uniform=sink.is_uniform
    )


def _stage_nothing(sink: StreamSink, settings: TargetSettings, run: PipelineRun, spool: Path) -> StagedFile:
    """A file without rows: an overwritten table that is empty still has its columns."""
    local = spool / "empty.parquet"
    with parquet_writer(local, columns_from_text(sink.all_columns), settings.compression):
        pass
    path = f"{run.staging_path(sink.schema.stream)}/empty.parquet"
    run.storage.replace(path, local.read_bytes())
    return StagedFile(path, 0, local.stat().st_size)
