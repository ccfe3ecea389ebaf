"""How the rows of a stream are staged: their columns, and the values common to all rows of a
batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import Field, Scalar, Struct
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from target_spark_lake.columns.staged_metadata import CONTROL_COLUMNS, merging_columns

if TYPE_CHECKING:
    from target_spark_lake.columns.partitioning import Partitioning
    from target_spark_lake.validate.bulk_check import ValueCheck

EXTRACTED_AT = "_sdc_extracted_at"


@dataclass(frozen=True)
class BatchTimes:
    """The times of a batch, from which its metadata columns are filled.

    Attributes:
        received: When its first line was read.
        batched: When it was closed.
        sync_started: When the run started, in milliseconds since the epoch.
    """

    received: datetime
    batched: datetime
    sync_started: int


@dataclass(frozen=True)
class BatchPlan:
    """How the records of a stream become rows.

    Attributes:
        columns: The record's columns.
        found: The columns of the incoming rows: the record's, and the metadata columns.
        staged: The columns of the staged files: the table's, and for a merge those that decide it.
        check: Finds lines that are certainly valid; None if only the validator can.
        times: For the metadata columns; None if the user wants none.
        codec: Parquet codec.
        merging: Whether the rows are for a merge, which needs further columns staged with them.
        partitioning: The table's hive folders, if rows are staged in them; otherwise None.
    """

    columns: Struct
    found: Struct
    staged: Struct
    check: ValueCheck | None
    times: BatchTimes | None
    codec: str
    merging: bool = False
    partitioning: Partitioning | None = None

    @classmethod
    def of(
        cls,
        columns: Struct,
        check: ValueCheck | None,
        times: BatchTimes | None,
        codec: str,
        *,
        merging: bool = False,
        keeps_deletes: bool = False,
    ) -> BatchPlan:
        """A plan that stages the records' own columns.

        `keeps_deletes` if the mark of deleted rows is always one.
        """
        needed = {*(CONTROL_COLUMNS if merging else ()), *([DELETED_AT] if keeps_deletes else ())}
        names = METADATA_COLUMNS if times is not None else needed
        added = (
            Field(name, Scalar(kind)) for name, kind in METADATA_COLUMNS.items() if name in names
        )
        found = Struct((*columns.without(METADATA_COLUMNS), *added))
        return cls(columns, found, found, check, times, codec, merging)

    def into(
        self, table: Struct, check: ValueCheck | None, partitioning: Partitioning | None
    ) -> BatchPlan:
        """The plan with the table's columns and hive folders, and the check of its records."""
        staged = merging_columns(table) if self.merging else table
        return replace(self, staged=staged, check=check, partitioning=partitioning)

    def known(
        self, extracted: datetime | None = None, version: int | None = None
    ) -> dict[str, object]:
        """The metadata columns with the same value in all rows of a batch.

        Args:
            extracted: When the records were read, if all at once.
            version: Table version that they belong to.
        """
        known: dict[str, object] = {TABLE_VERSION: version}
        if self.times is not None:
            known |= {
                EXTRACTED_AT: extracted,
                "_sdc_received_at": self.times.received.astimezone(UTC),
                "_sdc_batched_at": self.times.batched.astimezone(UTC),
                "_sdc_sequence": int(self.times.received.timestamp() * 1000),
                "_sdc_sync_started_at": self.times.sync_started,
            }
        return known


def moment_of(text: object) -> datetime | None:
    """A message's timestamp; an invalid one counts as absent."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC) if moment else None
    except (ValueError, OverflowError):
        return None
