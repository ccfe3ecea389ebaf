"""The batches that are being filled, one a stream, and their way to staging."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_sdk.exceptions import RecordsWithoutSchemaException

from singer_spark.errors import ProtocolError
from target_spark_lake.columns.evolution import EvolutionRules
from target_spark_lake.config_schema import QUARANTINE
from target_spark_lake.intake.spool import SpooledBatch, batch_bytes
from target_spark_lake.intake.stream_schema import StreamSchema
from target_spark_lake.load.batch_plan import plan_of
from target_spark_lake.load.sink import StreamSink
from target_spark_lake.load.sink_columns import prepare
from target_spark_lake.settings import TargetSettings
from target_spark_lake.staging.stager import BatchJob
from target_spark_lake.validation.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.commit.staged_stream import StagedStream
    from target_spark_lake.intake.singer_lines import RecordLines
    from target_spark_lake.load.staging_pool import StagingJob, StagingPool

JSON = dict[str, Any]
# Where batches are cut at STATE messages, one may grow beyond its size this many times until a STATE comes.
STRETCH = 2
# So many small ones are worth staging too: of many tables the first ones are staged while the last ones are read.
MANY_OPEN = 8


class RecordBeforeSchemaError(ProtocolError, RecordsWithoutSchemaException):
    """A RECORD came before the SCHEMA of its stream."""


class Batches:
    """Takes schemas and records of all streams.

    Attributes:
        sinks: What the run holds of each stream.
        adopted: What a run that died had staged of streams, and this one goes on from.
        skipped: Streams that the tap gave up: nothing of them is published.
        closed_between: Whether a batch was closed since the last `close_all`: it may hold rows from both sides of a
            STATE.
    """

    def __init__(self, settings: TargetSettings, run: PipelineRun, pool: StagingPool, spool: Path) -> None:
        """Begins.

        Args:
            settings: The target's.
            run: The open run of the pipeline.
            pool: Stages the batches that are full.
            spool: A folder on the local disk.
        """
        self.sinks: dict[str, StreamSink] = {}
        self.adopted: Mapping[str, StagedStream] = {}
        self.skipped: set[str] = set()
        self.closed_between = False
        self._quarantine = (
            Quarantine(settings.max_invalid_records) if settings.on_invalid_record == QUARANTINE else None
        )
        self._settings = settings
        self._run = run
        self._pool = pool
        self._spool = spool
        self._count = 0
        self._stretch = 1
        self._open: dict[str, StreamSink] = {}

    @property
    def loaded(self) -> dict[str, StreamSink]:
        """The streams that count."""
        return {name: sink for name, sink in self.sinks.items() if name not in self.skipped}

    def skip(self, stream: str) -> None:
        """Leaves a stream out of the run; what a checkpoint before this moment names of it stays staged."""
        self.skipped.add(stream)
        sink = self._open.pop(stream, None)
        if sink is not None and sink.batch is not None:
            sink.batch.remove()
            sink.batch = None

    def adopt(self, streams: Mapping[str, StagedStream]) -> None:
        """Begins with what a run that died had staged.

        Raises:
            RecordError: it rejected more records than this run may.
        """
        self.adopted = streams
        for name, stream in streams.items():
            if self._quarantine is not None:
                example = "it was rejected by the run that died, --no-resume begins anew"
                self._quarantine.count(name, sum(file.rows for file in stream.rejected), example)

    def wait_for_states(self) -> None:
        """From now on whoever calls `close_all` at a STATE decides where batches end, unless they grow too large."""
        self._stretch = STRETCH

    def schema(self, message: JSON) -> StreamSchema:
        """A SCHEMA: the same one again changes nothing, another one closes the batch; records before it stay."""
        schema = StreamSchema.of(message, self._settings)
        sink = self.sinks.get(schema.stream)
        if sink is None:
            options = self._settings.options_of(schema.stream)
            table = self._run.layout.table(schema.stream, options.path)
            adopted = self.adopted.get(schema.stream)
            self.sinks[schema.stream] = StreamSink(
                schema,
                table,
                EvolutionRules(self._settings.schema_evolution, options.columns),
                adopted=adopted,
                size=adopted.size if adopted else 0,
                # The run that died may have changed the columns after its first files.
                is_uniform=adopted is None,
            )
            return schema
        schema = schema.following(sink.schema)
        if sink.schema != schema:
            self._close(sink)
            sink.schema, sink.columns = schema, None
        return schema

    def add(self, lines: RecordLines) -> None:
        """RECORD lines of one stream."""
        sink = self._known(lines.stream, f"input line {lines.first_line}: a RECORD")
        if sink.columns is None:
            prepare(sink, self._settings, self._run)
            if sink.check is not None and sink.check.bulk is None:
                self._pool.start()
        if sink.batch is None:
            sink.batch = SpooledBatch(self._spool / f"{self._count:05d}.jsonl")
            self._open[lines.stream] = sink
            self._count += 1
        sink.batch.write(lines)
        if sink.batch.size >= self._limit(sink) * self._stretch:
            self._close(sink)

    def ready(self, stream: str) -> StreamSink:
        """The sink of a stream of which files of records came, its columns checked against the table.

        Raises:
            ProtocolError: no SCHEMA came before, or the tap had given the stream up.
            SchemaError: its columns don't go together with the table's.
        """
        sink = self._known(stream, "a BATCH")
        if sink.columns is None:
            prepare(sink, self._settings, self._run)
        return sink

    def hand_over(self, sink: StreamSink, size: int, job: Callable[[str], StagingJob]) -> None:
        """Stages rows that come next, without their lines.

        Args:
            sink: The stream's, which is ready.
            size: Their bytes.
            job: Makes what stages them, of a free staging folder.

        Raises:
            SingerSparkError: an earlier batch failed.
        """
        self._close(sink)
        self.closed_between = True
        sink.size += size
        folder = f"{self._run.staging_path(sink.schema.stream)}/{len(sink.staging):05d}"
        sink.staging.append(self._pool.submit(job(folder)))

    def _known(self, stream: str, what: str) -> StreamSink:
        sink = self.sinks.get(stream)
        if sink is None:
            raise RecordBeforeSchemaError(f"{what} of stream {stream} came before its SCHEMA")
        if stream in self.skipped:
            raise ProtocolError(f"{what} of stream {stream}, which the tap had given up")
        return sink

    def are_full(self) -> bool:
        """Whether they are worth staging, one of them or all, or one was closed since `close_all`."""
        return (
            self.closed_between
            or len(self._open) >= MANY_OPEN
            or any(sink.batch is not None and sink.batch.size >= self._limit(sink) for sink in self._open.values())
        )

    def _limit(self, sink: StreamSink) -> int:
        return batch_bytes(sink.size, self._settings.target_file_mb)

    def mark(self) -> None:
        """Notes where all of them stand, for `cut_back`."""
        for sink in self._open.values():
            if sink.batch is not None:
                sink.batch.mark()

    def cut_back(self) -> None:
        """Drops what came after the last `mark` or `close_all`; not where `closed_between`."""
        for sink in self._open.values():
            if sink.batch is not None:
                sink.batch.cut_back()

    def close_all(self) -> None:
        """Stages what is there.

        Raises:
            SingerSparkError: an earlier batch failed.
        """
        for sink in list(self._open.values()):
            self._close(sink)
        self.closed_between = False

    def drop_all(self) -> None:
        """Gives the disk space of what is not staged yet back."""
        for sink in self._open.values():
            if sink.batch is not None:
                sink.batch.remove()

    def _close(self, sink: StreamSink) -> None:
        batch, sink.batch = sink.batch, None
        self._open.pop(sink.schema.stream, None)
        if batch is None:
            return
        if batch.rows == 0:
            batch.remove()
            return
        assert sink.validator is not None
        self.closed_between = True
        batch.close()
        sink.size += batch.size
        plan = plan_of(sink, self._settings, self._run.started_at, batch.received)
        folder = f"{self._run.staging_path(sink.schema.stream)}/{len(sink.staging):05d}"
        late = sink.schema.late_rows
        job = BatchJob(sink.schema.stream, batch, plan, sink.validator, folder, self._quarantine, late)
        sink.staging.append(self._pool.submit(job))
