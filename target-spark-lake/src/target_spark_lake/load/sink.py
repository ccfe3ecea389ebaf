"""The run's data for one stream, and how its lines become staged batches, in the background while
the input is read: a few at a time, with few waiting.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from target_spark_lake.intake.spool import SpooledBatch
from target_spark_lake.stage.stager import BatchJob
from target_spark_lake.table.evolution import EvolutionRules

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from singer_spark.core.lake_type import Struct
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.checkpoint_file import StagedStream
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.intake.singer_lines import RecordLines
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.stage.batch_plan import BatchPlan
    from target_spark_lake.table.changes import StagedBatch, StagedFile
    from target_spark_lake.table.table_record import TableRecord
    from target_spark_lake.validate.bulk_check import TypedRules
    from target_spark_lake.validate.record_validator import Quarantine, RecordValidator

WORKERS = 2
# Together with running jobs they bound the disk space of the spool.
WAITING_BATCHES = 2
CHECK_SECONDS = 0.5


class StagingJob(Protocol):
    """A job that stages some rows."""

    @property
    def folder(self) -> str:
        """The folder it stages to, relative to the bucket; everything below belongs to the job."""

    def stage(self, session: Callable[[], SparkSession], storage: Storage) -> StagedBatch:
        """Stage every row; the session starts when it is first requested."""


class StagingPool:
    """Runs the jobs; one Spark session for all, started when a batch needs it."""

    def __init__(self, storage: Storage, start_session: Callable[[], SparkSession]) -> None:
        """Start nothing yet; `start_session` is called once, in another thread."""
        self._storage = storage
        self._start_session = start_session
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="staging")
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="session")
        self._starting = threading.Lock()
        self._session: Future[SparkSession] | None = None
        self._places = threading.Semaphore(WORKERS + WAITING_BATCHES)
        self._pending: set[Future[StagedBatch]] = set()
        self._abandoned = threading.Event()

    def start(self) -> None:
        """Start the session in the background, unless it was started."""
        with self._starting:
            if self._session is None:
                self._session = self._starter.submit(self._start_session)

    def submit(self, job: StagingJob) -> Future[StagedBatch]:
        """Submit a batch; block while too many are waiting."""
        while not self._places.acquire(timeout=CHECK_SECONDS):
            self.check()
        future = self._threads.submit(self._stage, job)
        future.add_done_callback(lambda _: self._places.release())
        self._pending.add(future)
        return future

    def unfinished(self) -> list[Future[StagedBatch]]:
        """The batches still waiting or running."""
        return [future for future in self._pending if not future.done()]

    def check(self) -> None:
        """Raise the error of a batch that failed, if any."""
        done = {future for future in self._pending if future.done()}
        self._pending -= done
        for future in done:
            future.result()
        if self._session is not None and self._session.done():
            self._session.result()

    def finish(self) -> None:
        """Wait for all batches; the session stays available."""
        while self._pending:
            wait(self._pending, timeout=CHECK_SECONDS, return_when=FIRST_EXCEPTION)
            self.check()
        self._threads.shutdown()

    def close(self) -> None:
        """Stop offering the session; wait for one that is just starting."""
        self._starter.shutdown()

    def abandon(self) -> None:
        """Start nothing more; running jobs may finish in the background, and remove what they
        staged.
        """
        self._abandoned.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._starter.shutdown(wait=False, cancel_futures=True)

    def _stage(self, job: StagingJob) -> StagedBatch:
        try:
            batch = job.stage(self.session, self._storage)
            # In the background: what a checkpoint names must survive a power cut, and the commit
            # then waits less.
            self._storage.flush(
                file.path for file in (*batch.files, batch.rejected) if file is not None
            )
        finally:
            if self._abandoned.is_set():
                self._storage.delete_all(job.folder)
        return batch

    def session(self) -> SparkSession:
        """The session, started now if needed."""
        self.start()
        assert self._session is not None
        return self._session.result()


@dataclass(frozen=True)
class ResolvedStream:
    """A stream under one SCHEMA, checked against its table: the input of every later step.

    Attributes:
        schema: The SCHEMA: key, load method, hive folders.
        record: The table before the run; None for a new one.
        columns: Every column of the run and, unless the table is replaced, of the table.
        rows: How records become rows, with the times of resolution.
        validator: Judges records not known to be valid.
        validates: Whether the user wants records to be validated.
        by_spark: Whether records are staged by Spark tasks rather than in this process.
    """

    schema: StreamSchema
    record: TableRecord | None
    columns: Struct
    rows: BatchPlan
    validator: RecordValidator
    validates: bool
    by_spark: bool

    @cached_property
    def rules(self) -> TypedRules | None:
        """Rules for the rows of a typed file; None if records must be checked one by one."""
        if self.validator.texts:
            return None
        from target_spark_lake.validate.bulk_check import typed_rules

        keys = self.schema.key_properties if self.schema.merges else ()
        return typed_rules(self.rows.columns, keys, self.rows.check, validate=self.validates)

    def under(self, schema: StreamSchema, latest: ResolvedStream) -> ResolvedStream:
        """The same under this SCHEMA, with the table's columns as they were resolved last."""
        rows = replace(self.rows, staged=latest.rows.staged)
        return replace(self, schema=schema, columns=latest.columns, rows=rows)

    def plan(self, received: datetime | None = None) -> BatchPlan:
        """The plan for staging rows up to now.

        `received` is when the first of them came, by default now.
        """
        now, times = datetime.now(UTC), self.rows.times
        return (
            self.rows
            if times is None
            else replace(self.rows, times=replace(times, received=received or now, batched=now))
        )


@dataclass
class StreamSink:
    """The run's data for one stream.

    Attributes:
        schema: The last SCHEMA; lines in `batch` may be under others.
        table: Folder of the table, relative to the bucket.
        rules: The user's rules for column changes.
        adopted: What a dead run had staged, and this run resumes from.
        announced: The last SCHEMA as it came.
        resolved: The stream resolved under the last SCHEMA with records; None before the first
            record.
        known: The SCHEMAs with records as they came, and the stream resolved under each: a tap may
            repeat them in turn.
        batch: Lines not staged yet.
        staging: Futures of this run's own batches, in order.
        is_uniform: Whether everything staged is certain to have the table's current columns.
        size: Bytes of the records so far, without those in `batch`.
        folder: Where its batches are staged, relative to the bucket; empty before the first.
        changes: How the stream's columns and key differ from those of its table before the run, in
            words.
        is_checked: The stream is only checked against its table, which stays, because it has no
            record so far.
    """

    schema: StreamSchema
    table: str = ""
    rules: EvolutionRules = field(default_factory=EvolutionRules)
    adopted: StagedStream | None = None
    announced: StreamSchema | None = None
    resolved: ResolvedStream | None = None
    known: list[tuple[StreamSchema, ResolvedStream]] = field(default_factory=list)
    batch: SpooledBatch | None = None
    staging: list[Future[StagedBatch]] = field(default_factory=list)
    is_uniform: bool = True
    size: int = 0
    folder: str = ""
    changes: list[str] = field(default_factory=list)
    is_checked: bool = False

    def shape(self, settings: TargetSettings) -> str:
        """The table's folder, after a mark that changes as soon as SCHEMA or settings ask for
        another table.
        """
        schema, options = self.announced or self.schema, settings.options_of(self.schema.stream)
        properties = {
            name: each
            for name, each in schema.schema["properties"].items()
            if not name.startswith("_sdc_")
        }
        key = schema.key_properties if schema.merges else ()
        identity = self.table, settings.format, schema.partition_by, settings.schema_evolution
        asked = [identity, schema.load_method, key, properties, options.columns]
        mark = blake2b(
            json.dumps(asked, sort_keys=True, default=str).encode(), digest_size=6
        ).hexdigest()
        return f"{mark} {self.table}"

    @property
    def is_resolved(self) -> bool:
        """Whether the last SCHEMA has been resolved."""
        return self.resolved is not None and self.resolved.schema is self.schema

    @property
    def variant(self) -> int:
        """The index of the last SCHEMA among the `known` ones; their number if it is new."""
        indexes = (
            number for number, (schema, _) in enumerate(self.known) if schema == self.announced
        )
        return next(indexes, len(self.known))

    @property
    def columns(self) -> Struct | None:
        """The table's columns at this point of the run; None if no record came."""
        return self.resolved.columns if self.resolved else None

    def staged(self, batches: int | None = None) -> tuple[StagedFile, ...]:
        """The adopted files and those of the first `batches`, by default of all; waits for them."""
        adopted = self.adopted.files if self.adopted else ()
        return adopted + tuple(
            file for future in self.staging[:batches] for file in future.result().files
        )

    def rejected(self, batches: int | None = None) -> tuple[StagedFile, ...]:
        """The files of quarantined records, adopted ones included; `batches` as in `staged`."""
        own = (future.result().rejected for future in self.staging[:batches])
        return (self.adopted.rejected if self.adopted else ()) + tuple(
            file for file in own if file is not None
        )


class SinkStaging:
    """Spools the lines of sinks, one file per batch, and submits the batches for staging."""

    def __init__(self, run: PipelineRun, pool: StagingPool, spool: Path) -> None:
        self.pool = pool
        self._run = run
        self._spool = spool
        self._count = 0

    def write(self, sink: StreamSink, lines: RecordLines) -> None:
        """Add lines to the sink's batch, creating one if needed."""
        if sink.batch is None:
            sink.batch = SpooledBatch(self._spool / f"{self._count:05d}.jsonl")
            self._count += 1
        sink.batch.write(lines, sink.variant if sink.known else 0)

    def close(self, sink: StreamSink, quarantine: Quarantine | None = None) -> bool:
        """Submit the sink's batch; False if it has no lines."""
        batch, resolved = sink.batch, sink.resolved
        if batch is None or batch.rows == 0 or resolved is None:
            self.drop(sink)
            return False
        sink.batch = None
        batch.close()
        known = [each.under(each.schema, resolved) for _, each in sink.known] or [resolved]
        ways = {
            number: (known[number].plan(batch.received), known[number].validator)
            for number in batch.variants
        }
        stream, late = resolved.schema.stream, resolved.schema.late_rows
        self.hand_over(
            sink,
            batch.size,
            lambda folder: BatchJob(
                stream, batch, ways, folder, quarantine, late, resolved.by_spark
            ),
        )
        return True

    def hand_over(self, sink: StreamSink, size: int, job: Callable[[str], StagingJob]) -> None:
        """Stage rows of a resolved sink (`size` in bytes) by the job built for an unused staging
        folder.
        """
        sink.size += size
        sink.folder = sink.folder or self._run.staging_path(sink.schema.stream)
        sink.staging.append(self.pool.submit(job(f"{sink.folder}/{len(sink.staging):05d}")))

    def drop(self, sink: StreamSink) -> None:
        """Free the disk space of what is not staged yet."""
        if sink.batch is not None:
            sink.batch.remove()
            sink.batch = None
