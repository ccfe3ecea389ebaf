"""A run of the target: it takes in messages, stages batches in the background, and makes one commit
at the end.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.core import stdout
from singer_spark.core.messages import (
    PART,
    RESTARTED,
    ROW_ESTIMATE,
    SKIPPED,
    STREAM_COUNT,
    bare_state,
)
from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import Stopped, too_late_to_stop
from singer_spark.errors import ProtocolError, SingerSparkError
from singer_spark.program.progress import Progress
from singer_spark.state.store import same_state
from target_spark_lake.commit.bookmarks import watermarks
from target_spark_lake.commit.saved_state import FIRST, RESUME, SAVED, Saving, state_to_save
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.stream_load import ShrunkTableError
from target_spark_lake.intake.batch_message import BatchMessage
from target_spark_lake.intake.singer_lines import DeadTapError, EmptyInputError, RecordLines
from target_spark_lake.load.batch_files import BatchFiles, TakenFiles
from target_spark_lake.load.batches import Batches
from target_spark_lake.load.checkpointing import Checkpointing, adopt, settings_of_rows
from target_spark_lake.load.notices import (
    notify_of_dead,
    notify_of_failure,
    notify_of_success,
    root_error,
)
from target_spark_lake.load.run_metrics import emit_failure, emit_success
from target_spark_lake.load.run_streams import (
    Extents,
    LeftOut,
    WholeStreams,
    changes_of,
    log_rejected,
    rejected_records,
    replaced_streams,
)
from target_spark_lake.load.sink import SinkStaging, StagingPool
from target_spark_lake.load.source_key_batches import KeyBatches
from target_spark_lake.table.changes import Commit, StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")


class ClosedOutputError(SingerSparkError):
    """The run is committed, but its state could not be printed."""


class LoadRun:
    """Processes the messages of one run in order, up to `finish` or `fail`."""

    def __init__(
        self,
        settings: TargetSettings,
        run: PipelineRun,
        start_session: Callable[[], SparkSession],
        mapping: Mapping[str, Any] | None = None,
        saving: Saving = Saving.REPLACE,
        progress: Progress | None = None,
        *,
        refreshes: bool = False,
        began: datetime | None = None,
    ) -> None:
        """Prepare for an open run, in a program that began then.

        `refreshes` is whether Meltano makes a full refresh: append-only tables are replaced then.
        `start_session` is called once, in the background, when a record needs Spark; `mapping` has
        the settings of singer-sdk's stream maps and flattening that are given.
        """
        self._saving = saving
        self._refreshes = refreshes
        self._began = began or datetime.now(UTC)
        self._settings = settings
        self._settings_of_rows = settings_of_rows(settings, mapping or {})
        self._run = run
        self._pool = StagingPool(run.storage, start_session)
        self._spool = Path(tempfile.mkdtemp(prefix="spool-", dir=scratch_folder()))
        staging = SinkStaging(run, self._pool, self._spool)
        self._batches = Batches(settings, run, staging)
        self._keys = KeyBatches(settings, staging)
        self._files = BatchFiles(settings, run, self._batches, self._spool)
        self.left_out = LeftOut(settings, run)
        self._checkpointing: Checkpointing | None = None
        self._activated: dict[str, int] = {}
        self._state: JSON | None = None
        self._announced = False
        self._complete = False
        self._happened = False
        self._current: str | None = None
        self._progress = progress or Progress("loaded")

    def begin(self) -> None:
        """Notify receivers of runs that were found dead."""
        notify_of_dead(self._run, self._settings.notify)

    def check(self) -> None:
        """Raise the error of a failed background batch; checkpoints are also written here."""
        self._pool.check()
        if self._checkpointing is not None:
            self._checkpointing.advance()

    def schema(self, message: JSON) -> None:
        """Take a SCHEMA: a repeated one changes nothing, a different one adds its columns and keeps
        earlier records.
        """
        self._refuse_after_end("a SCHEMA")
        if self._state is None:
            self._progress.phase("reading")
        if self.left_out.has(message.get("stream")):
            return
        if self._keys.schema(message, self._batches.sinks):
            return
        with self.left_out.or_raise(message.get("stream")):
            self._extents().check(self._batches.schema(message))
        estimate = message.get(ROW_ESTIMATE)
        self._progress.expect(message["stream"], estimate if isinstance(estimate, int) else None)
        self._end_earlier(message)

    def _end_earlier(self, message: JSON) -> None:
        """Show the previous stream as done: a tap that announces itself sends one after the other,
        except from a database's log.
        """
        if self._announced and message["schema"].get("x-replication-method") != "LOG_BASED":
            if self._current not in (None, message["stream"]):
                self._progress.done(self._current)
            self._current = message["stream"]

    def records(self, lines: RecordLines) -> None:
        """Take RECORD lines of one stream."""
        self._refuse_after_end(f"input line {lines.first_line}: a RECORD of stream {lines.stream}")
        if self.left_out.has(lines.stream):
            return
        if self._keys.takes(lines.stream):
            self._keys.add(lines)
            return
        self._batches.add(lines)
        self._progress.advance(lines.stream, lines.rows, len(lines.data))

    def batch(self, message: JSON) -> None:
        """Take a BATCH: files that hold records of one stream."""
        batch = BatchMessage.of(message)
        self._refuse_after_end(f"a BATCH of stream {batch.stream}")
        if self.left_out.has(batch.stream):
            self._files.drop(batch)
            return
        keys = self._keys.takes(batch.stream)
        for part in self._files.lines(batch) if keys else self._files.take(batch):
            self.check()
            if isinstance(part, TakenFiles):
                self._progress.advance(batch.stream, part.rows, part.bytes)
            else:
                self.records(part)

    def batch_lines(self, message: JSON) -> Iterator[RecordLines]:
        """The records of a BATCH as lines, for callers that transform them first."""
        return self._files.lines(BatchMessage.of(message))

    def state(self, message: JSON) -> None:
        """Take a STATE: the first one is compared with the saved state, the last one is saved."""
        value, resume = message.get("value"), message.get("resume")
        if not isinstance(value, dict):
            raise ProtocolError(
                LakeCode.INPUT_MALFORMED,
                "a STATE message has no value, or its value is not an object",
            )
        if self._complete and not same_state(value, self._state):
            self._refuse_after_end("another STATE")
        if self._state is None:
            self._start(message, value)
        self._state = value
        self._complete = self._complete or message.get("final") is True
        if self._announced:
            self._skip(message.get(SKIPPED))
            self._restart(message.get(RESTARTED))
        if self._checkpointing is not None and isinstance(resume, dict) and "final" not in message:
            self._checkpointing.state(value, resume)

    def _refuse_after_end(self, what: str) -> None:
        """Refuse messages after the tap's last STATE, because that state would be saved without
        covering them.
        """
        if self._complete:
            raise ProtocolError(
                LakeCode.INPUT_OUT_OF_ORDER,
                f'{what} came after the tap\'s last STATE ("final": true), which does not cover '
                "it; nothing was published, and the state is unchanged. Give the target the output "
                "of one run of one tap",
            )

    def _skip(self, streams: object) -> None:
        """Skip streams that the tap gave up on; their tables and bookmarks stay as they were."""
        sent = streams if isinstance(streams, list) else ()
        new = [each for each in sent if each not in self._batches.skipped]
        self.left_out.check_skipped(new)
        for stream in new:
            logger.warning(
                "stream %s: the tap could not read it; its table and its bookmark are unchanged",
                stream,
            )
            self._batches.skip(stream)
            self._progress.forget(stream)

    def _restart(self, streams: object) -> None:
        """Drop what a dead run had staged of streams that the tap sends from their start."""
        for stream in streams if isinstance(streams, list) else ():
            self._batches.restart(stream)

    def activate_version(self, message: JSON) -> None:
        """Take an ACTIVATE_VERSION: at the end, tables of current rows lose the rows of lower
        versions.
        """
        stream, version = message.get("stream"), message.get("version")
        if not isinstance(stream, str) or not isinstance(version, int):
            raise ProtocolError(
                LakeCode.INPUT_MALFORMED,
                "an ACTIVATE_VERSION message has no stream, or no number as its version",
            )
        self._refuse_after_end(f"an ACTIVATE_VERSION of stream {stream}")
        self._activated[stream] = max(version, self._activated.get(stream, version))

    def finish(self) -> None:
        """End the input: commit, then print the state.

        Raises:
            SingerSparkError: the input was incomplete after all, or the commit failed.
            ClosedOutputError: committed, but standard output is closed, or its disk is full.
        """
        sinks = self._batches.sinks
        if self._announced and not self._complete:
            raise DeadTapError(
                LakeCode.TAP_DIED,
                "the input ended before the tap's last STATE: the tap died; nothing was published, "
                "and the state is unchanged",
            )
        if self._state is None and not sinks:
            nothing = EmptyInputError(
                LakeCode.INPUT_EMPTY,
                "the input held no message: the tap did not start; its own log says why",
            )
            logger.warning(
                "%s; nothing was changed, `spark-lake runs` shows it as a failed run", nothing
            )
            self.fail(nothing)
            return
        self._batches.check_adopted()
        self._progress.all_done()
        self._progress.phase("writing")
        extents = self._extents(sinks)
        for sink in self._batches.loaded.values():
            extents.check(sink.schema)
        self._batches.close_all()
        self._keys.close_all()
        whole = WholeStreams(self._activated, self._keys, extents)
        for sink in self._batches.loaded.values():
            if not sink.is_resolved and whole.may_change(sink):
                self._batches.resolve(sink)
            self._batches.check(sink)
        self._pool.finish()
        rejected = rejected_records(self._run, self._batches.loaded, self._spool)
        self._count_rejected(rejected)
        if any(sink.schema.merges for sink in self._batches.loaded.values()):
            self._progress.phase("merging")
        loads = [whole.load_of(sink) for sink in self._batches.loaded.values()]
        try:
            changes = changes_of(loads, self._run, self._settings, self._pool, self._spool)
        except ShrunkTableError:
            # Otherwise the next run would continue from these rows, even if the source is whole
            # again.
            self._run.checkpoint.discard()
            raise
        self._pool.close()
        too_late_to_stop()
        committed = self._run.committed_state()
        last = self.left_out.without(self._state, committed)
        state = state_to_save(self._saving, last, committed, self._batches.loaded)
        for change in changes:
            if change.deleted:
                self._progress.delete(change.stream, change.deleted)
        self._progress.phase("committing")
        shapes = {name: sink.shape(self._settings) for name, sink in self._batches.loaded.items()}
        reports = self._run.commit(Commit(changes, state, rejected, shapes=shapes))
        self._happened = True
        self._files.clean()
        self._clean()
        known = self._run.committed_state() if state is None else state
        self._progress.finish_run(
            f"{self._run.storage.url}/{self._settings.path}", watermarks(known)
        )
        log_rejected(self._run, rejected)
        emit_success(self._run, reports, known, self._settings.metrics_file)
        try:
            self._print_state(state)
        finally:
            changed = {
                name: sink.changes for name, sink in self._batches.loaded.items() if sink.changes
            }
            limit = self._settings.max_lag_minutes
            notify_of_success(self._run, self._settings.notify, reports, changed, known, limit)

    def fail(self, error: BaseException) -> None:
        """Abort the run; whole parts of a dead tap's output are kept for the next run.

        Raises nothing.
        """
        try:
            if self._checkpointing is not None and isinstance(error, DeadTapError):
                self._checkpointing.salvage()
        except SingerSparkError as failure:
            logger.warning("What the tap sent before it died could not all be kept: %s", failure)
        finally:
            self._pool.abandon()
            self._progress.stop()
            self._batches.drop_all()
            self._keys.drop_all()
            error = root_error(self._run, error, self._began)
            self._run.fail(error)
            self._clean()
            if not self._happened:
                emit_failure(self._run, self._settings.metrics_file)
                # A signal cuts the wait for an answer short; the run has failed for its original
                # reason.
                with suppress(Stopped, KeyboardInterrupt):
                    notify_of_failure(
                        self._run, self._settings.notify, error, self._settings.max_lag_minutes
                    )

    def _start(self, message: JSON, value: JSON) -> None:
        """Handle the first STATE: where the run starts, and what becomes of a dead run's
        checkpoint.
        """
        self._announced = "final" in message
        self.left_out.begin(message)
        self._batches.replaced = replaced_streams(
            message, self._settings, self._run, refreshes=self._refreshes
        )
        if message.get(PART) is True and self._saving is Saving.REPLACE:
            self._saving = Saving.MERGE
        count = message.get(STREAM_COUNT)
        self._progress.expect_streams(count if isinstance(count, int) else None)
        # A tap that announces itself reports what it reads.
        self._progress.phase("reading", logged=not self._announced)
        start = message.get("start")
        begins_there = start in (SAVED, FIRST)
        if start == RESUME:
            if self._batches.sinks:
                raise ProtocolError(
                    LakeCode.INPUT_OUT_OF_ORDER,
                    "the tap resumes a run that died, but its first message is not the STATE",
                )
            self._batches.adopt(
                adopt(self._run, value, message.get("resume"), self._settings_of_rows)
            )
        else:
            try:
                self._run.check_start(start, value)
            except SingerSparkError:
                if not self._settings.accept_any_start:
                    raise
                begins_there = False
            self._run.checkpoint.discard()
        if self._announced and self._settings.resume and (begins_there or start == RESUME):
            self._checkpointing = Checkpointing(
                self._run, self._batches, self._pool, self._settings_of_rows
            )

    def _extents(self, streams: Collection[str] | None = None) -> Extents:
        """The known extents of the streams; without `streams`, of all streams of the run while more
        may come.
        """
        return Extents(
            None if self._run.starts_over else self._run.committed_state(), self._state, streams
        )

    def _count_rejected(self, rejected: Mapping[str, StagedFile]) -> None:
        """Quarantined records don't count as loaded."""
        for name, file in rejected.items():
            adopted = self._batches.loaded[name].adopted
            before = sum(each.rows for each in adopted.rejected) if adopted else 0
            self._progress.advance(name, before - file.rows, 0)

    def _print_state(self, state: JSON | None) -> None:
        try:
            if state is not None:
                stdout.write(bare_state(state))
        except OSError as error:
            raise ClosedOutputError(
                LakeCode.OUTPUT_CLOSED,
                "the run is committed and its state is saved, but it could not be printed: "
                f"{error.strerror}",
            ) from error

    def _clean(self) -> None:
        shutil.rmtree(self._spool, ignore_errors=True)
