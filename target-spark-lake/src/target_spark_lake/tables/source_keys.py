"""The keys that the source of a stream still has, and how many rows may go because theirs are not among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import RecordError

if TYPE_CHECKING:
    from target_spark_lake.columns.lake_type import Struct
    from target_spark_lake.tables.changes import StagedFile


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
        """Stops a run that would delete too much, which is more often a mistake than the truth.

        Args:
            stream: Name of the stream.
            gone: Living rows of the table, as it stood before the run, whose keys the source lacks.
            living: All of its rows that are not marked as deleted.

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
