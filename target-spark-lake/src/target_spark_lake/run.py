"""A run of the target: messages in, batches staged beside the reading, one commit at the end."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_sdk.exceptions import RecordsWithoutSchemaException

from singer_spark import stdout
from singer_spark.errors import ProtocolError, SingerSparkError
from singer_spark.messages import bare_state
from singer_spark.progress import Progress
from singer_spark.schema_mapping import stream_spark_schema
from singer_spark.scratch import scratch_folder
from singer_spark.signals import too_late_to_stop
from target_spark_lake.changes import Commit, StagedFile, TableChange
from target_spark_lake.record_check import check_of
from target_spark_lake.settings import OVERWRITE, TargetSettings
from target_spark_lake.sink import StreamSchema, StreamSink
from target_spark_lake.spool import SpooledBatch, batch_bytes
from target_spark_lake.stager import BatchJob
from target_spark_lake.staging_pool import StagingPool
from target_spark_lake.table_record import TableRecord
from target_spark_lake.validation import RecordValidator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark_lake.intake import RecordLines
    from target_spark_lake.pipeline_run import PipelineRun

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")


class RecordBeforeSchemaError(ProtocolError, RecordsWithoutSchemaException):
    """A RECORD came before the SCHEMA of its stream."""


class ClosedOutputError(SingerSparkError):
    """The run is committed, but nobody reads its state any more."""


class LoadRun:
    """Takes the messages of one run in their order, then `finish` or `fail`."""

    def __init__(self, settings: TargetSettings, run: PipelineRun, start_session: Callable[[], SparkSession]) -> None:
        """Begins.

        Args:
            settings: The target's.
            run: The open run of the pipeline.
            start_session: Starts Spark; called once, in the background, when a record needs it.
        """
        self._settings = settings
        self._run = run
        self._pool = StagingPool(run.storage, start_session)
        self._sinks: dict[str, StreamSink] = {}
        self._state: JSON | None = None
        self._announced = False
        self._complete = False
        self._progress = Progress("loaded")
        self._spool = Path(tempfile.mkdtemp(prefix="spool-", dir=scratch_folder()))
        self._batches = 0

    def check(self) -> None:
        """Raises what a batch in the background failed with, if one did."""
        self._pool.check()

    def schema(self, message: JSON) -> None:
        """A SCHEMA: the same one again changes nothing, another one closes the batch; records before it stay."""
        schema = StreamSchema.of(message, self._settings)
        sink = self._sinks.get(schema.stream)
        if sink is None:
            options = self._settings.options_of(schema.stream)
            table = self._run.layout.table(schema.stream, options.path)
            self._sinks[schema.stream] = StreamSink(schema, table)
        elif sink.schema != schema:
            if sink.schema.load_method != schema.load_method:
                raise ProtocolError(
                    f"stream {schema.stream}: a second SCHEMA changes the load method from {sink.schema.load_method} "
                    f"to {schema.load_method} within one run"
                )
            self._close_batch(sink)
            sink.schema, sink.columns = schema, None

    def records(self, lines: RecordLines) -> None:
        """RECORD lines of one stream."""
        sink = self._sinks.get(lines.stream)
        if sink is None:
            raise RecordBeforeSchemaError(
                f"input line {lines.first_line}: a RECORD of stream {lines.stream} came before its SCHEMA"
            )
        if sink.columns is None:
            self._prepare(sink)
            if sink.check is not None and sink.check.bulk is None:
                self._pool.start()
        if sink.batch is None:
            sink.batch = SpooledBatch(self._spool / f"{self._batches:05d}.jsonl")
            self._batches += 1
        sink.batch.write(lines)
        self._progress.advance(lines.stream, lines.rows, len(lines.data))
        if sink.batch.size >= batch_bytes(sink.size):
            self._close_batch(sink)

    def state(self, message: JSON) -> None:
        """A STATE: the first one is compared with the saved state, the last one is saved."""
        value = message.get("value")
        if not isinstance(value, dict):
            raise ProtocolError("a STATE message has no value, or it is no object")
        if self._state is None:
            self._announced = "final" in message
            if not self._settings.accept_any_start:
                self._run.check_start(message.get("start"), value)
        self._state = value
        self._complete = message.get("final") is True

    def activate_version(self, message: JSON) -> None:
        """ACTIVATE_VERSION asks to remove older versions: append-only keeps all, overwrite has only this run's."""
        logger.info(
            "stream %s: ACTIVATE_VERSION has no effect with load methods append-only and overwrite",
            message.get("stream"),
        )

    def finish(self) -> None:
        """The input is complete: commits, then prints the state.

        Raises:
            SingerSparkError: the input was not complete after all, or the commit failed.
            ClosedOutputError: committed, but standard output is closed.
        """
        if self._announced and not self._complete:
            raise ProtocolError(
                "the input ended before the tap's last STATE: the tap died; nothing was published, the state stays"
            )
        for sink in self._sinks.values():
            self._close_batch(sink)
            if sink.schema.load_method == OVERWRITE and sink.columns is None:
                self._prepare(sink)
        self._pool.finish()
        changes = tuple(self._change(sink) for sink in self._sinks.values())
        too_late_to_stop()
        self._run.commit(Commit(changes, self._state))
        self._clean()
        self._progress.finish()
        self._print_state()

    def fail(self, error: BaseException) -> None:
        """Nothing of this run happened; never raises."""
        self._pool.abandon()
        self._progress.stop()
        for sink in self._sinks.values():
            if sink.batch is not None:
                sink.batch.remove()
        self._run.fail(error)
        self._clean()

    def _prepare(self, sink: StreamSink) -> None:
        """Before the first record of a schema: its columns, checked against the table as it stands."""
        from target_spark_lake.staging import table_columns

        schema = sink.schema
        sink.columns = stream_spark_schema(schema.schema, schema.stream)
        if not sink.all_columns:
            sink.record = self._run.table_record(schema.stream, sink.table)
            if sink.record is not None and schema.load_method != OVERWRITE:
                sink.all_columns.update(sink.record.columns)
        sink.add_columns(table_columns(sink.columns, metadata=self._settings.add_record_metadata))
        sink.check = check_of(schema.schema, schema.key_properties)
        validate = self._settings.validate_records
        sink.validator = RecordValidator(
            schema.stream, schema.schema, schema.key_properties, sink.columns, validate=validate
        )

    def _close_batch(self, sink: StreamSink) -> None:
        batch, sink.batch = sink.batch, None
        if batch is None:
            return
        from target_spark_lake.staging import BatchPlan, BatchTimes

        assert sink.columns is not None and sink.validator is not None
        batch.close()
        sink.size += batch.size
        times = None
        if self._settings.add_record_metadata:
            started = int(self._run.started_at.timestamp() * 1000)
            times = BatchTimes(batch.received, batch.batched or batch.received, started)
        plan = BatchPlan(sink.columns, sink.check, times, self._settings.compression)
        folder = f"{self._run.staging_path(sink.schema.stream)}/{len(sink.staging):05d}"
        sink.staging.append(self._pool.submit(BatchJob(sink.schema.stream, batch, plan, sink.validator, folder)))

    def _change(self, sink: StreamSink) -> TableChange:
        stream, table = sink.schema.stream, sink.table
        if sink.columns is None and not sink.staging:
            return TableChange(stream, table)
        staged = tuple(file for future in sink.staging for file in future.result())
        retire: tuple[str, ...] = ()
        if sink.schema.load_method == OVERWRITE:
            retire = self._run.table_files(table)
            staged = staged or (self._stage_nothing(sink),)
        record = TableRecord(self._run.layout.pipeline, stream, sink.all_columns, sink.schema.load_method)
        return TableChange(stream, table, staged, retire, record, f"{self._settings.compression}.parquet")

    def _stage_nothing(self, sink: StreamSink) -> StagedFile:
        """A file without rows: an overwritten table that is empty still has its columns."""
        from target_spark_lake.staging import empty_parquet, table_columns

        assert sink.columns is not None
        columns = table_columns(sink.columns, metadata=self._settings.add_record_metadata)
        local = self._spool / "empty.parquet"
        empty_parquet(local, columns, self._settings.compression)
        path = f"{self._run.staging_path(sink.schema.stream)}/empty.parquet"
        self._run.storage.replace(path, local.read_bytes())
        return StagedFile(path, 0, local.stat().st_size)

    def _print_state(self) -> None:
        if self._state is None:
            return
        try:
            stdout.write(bare_state(self._state))
        except BrokenPipeError as error:
            raise ClosedOutputError(
                "the run is committed and its state is saved, but it could not be printed: standard output is closed"
            ) from error

    def _clean(self) -> None:
        shutil.rmtree(self._spool, ignore_errors=True)
