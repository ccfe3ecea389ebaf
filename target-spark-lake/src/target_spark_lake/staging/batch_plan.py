"""How the rows of a stream are staged: their columns, and what is known of all rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from target_spark_lake.columns.lake_type import Field, Scalar, Struct
from target_spark_lake.columns.staged_metadata import CONTROL_COLUMNS, metadata_columns

if TYPE_CHECKING:
    from target_spark_lake.columns.partitioning import Partitioning
    from target_spark_lake.validation.bulk_check import ValueCheck

EXTRACTED_AT = "_sdc_extracted_at"


@dataclass(frozen=True)
class BatchTimes:
    """When a batch came: the source of its metadata columns.

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
        check: Tells which lines are surely right; None where only the validator can.
        times: For the metadata columns; None where the user wants none.
        codec: Of Parquet.
        merging: The rows are for a merge: what it decides by is staged with them.
        table: The columns that the rows are staged under; None: as they come.
        partitioning: The table's hive folders, in which the rows are staged; None where they are staged in none.
        keeps_deletes: Whether the mark of a deleted row is a column that nobody can do without.
    """

    columns: Struct
    check: ValueCheck | None
    times: BatchTimes | None
    codec: str
    merging: bool = False
    table: Struct | None = None
    partitioning: Partitioning | None = None
    keeps_deletes: bool = False

    @property
    def found(self) -> Struct:
        """The columns as they come: the record's, and the metadata columns."""
        return with_metadata(self.columns, self.keeps_deletes, metadata=self.times is not None, merging=self.merging)

    @property
    def staged(self) -> Struct:
        """The columns of the staged files: the table's, and for a merge what it decides by."""
        if self.table is None:
            return self.found
        known = self.table.types
        decisive = (each for each in self.found if each.name in CONTROL_COLUMNS and each.name not in known)
        return Struct((*self.table, *(decisive if self.merging else ())))

    def known(self, extracted: datetime | None = None, version: int | None = None) -> dict[str, object]:
        """The metadata columns that are the same in all rows of a batch.

        Args:
            extracted: When the records were read, if all at once.
            version: Version of the table that they belong to.
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


def with_metadata(columns: Struct, marked: bool = False, *, metadata: bool, merging: bool = False) -> Struct:
    """The record's columns and the metadata columns: what a table's file holds, or a staged one (`merging`)."""
    names = {*metadata_columns(metadata=metadata, merging=merging), *([DELETED_AT] if marked else [])}
    added = (Field(name, Scalar(kind)) for name, kind in METADATA_COLUMNS.items() if name in names)
    return Struct((*columns.without(METADATA_COLUMNS), *added))


def moment_of(text: object) -> datetime | None:
    """A moment of a message; one that is none is as good as none."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC) if moment else None
    except (ValueError, OverflowError):
        return None
