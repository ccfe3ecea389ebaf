"""What a run was told beside its records, and what that means for the tables once all batches are staged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from target_spark_lake.extent import sends_all
from target_spark_lake.settings import OVERWRITE, OVERWRITE_DELETE_STALE
from target_spark_lake.table_formats import StreamLoad

if TYPE_CHECKING:
    from collections.abc import Mapping

    from target_spark_lake.key_batches import KeyBatches
    from target_spark_lake.sink import StreamSink


@dataclass(frozen=True)
class RunTold:
    """The messages that count for whole streams.

    Attributes:
        activated: Stream to the greatest version that was activated.
        keys: Which keys the sources still have, as far as the run says.
        began_from: The state that was saved before the run.
        state: The last STATE of the run.
    """

    activated: Mapping[str, int]
    keys: KeyBatches
    began_from: Mapping[str, Any] | None
    state: Mapping[str, Any] | None

    def may_change(self, sink: StreamSink) -> bool:
        """Whether the table of a stream may change although no record of it came."""
        schema = sink.schema
        return (
            schema.load_method == OVERWRITE
            or sink.adopted is not None
            or (schema.merges and schema.stream in self.activated)
            or self.keys.are_told(schema.stream)
            or (schema.load_method == OVERWRITE_DELETE_STALE and self._sends_all(sink))
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
            self._sends_all(sink) and not sink.rejected(),
            self.keys.of(sink.schema.stream),
        )

    def _sends_all(self, sink: StreamSink) -> bool:
        return sends_all(sink.schema, self.began_from, self.state)
