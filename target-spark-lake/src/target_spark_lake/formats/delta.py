"""Tables of Delta: the files of a change are made as for plain Parquet, and its log says which of them count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError
from singer_spark.singer.metadata_columns import METADATA_COLUMNS
from target_spark_lake.columns.evolution import EvolutionRules, evolve
from target_spark_lake.columns.lake_type import columns_from_text
from target_spark_lake.config_schema import DELTA
from target_spark_lake.delta_log.files import delta_change, readable_folders, standing_record
from target_spark_lake.delta_log.format_check import check_format
from target_spark_lake.delta_log.snapshot import LOG_FOLDER
from target_spark_lake.formats.parquet import parquet_changes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.formats.table_writer import TableWriter
    from target_spark_lake.tables.changes import StagedFile, TableChange


def delta_changes(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    """What the load method makes of the records; nothing that a reader could see is touched.

    Raises:
        RecordError: a key is NULL.
        SchemaError: Delta takes no column of such a name, or someone else gave the table other ones.
    """
    load = _beside_others(writer.run, load)
    return tuple(_logged(writer.run, change, load) for change in parquet_changes(writer, load, may_lack=True))


def _beside_others(run: PipelineRun, load: StreamLoad) -> StreamLoad:
    """The load, its columns those of the table as it stands, which others may have changed since the last run."""
    snapshot = run.snapshots.of(load.table) if load.record is not None and load.columns.fields else None
    if load.record is None or snapshot is None:
        return load
    known, found = load.record.columns, standing_record(load.record, snapshot)
    own = {*load.schema.schema["properties"], *METADATA_COLUMNS}
    record = replace(found, foreign=tuple(name for name in found.foreign if name not in own))
    # Only where others changed the type of a column, it must hold both their values and the run's.
    standing = {
        name: str(load.columns.types.get(name, kind)) if known.get(name) == kind else kind
        for name, kind in record.columns.items()
        if not load.schema.method.replaces or name in record.foreign
    }
    columns = evolve(load.schema.stream, columns_from_text(standing), load.columns, EvolutionRules()).columns
    is_uniform = load.is_uniform and all(columns.types[each.name] == each.type for each in load.columns)
    return replace(load, columns=columns, record=record, is_uniform=is_uniform)


def _logged(run: PipelineRun, change: TableChange, load: StreamLoad) -> TableChange:
    if change.record is None:
        return change
    # An empty table has its columns in the log, and needs no file for them.
    staged = _placed(file for file in change.staged if file.rows)
    whole = replace(change, staged=staged, rewritten=_placed(change.rewritten))
    before = run.snapshots.of(change.table)
    if before is None:
        _check_new(run, change)
    delta = delta_change(run.storage, before, whole)
    known = load.record if change.table == load.table else run.standing_record(change.stream, change.table)
    record = replace(change.record, format=DELTA, foreign=known.foreign if known else ())
    return replace(whole, record=record, delta=delta)


def _check_new(run: PipelineRun, change: TableChange) -> None:
    """A table without a log must be one that was never there; the history beside one, too."""
    record = run.table_record(change.stream, change.table)
    check_format(run.storage, change.stream, change.table, record, DELTA)
    if record is not None:
        raise StorageError(
            f"stream {change.stream}: the log of Delta table {change.table} is gone: restore {LOG_FOLDER}; or, to "
            f"load it anew, remove its folder and its record {run.layout.table_record(change.table)}"
        )


def _placed(files: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    return tuple(replace(file, partition=readable_folders(file.partition)) for file in files)
