"""All that a run brought for one stream: what a table format turns into changes that the run can commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import RecordError

if TYPE_CHECKING:
    from target_spark_lake.columns.lake_type import Struct
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.tables.changes import StagedFile
    from target_spark_lake.tables.table_record import TableRecord


@dataclass(frozen=True)
class PresentKeys:
    """All keys of a stream's source, as a run sent them behind the stream's records.

    Attributes:
        files: Staged files that hold the key's columns alone, in any order; none: the source is empty.
        columns: Those columns, with the types under which the files hold them.
        max_deletes_percent: A run that would delete more of the table's living rows than this fails.
    """

    files: tuple[StagedFile, ...]
    columns: Struct
    max_deletes_percent: float

    def refuse_too_many(self, stream: str, gone: int, living: int) -> None:
        """Stops a run that would delete too many living rows, which is more often a mistake than the truth.

        Raises:
            RecordError: more than `max_deletes_percent` of them would go.
        """
        if gone * 100 > living * self.max_deletes_percent:
            raise RecordError(
                f"stream {stream}: detect_deletes finds {gone} of the table's {living} rows gone from the source "
                f"({gone * 100 / max(living, 1):.1f} percent), and max_deletes_percent is "
                f"{self.max_deletes_percent:g}; nothing was changed. If they are gone, run it once with a greater "
                "max_deletes_percent; else look at the tap's database and `where`"
            )


@dataclass(frozen=True)
class StreamLoad:
    """What a run brought for a stream.

    Attributes:
        schema: The stream's last SCHEMA.
        table: Folder of its table, relative to the bucket.
        columns: Columns of the table after this run; none where no record, and nothing else, asked for them.
        record: The table as it stands; None for a new one.
        staged: The staged files, in the order of the records; those of one batch lie in one folder.
        activated: The greatest version that the run activated; None where it activated none.
        is_uniform: Whether the staged files surely have those columns.
        sends_all: Whether the run sent the stream whole, so that a row that it did not send is no more.
        present: The keys that the source still has; None where the run does not say.
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
        """Records that came."""
        return sum(file.rows for file in self.staged)
