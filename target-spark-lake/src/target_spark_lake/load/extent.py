"""Whether a run sends a stream whole, and what that means for its table once everything is
staged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import Struct
from singer_spark.core.messages import AGAIN, ASK, HOW, REPLACE, STREAMS, UNASKED
from singer_spark.errors import ConfigurationError
from target_spark_lake.commit.bookmarks import bookmarks_of
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.stream_load import StreamLoad
from target_spark_lake.intake.stream_schema import load_method_of
from target_spark_lake.table.table_record import APPEND_ONLY

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.load.source_key_batches import KeyBatches

logger = logging.getLogger("target-spark-lake")


@dataclass(frozen=True)
class Extents:
    """What distinguishes whole streams from deltas: our tap declares it; for other taps, bookmarks
    decide.

    Attributes:
        saved: The state saved before the run; None for a first run, which sends everything.
        latest: The last STATE of the run so far.
        streams: Names of all streams of the run; None while more may come.
    """

    saved: Mapping[str, Any] | None
    latest: Mapping[str, Any] | None = None
    streams: Collection[str] | None = None

    def is_whole(self, schema: StreamSchema) -> bool:
        """Whether the stream is certain to be sent whole."""
        return self.delta(schema) is None

    def delta(self, schema: StreamSchema) -> str | None:
        """Why the stream may be sent as a delta; None if it is sent whole."""
        if schema.extent is not None:
            return (
                None if schema.extent == "full" else "the tap says that it sends only what changed"
            )
        if self.saved is None:
            return None
        if schema.bookmark_properties:
            return f"its bookmark_properties are {', '.join(schema.bookmark_properties)}"
        saved = bookmarks_of(self.saved)
        if schema.stream in {**bookmarks_of(self.latest), **saved}:
            return "the state has a bookmark of it"
        others = (
            [] if self.streams is None else [name for name in saved if name not in self.streams]
        )
        return f"the saved state has {others[0]}, which may be its bookmark" if others else None

    def check(self, schema: StreamSchema) -> None:
        """Refuse to let a delta replace a table's content.

        Raises:
            ConfigurationError: the load method is overwrite, and the stream may come as a delta.
        """
        # A stream that has a start value is as whole as it ever is in a full run, which the user
        # requested.
        reason = self.delta(schema) if schema.method.replaces and not schema.is_replaced else None
        if reason is None:
            return
        another_way = (
            "run the tap with --full"
            if schema.extent is not None
            else "run `spark-lake state reset`, and the tap without a state"
        )
        raise ConfigurationError(
            LakeCode.BAD_LOAD_METHOD,
            f"stream {schema.stream}: this run may send only what changed ({reason}), and "
            f"load_method {schema.load_method} would leave nothing else in the table; nothing was "
            f"changed, use upsert or append-only for it, or {another_way}",
        )


def replaced_streams(
    opening: Mapping[str, Any], settings: TargetSettings, run: PipelineRun, *, refreshes: bool
) -> frozenset[str]:
    """The streams whose append-only tables a full run replaces, by the tap's first STATE.

    `refreshes` is whether Meltano makes a full refresh, which the tap does not know.

    Raises:
        ConfigurationError: a full run would append all rows to a table once more, and the user did
            not ask for that.
    """
    again = opening.get(AGAIN)
    streams = again.get(STREAMS) if isinstance(again, Mapping) else None
    if not isinstance(again, Mapping) or not isinstance(streams, Mapping):
        return frozenset()
    how = REPLACE if refreshes and again.get(HOW) == UNASKED else again.get(HOW)
    if how not in (REPLACE, ASK):
        return frozenset()
    filled = []
    for stream, annotated in streams.items():
        options = settings.options_of(stream)
        method = load_method_of(stream, options, annotated, settings.load_method)
        if method == APPEND_ONLY and run.table_files(run.layout.table(stream, options.path)):
            filled.append(stream)
    if how == ASK and filled:
        raise ConfigurationError(
            LakeCode.APPENDED_TWICE,
            f"--full reads {', '.join(filled)} from the start, and the append-only table(s) have "
            "those rows already: nothing was changed; give --replace (each table becomes what the "
            "source is now) or --append-again (all rows are appended once more) beside --full",
        )
    if filled:
        logger.info(
            "full run: append-only tables are replaced by what the source has now: %s",
            ", ".join(filled),
        )
    return frozenset(filled)


@dataclass(frozen=True)
class WholeStreams:
    """What applies to whole streams: the greatest versions activated, the keys still in the
    sources, the extents.
    """

    activated: Mapping[str, int]
    keys: KeyBatches
    extents: Extents

    def may_change(self, sink: StreamSink) -> bool:
        """Whether a stream's table may change although no record of it came."""
        schema = sink.schema
        return (
            schema.method.replaces
            or sink.adopted is not None
            or (schema.merges and schema.stream in self.activated)
            or self.keys.are_sent(schema.stream)
            or (schema.drops_stale and self.extents.is_whole(schema))
        )

    def load_of(self, sink: StreamSink) -> StreamLoad:
        """What the run brought for a stream whose batches are all staged."""
        return StreamLoad(
            # Not a later SCHEMA without records: it may name columns that no staged file has.
            sink.resolved.schema if sink.resolved else sink.schema,
            sink.table,
            sink.columns or Struct(()),
            sink.resolved.record if sink.resolved else None,
            sink.staged(),
            self.activated.get(sink.schema.stream),
            sink.is_uniform,
            # The key of a rejected record is unknown, so its row must not count as stale.
            self.extents.is_whole(sink.schema) and not sink.rejected(),
            self.keys.of(sink.schema.stream),
        )
