"""What a run wants to change in the table of one stream, once all of its batches are staged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from target_spark_lake.changes import StagedFile, TableChange
from target_spark_lake.lake_parquet import parquet_writer
from target_spark_lake.lake_type import Struct, columns_from_text
from target_spark_lake.settings import OVERWRITE, TargetSettings
from target_spark_lake.table_record import TableRecord
from target_spark_lake.table_rewriter import TableRewriter

if TYPE_CHECKING:
    from pathlib import Path

    from target_spark_lake.pipeline_run import PipelineRun
    from target_spark_lake.sink import StreamSink

logger = logging.getLogger("target-spark-lake")


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
    columns = columns_from_text(sink.all_columns)
    staged = sink.staged()
    if not sink.is_uniform:
        staged = _rewriter("staged", sink, columns, settings, run, spool).staged(staged)
    retire: tuple[str, ...] = ()
    replaced: Mapping[str, StagedFile] = {}
    if sink.schema.load_method == OVERWRITE:
        retire = run.table_files(table)
        staged = staged or (_stage_nothing(stream, columns, settings, run, spool),)
    elif sink.record is not None and sink.record.columns != sink.all_columns:
        logger.info("stream %s: the files of its table are brought to its new columns", stream)
        replaced = _rewriter("table", sink, columns, settings, run, spool).table(table, run.table_files(table))
        retire = tuple(replaced)
    record = TableRecord(run.layout.pipeline, stream, sink.all_columns, sink.schema.load_method)
    extension = f"{settings.compression}.parquet"
    return TableChange(stream, table, staged, retire, record, extension, rewritten=tuple(replaced.values()))


def _rewriter(
    name: str, sink: StreamSink, columns: Struct, settings: TargetSettings, run: PipelineRun, spool: Path
) -> TableRewriter:
    folder = f"{run.staging_path(sink.schema.stream)}/rewritten-{name}"
    return TableRewriter(run.storage, columns, folder, spool / "rewritten", settings.compression)


def _stage_nothing(stream: str, columns: Struct, settings: TargetSettings, run: PipelineRun, spool: Path) -> StagedFile:
    """A file without rows: an overwritten table that is empty still has its columns."""
    local = spool / "empty.parquet"
    with parquet_writer(local, columns, settings.compression):
        pass
    path = f"{run.staging_path(stream)}/empty.parquet"
    run.storage.replace(path, local.read_bytes())
    return StagedFile(path, 0, local.stat().st_size)
