"""Tables of plain Parquet become Delta tables where they lie: their files are registered in a log, none is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from singer_spark.process.signals import too_late_to_stop
from singer_spark.state.run_log import LAKE_FOLDER
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config_schema import DELTA, PARQUET
from target_spark_lake.delta_log.files import check_columns, delta_change
from target_spark_lake.delta_log.format_check import check_format
from target_spark_lake.tables.changes import Commit, TableChange
from target_spark_lake.tables.table_record import read_record

if TYPE_CHECKING:
    from singer_spark.process.identity import Process
    from singer_spark.state.store import StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.layout import Layout
    from target_spark_lake.tables.table_record import TableRecord

_RECORDS = f"{LAKE_FOLDER}/tables/"


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

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        stream: Only its tables (with append-dedup it has two); None for all of the pipeline.
        lock_ttl_seconds: As in the settings.
        store: Where the state is; the bucket where not given.
        process: In whose name the lock is held; this process where not given.

    Returns:
        The folders that were converted; empty where all of them were Delta tables before.

    Raises:
        ConfigurationError: there is no such table, or it can't be one of Delta.
        LockedError: a run holds the pipeline.
        SchemaError: Delta does not take a column's name.
        StorageError: the storage failed.
    """
    run = open_run(storage, layout, lock_ttl_seconds=lock_ttl_seconds, store=store, process=process, command="convert")
    try:
        records = _records(storage, layout, stream)
        if not records:
            raise ConfigurationError(
                f"pipeline {layout.pipeline} has no table" + (f" of stream {stream}" if stream else "") + " to convert"
            )
        changes = tuple(_change(run, table, each) for table, each in records.items() if each.format == PARQUET)
        if not changes:
            run.leave()
            return []
        too_late_to_stop()
        run.commit(Commit(changes))
    except BaseException as error:
        run.fail(error)
        raise
    return [change.table for change in changes]


def _records(storage: Storage, layout: Layout, stream: str | None) -> dict[str, TableRecord]:
    """The pipeline's tables that were written, by their folders."""
    found: dict[str, TableRecord] = {}
    for file in storage.list(_RECORDS.rstrip("/")):
        record = read_record(storage, file.path)
        if record is None or record.is_claim() or record.pipeline != layout.pipeline:
            continue
        if stream in (None, record.stream):
            found[file.path.removeprefix(_RECORDS).removesuffix(".json")] = record
    return found


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
