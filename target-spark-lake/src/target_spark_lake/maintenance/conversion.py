"""Tables of plain Parquet become Delta tables where they lie: their files are registered in a log, none is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from singer_spark.process.signals import too_late_to_stop
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config_schema import DELTA, PARQUET
from target_spark_lake.delta_log.files import check_columns, delta_change
from target_spark_lake.delta_log.format_check import check_format
from target_spark_lake.tables.changes import Commit, TableChange
from target_spark_lake.tables.table_record import records_of

if TYPE_CHECKING:
    from singer_spark.process.identity import Process
    from singer_spark.state.store import StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.layout import Layout
    from target_spark_lake.tables.table_record import TableRecord


def convert_to_delta(
    storage: Storage,
    layout: Layout,
    stream: str | None,
    *,
    lock_ttl_seconds: float,
    store: StateStore | None = None,
    process: Process | None = None,
) -> list[str]:
    """Converts tables of the pipeline in a run of their own: all of them, or none.

    The arguments are those of `open_run`, and `stream`: only its tables (with append-dedup it has two), if given.
    Gives the folders that were converted; none where all of them were Delta tables before.

    Raises:
        ConfigurationError: there is no such table, or it can't be one of Delta.
        LockedError: a run holds the pipeline.
        SchemaError: Delta does not take a column's name.
    """
    run = open_run(storage, layout, lock_ttl_seconds=lock_ttl_seconds, store=store, process=process, command="convert")
    with run.failing():
        found = records_of(storage, layout.pipeline)
        records = {table: each for table, each in found.items() if stream in (None, each.stream)}
        if not records:
            raise ConfigurationError(
                f"pipeline {layout.pipeline} has no table" + (f" of stream {stream}" if stream else "") + " to convert"
            )
        changes = tuple(_change(run, table, each) for table, each in records.items() if each.format == PARQUET)
        if changes:
            too_late_to_stop()
            run.commit(Commit(changes))
        else:
            run.leave()
    return [change.table for change in changes]


def _change(run: PipelineRun, table: str, record: TableRecord) -> TableChange:
    # As a new table of Delta would be: no log may be there, and no name that its readers can't open.
    check_format(run.storage, record.stream, table, replace(record, format=DELTA), DELTA)
    if run.snapshots.of(table) is not None:
        raise ConfigurationError(
            f"stream {record.stream}: in {table} someone else made a Delta table; move its _delta_log away"
        )
    files = {file.path: file.size for file in run.data_files(table)}
    check_columns(run.storage, table, record, files)
    change = TableChange(record.stream, table, record=replace(record, format=DELTA))
    return replace(change, delta=delta_change(run.storage, None, change, files))
