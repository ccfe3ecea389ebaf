"""Stages files for a run's tables, and builds the changes made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import columns_to_text
from target_spark_lake.layout import folder_name
from target_spark_lake.table.changes import StagedFile, TableChange
from target_spark_lake.table.table_record import TableRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from singer_spark.core.lake_type import Struct
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.intake.stream_schema import StreamSchema


@dataclass(frozen=True)
class TableWriter:
    """The means to write a run's tables; the session is only requested if rows must be merged."""

    run: PipelineRun
    settings: TargetSettings
    session: Callable[[], SparkSession]
    scratch: Path

    def nothing(self, schema: StreamSchema, columns: Struct) -> StagedFile:
        """Stage a file without rows, since an empty table still has its columns."""
        from target_spark_lake.table.lake_parquet import LakeFile

        local, partitioning = (
            self.scratch / f"empty-{folder_name(schema.stream)}.parquet",
            schema.partitioning,
        )
        # Readers take partition columns from folder names, so even a file without rows is put into
        # folders.
        inside = partitioning.inside(columns) if partitioning else columns
        with LakeFile(local, inside, self.settings.compression):
            pass
        path = f"{self.run.staging_path(schema.stream)}/empty.parquet"
        self.run.storage.replace(path, local.read_bytes())
        return StagedFile(
            path, 0, local.stat().st_size, partitioning.null_folders if partitioning else ""
        )

    def change(
        self,
        load: StreamLoad,
        table: str,
        staged: Sequence[StagedFile],
        retire: Sequence[str],
        columns: Struct,
        before: TableRecord | None,
    ) -> TableChange:
        """The change made of staged files and the files they replace.

        `before` is the current record.
        """
        schema = load.schema
        known = (
            TableRecord("", "", small_files=0) if before is None or before.is_claim() else before
        )
        record = TableRecord(
            self.run.layout.pipeline,
            schema.stream,
            columns_to_text(columns),
            schema.load_method,
            key_properties=schema.key_properties,
            cursor=schema.cursor,
            partition_by=schema.partition_by,
            small_files=known.small_files,
            small_files_left=known.small_files_left,
            json_texts=tuple(sorted(schema.texts.json)),
            mixed_texts=tuple(sorted(schema.texts.mixed)),
        )
        extension = f"{self.settings.compression}.parquet"
        return TableChange(schema.stream, table, tuple(staged), tuple(retire), record, extension)
