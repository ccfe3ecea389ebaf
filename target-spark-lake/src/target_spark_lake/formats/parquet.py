"""Tables of plain Parquet files: a change is a set of files to add and a set of files to remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.errors import SingerSparkError
from target_spark_lake.config_schema import OVERWRITE
from target_spark_lake.formats.parquet_writer import ParquetWriter
from target_spark_lake.formats.uniform_tables import UniformTables
from target_spark_lake.layout import folder_name
from target_spark_lake.staging.stager import spark_failure
from target_spark_lake.tables.changes import TableChange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.table_format import StreamLoad
    from target_spark_lake.settings import TargetSettings


class ParquetTables:
    """The table format `parquet`."""

    def __init__(
        self,
        run: PipelineRun,
        settings: TargetSettings,
        session: Callable[[], SparkSession],
        scratch: Path,
        *,
        may_lack: bool = False,
    ) -> None:
        """Starts nothing.

        Args:
            run: The open run.
            settings: The target's.
            session: Gives the Spark session; asked only where rows must be merged.
            scratch: A folder of this machine that is removed after the run.
            may_lack: Whether every reader takes a column that a file lacks for NULL.
        """
        self._may_lack = may_lack
        self._run = run
        self._session = session
        self._scratch = scratch
        self._writer = ParquetWriter(run, settings, scratch)

    def changes(self, load: StreamLoad) -> tuple[TableChange, ...]:
        """What the load method makes of the records.

        Raises:
            RecordError: a key is NULL.
            StorageError: the bucket or Spark failed.
        """
        if not load.columns:
            return (TableChange(load.schema.stream, load.table),)
        rewritten = self._scratch / "rewritten" / folder_name(load.schema.stream)
        uniform = UniformTables(self._run, rewritten, self._writer.codec, may_lack=self._may_lack)
        load = uniform.staged(load)
        return tuple(uniform.change(change, load) for change in self._by_method(load))

    def _by_method(self, load: StreamLoad) -> tuple[TableChange, ...]:
        schema, table = load.schema, load.table
        if schema.merges:
            return self._merged(load)
        if schema.load_method == OVERWRITE:
            staged = load.staged or (self._writer.nothing(schema, load.columns),)
            return (self._writer.change(load, table, staged, self._run.table_files(table), load.columns, load.record),)
        return (self._writer.change(load, table, load.staged, (), load.columns, load.record),)

    def _merged(self, load: StreamLoad) -> tuple[TableChange, ...]:
        from target_spark_lake.formats.parquet_merge import merge_changes

        try:
            return merge_changes(self._run, self._writer, self._session, self._scratch, load)
        except SingerSparkError:
            raise
        except Exception as error:
            what = f"stream {load.schema.stream}: its records could not be merged into {load.table}"
            raise spark_failure(error, what, f"what the merge of stream {load.schema.stream} writes") from error
