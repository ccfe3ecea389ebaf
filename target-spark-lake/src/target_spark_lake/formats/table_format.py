"""What a table format must do: turn what a run brought for a stream into changes that the run can commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.tables.changes import StagedFile, TableChange
    from target_spark_lake.tables.source_keys import PresentKeys
    from target_spark_lake.tables.table_record import TableRecord


@dataclass(frozen=True)
class StreamLoad:
    """All that a run brought for one stream.

    Attributes:
        schema: The stream's last SCHEMA.
        table: Folder of its table, relative to the bucket.
        columns: Columns of the table after this run: name to Spark's name of the type, in order; empty where no
            record, and nothing else, asked for them.
        record: The table as it stands; None for a new one.
        staged: The staged files, in the order of the records; those of one batch lie in one folder.
        activated: The greatest version that the run activated; None where it activated none.
        is_uniform: Whether the staged files surely have those columns.
        sends_all: Whether the run sent the stream whole, so that a row that it did not send is no more.
        present: The keys that the source still has; None where the run does not say.
    """

    schema: StreamSchema
    table: str
    columns: Mapping[str, str]
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


class TableFormat(Protocol):
    """A way to keep tables in the lake."""

    def changes(self, load: StreamLoad) -> tuple[TableChange, ...]:
        """What the load method makes of the records; nothing that a reader could see is touched.

        Raises:
            SingerSparkError: the records can't become part of the table.
        """
