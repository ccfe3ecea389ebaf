"""Converts tables to another format in place: their files are registered in a log, none is
rewritten.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import ConfigurationError, SchemaError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import Commit, TableChange
from target_spark_lake.table.partitioning import folder_names, folder_values, folders_of
from target_spark_lake.table.table_index import FOOTERS_AT_ONCE
from target_spark_lake.table.table_record import FORMATS, TableRecord, records_of
from target_spark_lake.table_log import check_format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.table_log import TableLog


def convert(run: PipelineRun, chosen: str, stream: str | None) -> list[str]:
    """Convert the pipeline's tables to the chosen format, all or none.

    The run is ended in any case.

    With a `stream` only its tables are converted (with append-dedup it has two). Returns the
    folders of the converted tables; empty if all already had that format.

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
                LakeCode.TABLE_MISSING,
                f"pipeline {pipeline} has no table"
                + (f" of stream {stream}" if stream else "")
                + " to convert",
            )
        earlier = FORMATS[: FORMATS.index(chosen)]
        changes = tuple(
            _conversion_of(run, chosen, table, each)
            for table, each in records.items()
            if each.format in earlier
        )
        if changes:
            too_late_to_stop()
            run.commit(Commit(changes))
        else:
            run.leave()
    return [change.table for change in changes]


def _conversion_of(run: PipelineRun, chosen: str, table: str, record: TableRecord) -> TableChange:
    # Checked like a new table of the format: no log may exist, and no name that its readers can't
    # open.
    converted = replace(record, format=chosen)
    check_format(run.storage, run.logs, record.stream, table, converted, chosen)
    log = run.logs.of(chosen)
    assert log is not None
    if log.snapshot(table) is not None:
        raise ConfigurationError(
            LakeCode.OTHER_FORMAT,
            f"stream {record.stream}: in {table} someone else made a table of format {chosen}; "
            "move its log away",
        )
    files = {file.path: file.size for file in run.data_files(table)}
    _check_files(log, table, record, files)
    return log.change(None, TableChange(record.stream, table, record=converted), files)


def _check_files(log: TableLog, table: str, record: TableRecord, files: Iterable[str]) -> None:
    """Refuse files that a table of the log's format can't take as they are."""
    names = folder_names(record.partition_by)

    def check(path: str) -> None:
        if tuple(folder_values(folders_of(path[len(table) + 1 :]))) != names:
            raise ConfigurationError(
                LakeCode.NOT_CONVERTIBLE,
                f"stream {record.stream}: {path} lies in other hive folders than partition_by "
                "says, which can't be converted; move it away, or load the stream again with "
                "load_method overwrite",
            )
        if other := log.other_columns(record, path):
            raise SchemaError(
                LakeCode.NOT_CONVERTIBLE,
                f"stream {record.stream}: in {path} column(s) {', '.join(other)} have another type "
                "than in the table; load the stream again with load_method overwrite before it is "
                "converted",
            )

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        list(pool.map(check, files))
