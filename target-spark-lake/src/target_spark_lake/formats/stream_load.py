"""A run's data for one stream, which a table format turns into changes for the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import RecordError
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from singer_spark.core.lake_type import Struct
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.table_record import TableRecord


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
            f"stream {stream}: it came whole with {after} rows, and its table has {before} "
            f"({(before - after) * 100 / before:.1f} percent fewer), while max_shrink_percent is "
            f"{most_percent:g}; nothing was changed. If that is right, run `spark-lake run "
            "--accept-shrink` once (in a pipe: `target-spark-lake --accept-shrink`; under "
            "Meltano: TARGET_SPARK_LAKE_MAX_SHRINK_PERCENT=100); else look at the tap's database "
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
                "they are gone, run it once with a greater max_deletes_percent; else look at the "
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
