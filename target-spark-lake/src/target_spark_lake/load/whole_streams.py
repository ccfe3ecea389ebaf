"""What a run learned of whole streams beside their records, and what that means for tables once all is staged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from target_spark_lake.config_schema import OVERWRITE, OVERWRITE_DELETE_STALE
from target_spark_lake.formats.table_format import StreamLoad

if TYPE_CHECKING:
    from collections.abc import Mapping

    from target_spark_lake.load.extent import Extents
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.load.source_key_batches import KeyBatches


@dataclass(frozen=True)
class WholeStreams:
    """The messages that count for whole streams.

    Attributes:
        activated: Stream to the greatest version that was activated.
        keys: Which keys the sources still have, as far as the run says.
        extents: Which streams came whole.
    """

    activated: Mapping[str, int]
    keys: KeyBatches
    extents: Extents

    def may_change(self, sink: StreamSink) -> bool:
        """Whether the table of a stream may change although no record of it came."""
        schema = sink.schema
        return (
            schema.load_method == OVERWRITE
            or sink.adopted is not None
            or (schema.merges and schema.stream in self.activated)
            or self.keys.are_told(schema.stream)
            or (schema.load_method == OVERWRITE_DELETE_STALE and self.extents.is_whole(schema))
        )

    def load_of(self, sink: StreamSink) -> StreamLoad:
        """What the run brought for a stream, all of whose batches are staged."""
        return StreamLoad(
            sink.schema,
            sink.table,
            sink.all_columns,
            sink.record,
            sink.staged(),
            self.activated.get(sink.schema.stream),
            sink.is_uniform,
            # Of a record that was rejected nobody knows the key: its row is not stale.
            self.extents.is_whole(sink.schema) and not sink.rejected(),
            self.keys.of(sink.schema.stream),
        )
