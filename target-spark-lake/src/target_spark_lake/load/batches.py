"""The batches being filled, one per stream, and their hand-over to staging."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
from singer_sdk.exceptions import RecordsWithoutSchemaException

from singer_spark.errors import ConfigurationError, ProtocolError
from singer_spark.state.run_log import folder_name
from target_spark_lake.config.settings import QUARANTINE, TargetSettings
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.singer_lines import LONG_LINE, RecordLines
from target_spark_lake.intake.spool import batch_bytes
from target_spark_lake.intake.stream_schema import StreamSchema
from target_spark_lake.layout import HISTORY, LONGEST_NAME
from target_spark_lake.load.sink import ResolvedStream, SinkStaging, StagingJob, StreamSink
from target_spark_lake.load.stream_resolution import resolve
from target_spark_lake.table.declared_columns import declared_types
from target_spark_lake.table.evolution import EvolutionRules
from target_spark_lake.table.table_record import APPEND_ONLY
from target_spark_lake.validate.record_validator import Quarantine

if TYPE_CHECKING:
    from target_spark_lake.commit.checkpoint_file import StagedStream
    from target_spark_lake.commit.pipeline_run import PipelineRun

# Where batches are cut at STATE messages, one may grow to this many times its size until a STATE
# comes.
STRETCH = 2
# This many open batches are worth staging even if small: with many tables the first are staged
# while the last are read.
MANY_OPEN = 8
# Lines under at most this many SCHEMAs of a stream share a batch.
MOST_KNOWN = 16
UNDECLARED = (
    "stream %s: its records have %s, which its SCHEMA does not declare: there is no column for it, "
    "so it is left out; declare it in the tap's catalog to load it"
)
logger = logging.getLogger("target-spark-lake")
LOOKED_AT = 20
SHOWN = 10


class RecordBeforeSchemaError(ProtocolError, RecordsWithoutSchemaException):
    """A RECORD came before the SCHEMA of its stream."""

    def __init__(self, what: str, stream: str) -> None:
        super().__init__(
            LakeCode.RECORD_BEFORE_SCHEMA, f"{what} of stream {stream} came before its SCHEMA"
        )


class Batches:
    """Takes schemas and records of all streams.

    Attributes:
        sinks: The run's data for each stream.
        adopted: What a dead run had staged for streams, and this run resumes from.
        skipped: Streams that the tap gave up on: nothing of them is published.
        replaced: Streams whose append-only tables this run replaces.
        closed_between: Whether a batch was closed since the last `close_all`: it may hold rows from
            both sides of a STATE.
    """

    def __init__(self, settings: TargetSettings, run: PipelineRun, staging: SinkStaging) -> None:
        self.sinks: dict[str, StreamSink] = {}
        self.adopted: Mapping[str, StagedStream] = {}
        self.skipped: set[str] = set()
        self.replaced: frozenset[str] = frozenset()
        self.closed_between = False
        quarantines = settings.on_invalid_record == QUARANTINE
        self._quarantine = Quarantine(settings.max_invalid_records) if quarantines else None
        self._settings = settings
        self._run = run
        self._staging = staging
        self._stretch = 1
        self._open: dict[str, StreamSink] = {}

    @property
    def loaded(self) -> dict[str, StreamSink]:
        """The streams that are not skipped."""
        return {name: sink for name, sink in self.sinks.items() if name not in self.skipped}

    def skip(self, stream: str) -> None:
        """Leave a stream out of the run; what an earlier checkpoint names of it stays staged."""
        self.skipped.add(stream)
        if sink := self._open.pop(stream, None):
            self._staging.drop(sink)

    def adopt(self, streams: Mapping[str, StagedStream]) -> None:
        """Start from what a dead run had staged."""
        self.adopted = streams
        for name, stream in streams.items():
            if self._quarantine is not None:
                example = "it was rejected by the run that died; --no-resume starts over"
                self._quarantine.count(name, sum(file.rows for file in stream.rejected), example)

    def restart(self, stream: str) -> None:
        """Drop what was adopted of a stream; ProtocolError: some of it has arrived already."""
        if stream in self.sinks:
            raise ProtocolError(
                LakeCode.INPUT_OUT_OF_ORDER,
                f"the tap begins stream {stream} again, but has already sent some of it",
            )
        if (adopted := self.adopted.get(stream)) is None:
            return
        self.adopted = {name: each for name, each in self.adopted.items() if name != stream}
        if self._quarantine is not None:
            self._quarantine.count(stream, -sum(file.rows for file in adopted.rejected), "")

    def check_adopted(self) -> None:
        """Raise ProtocolError if a stream was adopted of which no SCHEMA came."""
        missing = sorted(set(self.adopted) - set(self.sinks) - self.skipped)
        if missing:
            raise ProtocolError(
                LakeCode.INPUT_OUT_OF_ORDER,
                f"the tap resumed a run that died, but sent no SCHEMA for {', '.join(missing)}, "
                "although that run had sent records of it; nothing was published. Run the tap with "
                "--no-resume",
            )

    def wait_for_states(self) -> None:
        """Let the caller of `close_all` decide at each STATE where batches end, unless they grow
        too large.
        """
        self._stretch = STRETCH

    def schema(self, message: dict[str, Any]) -> StreamSchema:
        """Take a SCHEMA: a repeated one changes nothing, a different one keeps earlier records."""
        schema = StreamSchema.of(message, self._settings)
        if schema.stream in self.replaced and schema.load_method == APPEND_ONLY:
            schema = replace(schema, is_replaced=True)
        sink = self.sinks.get(schema.stream)
        if sink is None:
            _check_name(schema.stream, local=self._run.storage.local)
            options = self._settings.options_of(schema.stream)
            adopted = self.adopted.get(schema.stream)
            table = self._run.layout.table(schema.stream, options.path)
            self._check_history(schema, table)
            self.sinks[schema.stream] = StreamSink(
                schema,
                table,
                EvolutionRules(self._settings.schema_evolution, declared_types(options.columns)),
                adopted,
                # The run that died may have changed the columns after its first files.
                is_uniform=adopted is None,
                size=adopted.size if adopted else 0,
                announced=schema,
            )
            return schema
        if schema == sink.announced:
            return sink.schema
        if schema.late_rows != sink.schema.late_rows or len(sink.known) >= MOST_KNOWN:
            self._close(sink)
            sink.known.clear()
        sink.announced = schema
        self._follow(sink, schema)
        return sink.schema

    def _check_history(self, schema: StreamSchema, table: str) -> None:
        """Refuse a stream whose table would be another one's history, or the reverse."""
        streams = [*((sink.schema, sink.table) for sink in self.sinks.values()), (schema, table)]
        histories = {
            f"{location}{HISTORY}": each for each, location in streams if each.method.has_history
        }
        for each, location in streams:
            if (keeper := histories.get(location)) is not None:
                raise ConfigurationError(
                    LakeCode.TABLE_TAKEN,
                    f"stream {each.stream}: its table would be {location}, where stream "
                    f"{keeper.stream} keeps its history (load_method {keeper.load_method}); give "
                    "one of them another `path` in stream_options",
                )

    def _follow(self, sink: StreamSink, schema: StreamSchema) -> None:
        """Continue a stream under another SCHEMA, in the same batch if the two fit together."""
        known = next((resolved for came, resolved in sink.known if came == schema), None)
        if known is None or sink.resolved is None:
            sink.schema = schema.following(sink.schema)
        else:
            sink.schema = known.schema.following(sink.schema)
            sink.resolved = known.under(sink.schema, sink.resolved)

    def add(self, lines: RecordLines) -> None:
        """Add RECORD lines of one stream."""
        sink = self._known(lines.stream, f"input line {lines.first_line}: a RECORD")
        if not sink.is_resolved:
            if sink.resolved is None and (names := _undeclared_members(sink.schema, lines)):
                logger.warning(UNDECLARED, lines.stream, names)
            if self.resolve(sink).by_spark:
                self._staging.pool.start()
        self._staging.write(sink, lines)
        self._open[lines.stream] = sink
        if self._size(sink) >= self._limit(sink) * self._stretch:
            self._close(sink)

    def resolve(self, sink: StreamSink) -> ResolvedStream:
        """The stream under its last SCHEMA, with its columns checked against the table."""
        if sink.resolved is None or not sink.is_resolved:
            resolved = resolve(sink, self._settings, self._run)
            sink.is_uniform = sink.is_uniform and (
                not sink.staging or resolved.columns == sink.columns
            )
            sink.resolved = resolved
            if sink.announced is not None:
                sink.known.append((sink.announced, resolved))
        return sink.resolved

    def check(self, sink: StreamSink) -> None:
        """Check a stream without records against its table, if it requires another one than the
        last run did.

        Raises:
            SingerSparkError: as `resolve`, which its first record would raise.
        """
        if not sink.is_resolved and self._run.shapes.get(sink.schema.stream) not in (
            None,
            sink.shape(self._settings),
        ):
            resolve(replace(sink, resolved=None, is_checked=True), self._settings, self._run)

    def ready(self, stream: str) -> StreamSink:
        """The resolved sink of a stream whose records arrived in files."""
        sink = self._known(stream, "a BATCH")
        self.resolve(sink)
        return sink

    def hand_over(self, sink: StreamSink, size: int, job: Callable[[str], StagingJob]) -> None:
        """Stage the next rows without their lines (`SinkStaging.hand_over`)."""
        self._close(sink)
        self.closed_between = True
        self._staging.hand_over(sink, size, job)

    def _known(self, stream: str, what: str) -> StreamSink:
        sink = self.sinks.get(stream)
        if sink is None:
            raise RecordBeforeSchemaError(what, stream)
        if stream in self.skipped:
            raise ProtocolError(
                LakeCode.INPUT_OUT_OF_ORDER,
                f"{what} of stream {stream}, which the tap had abandoned",
            )
        return sink

    def are_full(self) -> bool:
        """Whether the batches are worth staging, one of them or all, or one was closed since
        `close_all`.
        """
        many = self.closed_between or len(self._open) >= MANY_OPEN
        return many or any(self._size(sink) >= self._limit(sink) for sink in self._open.values())

    def _size(self, sink: StreamSink) -> int:
        return sink.batch.size if sink.batch else 0

    def _limit(self, sink: StreamSink) -> int:
        return batch_bytes(sink.size, self._settings.target_file_mb)

    def mark(self) -> None:
        """Mark the current position of every open batch, for `cut_back`."""
        for sink in self._open.values():
            if sink.batch is not None:
                sink.batch.mark()

    def cut_back(self) -> None:
        """Drop what came after the last `mark` or `close_all`; not allowed if `closed_between`."""
        for sink in self._open.values():
            if sink.batch is not None:
                sink.batch.cut_back()

    def close_all(self) -> None:
        """Stage all open batches."""
        for sink in list(self._open.values()):
            self._close(sink)
        self.closed_between = False

    def drop_all(self) -> None:
        """Free the disk space of batches not staged yet."""
        for sink in self._open.values():
            self._staging.drop(sink)

    def _close(self, sink: StreamSink) -> None:
        self._open.pop(sink.schema.stream, None)
        self.closed_between = self._staging.close(sink, self._quarantine) or self.closed_between


def _check_name(stream: str, *, local: bool) -> None:
    """Refuse a name that no folder can have, before reading anything for it."""
    size = len(folder_name(stream))
    if local and size > LONGEST_NAME:
        raise ConfigurationError(
            LakeCode.TABLE_NAME,
            f"stream {stream}: its folder's name would have {size} bytes, and a file system takes "
            f"{LONGEST_NAME} here; "
            'give it a shorter one by stream_maps ({"' + stream + '": {"__alias__": "short"}})',
        )


def _undeclared_members(schema: StreamSchema, lines: RecordLines) -> str:
    """Names of undeclared members in the first records, for display; empty if there are none."""
    found: dict[str, None] = {}
    first = lines.data[: LOOKED_AT * LONG_LINE].split(b"\n", LOOKED_AT)[:LOOKED_AT]
    for line in (each for each in first if len(each) < LONG_LINE):
        try:
            record = orjson.loads(line)["record"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
        if isinstance(record, dict):
            found |= dict.fromkeys(name for name in record if not name.startswith("_sdc_"))
    names = [name for name in found if name not in schema.schema["properties"]]
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    )
