"""A run's data for one stream, which a table format turns into changes for the commit, and what
writes the files of these changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import columns_to_text
from singer_spark.errors import RecordError
from target_spark_lake.error_codes import LakeCode
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
    from target_spark_lake.intake.stream_schema import StreamSchema


class ShrunkTableError(RecordError):
    """A table that came whole has far fewer rows than before."""


def refuse_shrink(stream: str, before: int, after: int, most_percent: float) -> None:
    """Stop a run that would leave a table with far fewer rows, which is more often a mistake than
    the truth.

    Raises:
        ShrunkTableError: the table would lose more than `most_percent` of its rows.
    """
    if (before - after) * 100 > before * most_percent:
        raise ShrunkTableError(
            LakeCode.SHRUNK_TABLE,
            f"stream {stream}: it was sent in full with {after} rows, and its table has {before}. "
            f"That is {(before - after) * 100 / before:.1f} percent fewer, and max_shrink_percent "
            f"is {most_percent:g}; nothing was changed. If that is right, run `spark-lake run "
            "--accept-shrink` once (in a pipe: `target-spark-lake --accept-shrink`; under "
            "Meltano: TARGET_SPARK_LAKE_MAX_SHRINK_PERCENT=100); else check the tap's database "
            "and `where`",
        )


@dataclass(frozen=True)
class PresentKeys:
    """All keys of a stream's source, as sent by a run after the stream's records.

    Attributes:
        files: Staged files with only the key columns, in any order; none if the source is empty.
        columns: Those columns, with the types they have in the files.
        max_deletes_percent: A run fails if it would delete a larger part of the table's undeleted
            rows.
    """

    files: tuple[StagedFile, ...]
    columns: Struct
    max_deletes_percent: float

    def refuse_too_many(self, stream: str, gone: int, living: int) -> None:
        """Stop a run that would delete too many undeleted rows, which is more often a mistake than
        the truth.

        Raises:
            RecordError: it would delete more than `max_deletes_percent` of them.
        """
        if gone * 100 > living * self.max_deletes_percent:
            raise RecordError(
                LakeCode.TOO_MANY_DELETES,
                f"stream {stream}: detect_deletes finds {gone} of the table's {living} rows gone "
                f"from the source ({gone * 100 / max(living, 1):.1f} percent), and "
                f"max_deletes_percent is {self.max_deletes_percent:g}; nothing was changed. If "
                "they are gone, run it once with a greater max_deletes_percent; else check the "
                "tap's database and `where`",
            )


@dataclass(frozen=True)
class StreamLoad:
    """A run's data for one stream.

    Attributes:
        schema: The stream's last SCHEMA.
        table: Folder of its table, relative to the bucket.
        columns: Columns of the table after this run; none if neither a record nor anything else
            requires them.
        record: The table's current record; None for a new table.
        staged: The staged files, in the order of the records; those of one batch are in one folder.
        activated: The greatest version activated by the run; None if there was none.
        is_uniform: Whether the staged files certainly have those columns.
        sends_all: Whether the run sent the stream whole, so that rows it did not send no longer
            exist.
        present: The keys still in the source; None if the run does not send them.
    """

    schema: StreamSchema
    table: str
    columns: Struct
    record: TableRecord | None
    staged: tuple[StagedFile, ...]
    activated: int | None
    is_uniform: bool
    sends_all: bool
    present: PresentKeys | None = None

    @property
    def rows(self) -> int:
        """Number of records loaded."""
        return sum(file.rows for file in self.staged)


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

        local = self.scratch / f"empty-{folder_name(schema.stream)}.parquet"
        partitioning = schema.partitioning
        # Readers take partition columns from folder names, so even a file without rows is put into
        # folders.
        inside = partitioning.inside(columns) if partitioning else columns
        with LakeFile(local, inside, self.settings.compression):
            pass
        path = f"{self.run.staging_path(schema.stream)}/empty.parquet"
        self.run.storage.replace(path, local.read_bytes())
        folders = partitioning.null_folders if partitioning else ""
        return StagedFile(path, 0, local.stat().st_size, folders)

    def change(
        self,
        load: StreamLoad,
        table: str,
        staged: Sequence[StagedFile],
        retire: Sequence[str],
        columns: Struct,
        before: TableRecord | None,
    ) -> TableChange:
        """The change made of staged files and those they replace; `before` is the record now."""
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
