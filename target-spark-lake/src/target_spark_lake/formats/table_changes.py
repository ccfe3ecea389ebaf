"""Turns a stream's load into table changes, by the table's format.

If that has a log of its own, files are made as for plain Parquet, and the log says which ones
count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import columns_from_text
from singer_spark.core.metadata_columns import METADATA_COLUMNS
from singer_spark.errors import StorageError
from target_spark_lake.columns.evolution import EvolutionRules, evolve
from target_spark_lake.commit.format_check import check_format
from target_spark_lake.formats.parquet import parquet_changes

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.formats.table_writer import TableWriter
    from target_spark_lake.table.changes import TableChange
    from target_spark_lake.table_logs.table_log import TableLog


def table_changes(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    """The changes of a stream's tables, in the format of the settings.

    Touches nothing that readers can see.

    Raises:
        RecordError: a key is NULL.
        SchemaError: the format does not allow a column, or another writer added incompatible ones.
    """
    log = writer.run.logs.of(writer.settings.format)
    if log is None:
        return parquet_changes(writer, load)
    load = _beside_others(writer.run, load)
    changes = parquet_changes(writer, load, keeps_files=log.keeps_files)
    return tuple(_logged(writer, log, change, load) for change in changes)


def _beside_others(run: PipelineRun, load: StreamLoad) -> StreamLoad:
    """The load with the table's current columns, which other writers may have changed since the
    last run.
    """
    snapshot = run.logs.snapshot(load.table, load.record) if load.columns.fields else None
    if load.record is None or snapshot is None:
        return load
    known, found = load.record.columns, snapshot.current_record(load.record)
    own = {*load.schema.schema["properties"], *METADATA_COLUMNS}
    record = replace(found, foreign=tuple(name for name in found.foreign if name not in own))
    # If another writer changed a column's type, the new type must hold both their values and the
    # run's.
    current = {
        name: str(load.columns.types.get(name, kind)) if known.get(name) == kind else kind
        for name, kind in record.columns.items()
        if not load.schema.method.replaces or name in record.foreign
    }
    columns = evolve(
        load.schema.stream, columns_from_text(current), load.columns, EvolutionRules()
    ).columns
    is_uniform = load.is_uniform and all(
        columns.types[each.name] == each.type for each in load.columns
    )
    return replace(load, columns=columns, record=record, is_uniform=is_uniform)


def _logged(
    writer: TableWriter, log: TableLog, change: TableChange, load: StreamLoad
) -> TableChange:
    if change.record is None:
        return change
    run, chosen = writer.run, writer.settings.format
    before = run.logs.seen(log, change.table)
    if before is None:
        _check_new(run, log, change, chosen)
    known = (
        load.record
        if change.table == load.table
        else run.current_record(change.stream, change.table)
    )
    record = replace(change.record, format=chosen, foreign=known.foreign if known else ())
    return log.change(before, replace(change, record=record))


def _check_new(run: PipelineRun, log: TableLog, change: TableChange, chosen: str) -> None:
    """Check that a table without a log never existed; this applies to the history table too."""
    record = run.table_record(change.stream, change.table)
    check_format(run.storage, run.logs, change.stream, change.table, record, chosen)
    if record is not None:
        raise StorageError(
            f"{log.missing_message(change.stream, change.table)}; or, to load it anew, remove its "
            "folder and its "
            f"record {run.layout.table_record(change.table)}"
        )
