"""Staged files of a table, and the change that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from target_spark_lake.columns.lake_parquet import parquet_writer
from target_spark_lake.columns.lake_type import columns_from_text
from target_spark_lake.columns.spark_columns import column
from target_spark_lake.columns.spark_partitions import write_parquet
from target_spark_lake.layout import folder_name
from target_spark_lake.staging.place import StagingPlace
from target_spark_lake.tables.changes import StagedFile, TableChange
from target_spark_lake.tables.table_record import TableRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.table_format import StreamLoad
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.settings import TargetSettings

MEGABYTE = 1 << 20


class ParquetWriter:
    """Stages files for the tables of a run."""

    def __init__(self, run: PipelineRun, settings: TargetSettings, scratch: Path) -> None:
        """Writes nothing yet.

        Args:
            run: The open run.
            settings: The target's.
            scratch: A folder of this machine that is removed after the run.
        """
        self._run = run
        self.codec = settings.compression
        self._file_bytes = settings.target_file_mb * MEGABYTE
        self._scratch = scratch

    def rows(
        self, rows: DataFrame, columns: Sequence[str], schema: StreamSchema, name: str, size: int
    ) -> list[StagedFile]:
        """Stages rows.

        Args:
            rows: The rows.
            columns: Those of their columns that are written.
            schema: The stream that they are of.
            name: Of the folder, not used before for this stream.
            size: About how many bytes they will have.

        Raises:
            RecordError: a value can't be the name of a hive folder.
            ConfigurationError: the hive folders are too many.
        """
        storage, folder = self._run.storage, f"{self._run.staging_path(schema.stream)}/{name}"
        place = StagingPlace.of(rows.sparkSession, storage, folder, self._scratch / f"{name}.staged")
        files, partitioning = max(1, -(-size // self._file_bytes)), schema.partitioning
        write_parquet(rows.select(*map(column, columns)), place.url("rows"), self.codec, partitioning, files)
        staged = [file for file in place.files(partitioning) if file.rows]
        place.bring()
        return staged

    def nothing(self, schema: StreamSchema, columns: Mapping[str, str]) -> StagedFile:
        """Stages a file without rows: a table that is empty still has its columns."""
        local, partitioning = self._scratch / f"empty-{folder_name(schema.stream)}.parquet", schema.partitioning
        inside = columns_from_text(columns)
        # Readers take the columns that folders say from the folders: it lies in some, even without a row.
        with parquet_writer(local, partitioning.inside(inside) if partitioning else inside, self.codec):
            pass
        path = f"{self._run.staging_path(schema.stream)}/empty.parquet"
        self._run.storage.replace(path, local.read_bytes())
        return StagedFile(path, 0, local.stat().st_size, partitioning.nowhere if partitioning else "")

    def change(
        self,
        load: StreamLoad,
        table: str,
        staged: Sequence[StagedFile],
        retire: Sequence[str],
        columns: Mapping[str, str],
        before: TableRecord | None,
    ) -> TableChange:
        """The change that staged files make.

        Args:
            load: What the run brought.
            table: Folder of the table.
            staged: New files.
            retire: Files that they replace.
            columns: The table's columns after the change.
            before: The table's record as it stands; None for a new table.
        """
        schema = load.schema
        known = TableRecord("", "", small_files=0) if before is None or before.is_claim() else before
        record = TableRecord(
            self._run.layout.pipeline,
            schema.stream,
            columns,
            schema.load_method,
            key_properties=schema.key_properties,
            cursor=schema.cursor,
            partition_by=schema.partition_by,
            small_files=known.small_files,
            small_files_left=known.small_files_left,
        )
        return TableChange(schema.stream, table, tuple(staged), tuple(retire), record, f"{self.codec}.parquet")
