"""How the rows of a stream that come now are staged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from target_spark_lake.columns.lake_type import columns_from_text

if TYPE_CHECKING:
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.settings import TargetSettings
    from target_spark_lake.staging.spark_staging import BatchPlan


def plan_of(
    sink: StreamSink, settings: TargetSettings, started: datetime, received: datetime | None = None
) -> BatchPlan:
    """The plan of rows that end now.

    Args:
        sink: Of their stream, whose columns are known.
        settings: The target's.
        started: When the run did.
        received: When the first of them came; None: now.
    """
    from target_spark_lake.staging.spark_staging import BatchPlan, BatchTimes

    assert sink.columns is not None
    now = datetime.now(UTC)
    times = BatchTimes(received or now, now, int(started.timestamp() * 1000)) if settings.add_record_metadata else None
    table = columns_from_text(sink.all_columns)
    merging = sink.schema.merges
    # A merge looks for the newest of a key's rows wherever they belong, and only then puts it into its folder.
    folders = None if merging else sink.schema.partitioning
    return BatchPlan(sink.columns, sink.check, times, settings.compression, merging, table, folders)
