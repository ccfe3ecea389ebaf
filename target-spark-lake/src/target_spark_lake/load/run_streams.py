"""What becomes of the streams of a run: which are left out because something is wrong with them,
which are sent whole, and what the run commits of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import Struct
from singer_spark.core.messages import (
    AGAIN,
    ASK,
    HOW,
    ON_STREAM_ERROR,
    REPLACE,
    SKIP,
    STRANGERS,
    STREAMS,
    UNASKED,
    keys_stream,
)
from singer_spark.errors import ConfigurationError, SchemaError, SkippedStreamsError, SourceError
from singer_spark.store.storage import each
from target_spark_lake.commit.bookmarks import bookmarks_of
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.stream_load import StreamLoad
from target_spark_lake.intake.stream_schema import StreamSchema, load_method_of
from target_spark_lake.table.changes import StagedFile, TableChange
from target_spark_lake.table.table_record import APPEND_ONLY
from target_spark_lake.validate.record_validator import STAGED_NAME, one_file

if TYPE_CHECKING:
    from pathlib import Path

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.load.sink import StagingPool, StreamSink
    from target_spark_lake.load.source_key_batches import KeyBatches

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")


class LeftOut:
    """The streams that this target can't load, and what the tap says about those that may be left
    out.

    Without `on_stream_error: skip`, only strangers may be: no setting of the tap names them, and
    they never arrived.
    """

    def __init__(self, settings: TargetSettings, run: PipelineRun) -> None:
        self.reasons: dict[str, str] = {}
        self._settings = settings
        self._run = run
        self._strangers: frozenset[str] = frozenset()
        self._skips_all = False

    def begin(self, opening: JSON) -> None:
        """Take what the tap's first STATE says."""
        strangers = opening.get(STRANGERS) or ()
        self._strangers = frozenset(each for each in strangers if isinstance(each, str))
        self._skips_all = opening.get(ON_STREAM_ERROR) == SKIP

    def has(self, stream: object) -> bool:
        """Whether a stream, or one of its keys, is left out."""
        return any(stream in (name, keys_stream(name)) for name in self.reasons)

    @contextmanager
    def or_raise(self, stream: object) -> Iterator[None]:
        """Leave out a stream whose SCHEMA can't be loaded if that is allowed, else raise."""
        try:
            yield
        except (ConfigurationError, SchemaError) as error:
            if not isinstance(stream, str) or not (
                self._skips_all or self._is_new_stranger(stream)
            ):
                raise
            self.reasons[stream] = str(error)
            logger.error(
                "%s; it is left out, and the other streams continue (on_stream_error)", error
            )

    def check_skipped(self, streams: Iterable[str]) -> None:
        """Raise SourceError if the tap skipped a stream as one that never arrived, although it did
        arrive before.
        """
        arrived = (
            []
            if self._skips_all
            else [each for each in streams if each in self._strangers and self._arrived(each)]
        )
        if arrived:
            raise SourceError(
                LakeCode.KNOWN_STREAM_SKIPPED,
                f"{', '.join(f'stream {each}' for each in arrived)}: loaded before, but the "
                "tap can't read it now (its own log says why); nothing was published. Fix that, or "
                "set the tap's on_stream_error to skip",
            )

    def without(self, value: JSON | None, saved: Mapping[str, Any] | None) -> JSON | None:
        """The run's last state, with the former bookmarks of the streams that were left out."""
        bookmarks = value.get("bookmarks") if value is not None else None
        if value is None or not isinstance(bookmarks, dict) or not self.reasons:
            return value
        before = (saved or {}).get("bookmarks")
        kept = {name: each for name, each in bookmarks.items() if name not in self.reasons}
        kept |= {
            name: before[name]
            for name in self.reasons
            if isinstance(before, dict) and name in before
        }
        return {**value, "bookmarks": kept}

    def finish(self) -> None:
        """After the commit: SkippedStreamsError if streams were left out."""
        if self.reasons:
            raise SkippedStreamsError(
                LakeCode.STREAMS_SKIPPED,
                f"{len(self.reasons)} stream(s) did not arrive; their tables and bookmarks are "
                "unchanged, and the others are committed (on_stream_error): "
                f"{'; '.join(self.reasons.values())}",
            )

    def _is_new_stranger(self, stream: str) -> bool:
        return stream in self._strangers and not self._arrived(stream)

    def _arrived(self, stream: str) -> bool:
        table = self._run.layout.table(stream, self._settings.options_of(stream).path)
        return self._run.table_record(stream, table) is not None


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
            else "run `spark-lake state reset`, then the tap without a state"
        )
        raise ConfigurationError(
            LakeCode.BAD_LOAD_METHOD,
            f"stream {schema.stream}: this run may send only what changed ({reason}), and "
            f"load_method {schema.load_method} would leave nothing else in the table; nothing was "
            f"changed. Use upsert or append-only for it, or {another_way}",
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
            f"--full reads {', '.join(filled)} from the start, but the append-only table(s) have "
            "those rows already; nothing was changed. With --full, give --replace (each table is "
            "replaced by the source's current rows) or --append-again (all rows are appended once "
            "more)",
        )
    if filled:
        logger.info(
            "full run: append-only tables are replaced by the source's current rows: %s",
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
        """What the run loads for a stream whose batches are all staged."""
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


def changes_of(
    loads: Sequence[StreamLoad],
    run: PipelineRun,
    settings: TargetSettings,
    pool: StagingPool,
    spool: Path,
) -> tuple[TableChange, ...]:
    """The change of each stream's table."""
    if not any(load.columns.fields for load in loads):
        # A run without new data loads neither Arrow nor Spark.
        return tuple(TableChange(load.schema.stream, load.table) for load in loads)
    from target_spark_lake.formats.stream_load import TableWriter
    from target_spark_lake.formats.table_changes import table_changes
    from target_spark_lake.formats.table_joining import AutoCompaction

    change_of = partial(table_changes, TableWriter(run, settings, pool.session, spool))
    # A merge has Spark, and its memory, to itself.
    plain = [load for load in loads if not load.schema.merges]
    changes = each(run.storage, change_of, plain)
    found = {load.schema.stream: change for load, change in zip(plain, changes, strict=True)}
    compaction = AutoCompaction(run, settings, spool)
    return tuple(
        compaction.of(change)
        for load in loads
        for change in found.get(load.schema.stream) or change_of(load)
    )


def rejected_records(
    run: PipelineRun, sinks: Mapping[str, StreamSink], spool: Path
) -> dict[str, StagedFile]:
    """The quarantined records of each stream that has any, in one file."""
    staged = {name: f"{run.staging_path(name)}/{STAGED_NAME}" for name in sinks}
    files = {
        name: one_file(run.storage, sink.rejected(), staged[name], spool)
        for name, sink in sinks.items()
    }
    return {name: file for name, file in files.items() if file is not None}


def log_rejected(run: PipelineRun, rejected: Mapping[str, StagedFile]) -> None:
    """Warn of the records that a committed run has left out, and say where they are."""
    message = "stream %s: %s invalid record(s) rejected, kept with the reason in %s"
    for stream, file in rejected.items():
        location = f"{run.storage.url}/{run.layout.rejected(run.run_id, stream)}"
        logger.warning(message, stream, f"{file.rows:,}", location)
