"""Tables of Delta: the files of a change are made as for plain Parquet, and its log says which of them count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError
from target_spark_lake.delta_files import delta_change, readable_folders
from target_spark_lake.delta_snapshot import LOG_FOLDER
from target_spark_lake.format_check import check_format
from target_spark_lake.settings import DELTA
from target_spark_lake.table_formats.parquet import ParquetTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from target_spark_lake.changes import StagedFile, TableChange
    from target_spark_lake.pipeline_run import PipelineRun
    from target_spark_lake.settings import TargetSettings
    from target_spark_lake.table_formats import StreamLoad


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
            SchemaError: Delta takes no column of such a name.
            StorageError: the bucket or Spark failed.
        """
        return tuple(map(self._logged, self._files.changes(load)))

    def _logged(self, change: TableChange) -> TableChange:
        if change.record is None:
            return change
        # An empty table has its columns in the log, and needs no file for them.
        staged = _placed(file for file in change.staged if file.rows)
        whole = replace(change, staged=staged, rewritten=_placed(change.rewritten))
        before = self._run.snapshots.of(change.table)
        if before is None:
            self._check_new(change)
        delta = delta_change(self._run.storage, before, whole)
        return replace(whole, record=replace(change.record, format=DELTA), delta=delta)

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
