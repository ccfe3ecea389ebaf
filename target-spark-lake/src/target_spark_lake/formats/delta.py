"""Tables of Delta: the files of a change are made as for plain Parquet, and its log says which of them count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError
from singer_spark.singer.metadata_columns import METADATA_COLUMNS
from target_spark_lake.columns.evolution import EvolutionRules, evolve
from target_spark_lake.columns.lake_type import columns_from_text, columns_to_text
from target_spark_lake.config_schema import DELTA, OVERWRITE
from target_spark_lake.delta_log.files import delta_change, readable_folders, standing_record
from target_spark_lake.delta_log.format_check import check_format
from target_spark_lake.delta_log.snapshot import LOG_FOLDER
from target_spark_lake.formats.parquet import ParquetTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.table_format import StreamLoad
    from target_spark_lake.settings import TargetSettings
    from target_spark_lake.tables.changes import StagedFile, TableChange


class DeltaTables:
    """The table format `delta`."""

    def __init__(
        self, run: PipelineRun, settings: TargetSettings, session: Callable[[], SparkSession], scratch: Path
    ) -> None:
        """Starts nothing.

        Args:
            run: The open run.
            settings: The target's.
            session: Gives the Spark session; asked only where rows must be merged.
            scratch: A folder of this machine that is removed after the run.
        """
        self._run = run
        self._files = ParquetTables(run, settings, session, scratch, may_lack=True)

    def changes(self, load: StreamLoad) -> tuple[TableChange, ...]:
        """What the load method makes of the records.

        Raises:
            RecordError: a key is NULL.
            SchemaError: Delta takes no column of such a name, or someone else gave the table other ones.
            StorageError: the bucket or Spark failed.
        """
        load = self._beside_others(load)
        return tuple(self._logged(change, load) for change in self._files.changes(load))

    def _beside_others(self, load: StreamLoad) -> StreamLoad:
        """The load, its columns those of the table as it stands, which others may have changed since the last run."""
        snapshot = self._run.snapshots.of(load.table) if load.record is not None and load.columns else None
        if load.record is None or snapshot is None:
            return load
        known, found = load.record.columns, standing_record(load.record, snapshot)
        own = {*load.schema.schema["properties"], *METADATA_COLUMNS}
        record = replace(found, foreign=tuple(name for name in found.foreign if name not in own))
        overwrites = load.schema.load_method == OVERWRITE
        # Only where others changed the type of a column, it must hold both their values and the run's.
        standing = {
            name: kind if known.get(name) != kind else load.columns.get(name, kind)
            for name, kind in record.columns.items()
            if not overwrites or name in record.foreign
        }
        both = evolve(
            load.schema.stream, columns_from_text(standing), columns_from_text(load.columns), EvolutionRules()
        )
        columns = columns_to_text(both.columns)
        is_uniform = load.is_uniform and all(columns[name] == kind for name, kind in load.columns.items())
        return replace(load, columns=columns, record=record, is_uniform=is_uniform)

    def _logged(self, change: TableChange, load: StreamLoad) -> TableChange:
        if change.record is None:
            return change
        # An empty table has its columns in the log, and needs no file for them.
        staged = _placed(file for file in change.staged if file.rows)
        whole = replace(change, staged=staged, rewritten=_placed(change.rewritten))
        before = self._run.snapshots.of(change.table)
        if before is None:
            self._check_new(change)
        delta = delta_change(self._run.storage, before, whole)
        record = replace(change.record, format=DELTA, foreign=self._foreign(change, load))
        return replace(whole, record=record, delta=delta)

    def _foreign(self, change: TableChange, load: StreamLoad) -> tuple[str, ...]:
        is_main = change.table == load.table
        record = load.record if is_main else self._run.standing_record(change.stream, change.table)
        return record.foreign if record is not None else ()

    def _check_new(self, change: TableChange) -> None:
        """A table without a log must be one that was never there; the history beside one, too."""
        record = self._run.table_record(change.stream, change.table)
        check_format(self._run.storage, change.stream, change.table, record, DELTA)
        if record is not None:
            raise StorageError(
                f"stream {change.stream}: the log of Delta table {change.table} is gone: restore {LOG_FOLDER}; or, to "
                f"load it anew, remove its folder and its record {self._run.layout.table_record(change.table)}"
            )


def _placed(files: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    return tuple(replace(file, partition=readable_folders(file.partition)) for file in files)
