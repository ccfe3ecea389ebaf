"""Metadata columns in a stream's batch files, and which columns may be long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.core.metadata_columns import METADATA_COLUMNS
from tap_spark_jdbc.extract.slice_bounds import long_columns

if TYPE_CHECKING:
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.supply.batch_place import BatchPlace

_MICROSECOND = 1_000_000


@dataclass(frozen=True)
class BatchColumns:
    """The columns of one stream's files.

    `extracted` is when its rows were read from the database.
    """

    plan: StreamPlan
    place: BatchPlace
    extracted: datetime

    @property
    def metadata(self) -> bool:
        """Whether files have metadata columns.

        A source column of the same name is left to the target.
        """
        return self.place.metadata and not METADATA_COLUMNS.keys() & self.plan.sent_columns.keys()

    @cached_property
    def metadata_values(self) -> dict[str, int | None]:
        """The metadata columns' values, the same in all files: microseconds for a timestamp."""
        now = _microseconds(datetime.now(UTC))
        values = {
            "_sdc_extracted_at": _microseconds(self.extracted),
            "_sdc_received_at": now,
            "_sdc_batched_at": now,
            "_sdc_sequence": now // 1000,
            "_sdc_sync_started_at": _microseconds(self.place.started) // 1000,
        }
        return {name: values.get(name) for name in METADATA_COLUMNS} if self.metadata else {}

    @cached_property
    def long(self) -> list[str]:
        """Non-key columns that may hold long values.

        A key's bounds are kept in the footer to find files by.
        """
        keys = {*self.plan.key_properties}
        if self.plan.replication_key is not None:
            keys.add(self.plan.replication_key.column.name)
        return [
            *self.plan.sent_as(
                *(each.name for each in long_columns(self.plan) if each.name not in keys)
            )
        ]


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * _MICROSECOND)
