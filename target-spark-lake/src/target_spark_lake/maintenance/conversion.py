"""Converts tables to another format in place: their files are registered in a log, none is rewritten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from singer_spark.process.signals import too_late_to_stop
from target_spark_lake.commit.format_check import check_format
from target_spark_lake.config.config_schema import FORMATS
from target_spark_lake.tables.changes import Commit, TableChange
from target_spark_lake.tables.table_record import TableRecord, records_of

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun


def convert(run: PipelineRun, chosen: str, stream: str | None) -> list[str]:
    """Convert the pipeline's tables to the chosen format, all or none; the run is ended in any case.

    With a `stream` only its tables are converted (with append-dedup it has two). Returns the folders of the converted
    tables; empty if all already had that format.

    Raises:
        ConfigurationError: there is no such table, or it can't be converted to that format.
        SchemaError: the format does not allow a column.
    """
    pipeline = run.layout.pipeline
    with run.failing():
        run.guard_checkpoint("a conversion", "convert")
        found = records_of(run.storage, pipeline)
        records = {table: each for table, each in found.items() if stream in (None, each.stream)}
        if not records:
            raise ConfigurationError(
                f"pipeline {pipeline} has no table" + (f" of stream {stream}" if stream else "") + " to convert"
            )
        earlier = FORMATS[: FORMATS.index(chosen)]
        changes = tuple(_change(run, chosen, table, each) for table, each in records.items() if each.format in earlier)
        if changes:
            too_late_to_stop()
            run.commit(Commit(changes))
        else:
            run.leave()
    return [change.table for change in changes]


def _change(run: PipelineRun, chosen: str, table: str, record: TableRecord) -> TableChange:
    # Checked like a new table of the format: no log may exist, and no name that its readers can't open.
    converted = replace(record, format=chosen)
    check_format(run.storage, run.logs, record.stream, table, converted, chosen)
    log = run.logs.of(chosen)
    assert log is not None
    if log.snapshot(table) is not None:
        raise ConfigurationError(
            f"stream {record.stream}: in {table} someone else made a table of format {chosen}; move its log away"
        )
    files = {file.path: file.size for file in run.data_files(table)}
    log.check_files(table, record, files)
    return log.change(None, TableChange(record.stream, table, record=converted), files)
