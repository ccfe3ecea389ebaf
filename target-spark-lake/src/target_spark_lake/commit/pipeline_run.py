"""One run of a pipeline on the lake: lock, recovery, staging folder, commit or failure.

::

    run = open_run(storage, Layout("orders"), lock_ttl_seconds=60)
    with run.failing():                        # before the commit, a failure changes nothing
        run.check_start("saved", first_state)
        ...                                    # stage files below run.staging_path(stream)
        run.commit(Commit(changes, state))     # from here on the run happened, whatever dies
"""

from __future__ import annotations

import copy
import logging
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from singer_spark.core.exact_json import to_json
from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import (
    ConfigurationError,
    LockedError,
    SingerSparkError,
    StorageError,
    UnpublishableError,
)
from singer_spark.state.run_log import ABORTED, RunEntry, read_entry
from singer_spark.state.store import BucketState, Checkpoint, StateStore, same_state
from target_spark_lake.commit import journal
from target_spark_lake.commit.checkpoint_file import CheckpointFile, clear
from target_spark_lake.commit.journal import ABANDONS
from target_spark_lake.commit.lock import RunLock, take_lock
from target_spark_lake.commit.publish import publish, remember_tables, verify_staged
from target_spark_lake.commit.recovery import Recovery, recover
from target_spark_lake.commit.run_reports import source_of
from target_spark_lake.commit.saved_state import check_start
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.batch_message import sweep_batches
from target_spark_lake.layout import Layout, is_data_file
from target_spark_lake.table.changes import Commit, StreamReport, with_orders
from target_spark_lake.table.table_record import (
    TableRecord,
    check_owner,
    claim_all,
    read_record,
    release_claims,
)
from target_spark_lake.table_log import TableLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from singer_spark.core.identity import Process
    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage

logger = logging.getLogger(__name__)
JSON = dict[str, Any]
_command_logger = logging.getLogger("spark-lake")


class PipelineRun:
    """An open run, created by `open_run`, which took the lock.

    Attributes:
        run_id: Sortable, safe in file names, never reused.
        started_at: When the lock was taken, UTC.
        recovery: What was found and done before the run.
        checkpoint: What this run may resume from, and what it leaves for a later one.
        logs: Tables with logs of their own, as the run first saw them.
    """

    def __init__(self, lock: RunLock, store: StateStore, recovery: Recovery) -> None:
        self.storage = lock.storage
        self.layout = lock.layout
        self.run_id = lock.entry.run_id
        self.started_at = lock.entry.since
        self.recovery = recovery
        self.logs = TableLogs(self.storage, self.layout)
        self.checkpoint = CheckpointFile(lock, recovery.checkpoint)
        self._before = recovery.last.run_id if recovery.last else None
        self._store = store
        self._lock = lock
        self._claiming = False

    def committed_state(self) -> dict[str, Any] | None:
        """The state last saved by a committed run or edited by hand, or None."""
        return self.recovery.saved.value if self.recovery.saved else None

    @cached_property
    def starts_over(self) -> bool:
        """Whether a tap has no state to start from: none was saved yet, or it was emptied by hand
        (`state reset`).
        """
        saved = self.committed_state()
        if saved is None:
            return True
        if any(saved.values()):
            return False
        source = source_of(self.storage, self.layout, saved)
        if source is None:
            return False
        return ABANDONS in source.body or str(source.body.get("command")).startswith("state ")

    @property
    def shapes(self) -> Mapping[str, str]:
        """What determined each stream's table (`StreamSink.shape`) when a committed run last
        loaded it.

        Streams that only version 0.1.0 loaded are not known.
        """
        last = self.recovery.last
        return last.body.get(journal.SHAPES, {}) if last is not None else {}

    def check_start(self, start: str | None, value: Mapping[str, Any]) -> None:
        """Refuse a run that started from another state (`saved_state.check_start`)."""
        check_start(start, value, self.committed_state(), self.layout.pipeline, self._before)

    def guard_checkpoint(self, command: str, again: str) -> None:
        """Refuse a command that would void what the next run could resume from.

        Raises:
            LockedError: there is such a run; `again` says what to do after it.
        """
        left = self.recovery.checkpoint
        if left is not None:
            raise LockedError(
                LakeCode.LOCKED,
                f"pipeline {self.layout.pipeline}: run {left.run_id} died and the next run "
                f"continues from what it staged, which {command} would discard; {again} after "
                "that run",
            )

    def write_checkpoint(
        self, state: dict[str, Any], resume: dict[str, Any], target: dict[str, Any]
    ) -> bool:
        """Offer what is staged (`target`) to a later run, in case this one dies; returns False if
        that failed.

        `state` is the STATE that covers all of it, `resume` what the tap sent with it.
        """
        return self.checkpoint.write(
            Checkpoint(self.run_id, self._before, self.committed_state(), state, resume, target)
        )

    def staging_path(self, stream: str) -> str:
        """Folder for a stream's staged files; `storage.url_for_spark` gives its URL for Spark."""
        return self.layout.staging(self.run_id, stream)

    def table_record(self, stream: str, table: str) -> TableRecord | None:
        """The record of an existing table; None for a new one.

        Raises a ConfigurationError if another pipeline or stream owns the table.
        """
        record = read_record(self.storage, self.layout.table_record(table))
        if record is not None:
            check_owner(record, self.layout.pipeline, stream, table)
        return record

    def current_record(self, stream: str, table: str) -> TableRecord | None:
        """The table's record with the columns that readers see: those of the table's own log, if it
        has one.

        Raises:
            ConfigurationError: another pipeline or another stream owns the table.
            SchemaError: another writer added a column that this program can't keep.
        """
        record = self.table_record(stream, table)
        snapshot = self.logs.snapshot(table, record)
        return record if record is None or snapshot is None else snapshot.current_record(record)

    def table_files(self, table: str) -> tuple[str, ...]:
        """The paths of a table's data files."""
        return tuple(file.path for file in self.data_files(table))

    def data_files(self, table: str) -> tuple[FileInfo, ...]:
        """A table's data files, as readers of its folder or its log find them."""
        record = read_record(self.storage, self.layout.table_record(table))
        if record is not None and self.logs.of(record.format) is not None:
            snapshot = self.logs.snapshot(table, record)
            return () if snapshot is None else snapshot.data_files(table)
        return tuple(file for file in self.storage.list(table) if is_data_file(table, file.path))

    def commit(self, commit: Commit) -> Mapping[str, StreamReport]:
        """Commit the run: journal, publish, save the state, release the lock.

        Raises:
            ConfigurationError: another pipeline owns one of the tables.
            LockedError: another run took over the pipeline; nothing of this one happened.
            StorageError: the text says whether the run is committed; the next start finishes or
                undoes it.
        """
        entry = self._decide(commit)
        try:
            published = publish(self._lock, self._store, entry)
        except UnpublishableError as error:
            raise UnpublishableError(
                error.code,
                f"run {self.run_id} is committed, but not all of it is published: {error.message}",
            ) from error
        except (StorageError, LockedError) as error:
            raise StorageError(
                LakeCode.NOT_PUBLISHED_YET,
                f"run {self.run_id} is committed, but not all of it is published yet: the next "
                f"run, or `spark-lake recover`, finishes it ({error})",
            ) from error
        remember_tables(self.storage, self.layout, commit, published)
        self._end()
        return journal.stream_reports(commit)

    def _decide(self, commit: Commit) -> RunEntry:
        """Do everything up to and including the commit point."""
        tables = [change.table for change in commit.changes]
        if len(set(tables)) < len(tables):
            raise ConfigurationError(
                LakeCode.TABLE_TAKEN, f"two streams share one table: {', '.join(sorted(tables))}"
            )
        staged = (file for change in commit.changes for file in change.published)
        verify_staged(self.storage, (*with_orders(staged), *commit.rejected.values()))
        self._lock.ensure_held()
        self._claiming = True
        wanted = {each.table: each.record for each in commit.changes if each.record is not None}
        records = claim_all(self.storage, self.layout, wanted, self.run_id)
        plan = journal.plan_commit(self.layout, self.run_id, commit, records)
        saved = self.committed_state()
        # Not by `same_state`, because the saved state must equal the printed one down to the order
        # of its members.
        state = commit.state
        if state is not None and to_json(state) == to_json(saved):
            state = None
        reports = journal.stream_reports(commit)
        shapes = {**self.shapes, **commit.shapes}
        body = journal.committed_body(
            self._head(), plan, reports, state, saved, self._store.location, shapes
        )
        entry = journal.commit(self.storage, self.layout, body)
        if entry is None:
            raise LockedError(
                LakeCode.LOCK_LOST,
                f"pipeline {self.layout.pipeline}: the lock of run {self.run_id} expired and "
                "another process undid the run; nothing was changed. Run it again",
            )
        return entry

    @contextmanager
    def failing(self, *refusals: type[SingerSparkError]) -> Iterator[None]:
        """Fail the run if the body raises; for one of the `refusals`, end it without a trace."""
        try:
            yield
        except refusals:
            self.leave()
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Leave a report, remove what is staged except the checkpoint's files, release the lock.

        Never raises, and is safe at any point: a committed run stays committed, since the first to
        create the journal decides.
        """
        try:
            body = journal.aborted_body(self._head(), journal.FAILED, error)
            entry: RunEntry | None = None
            if not journal.decide(self.storage, self.layout, body):
                entry = read_entry(self.storage, self.layout.runs, self.run_id)
                if entry is None:
                    raise StorageError(
                        LakeCode.UNDECIDED,
                        f"the store does not say whether run {self.run_id} is decided",
                    )
            if entry is None or entry.phase == ABORTED:
                clear(self.storage, self.layout.staging(self.run_id), keep=self.checkpoint.offered)
                if self._claiming:
                    release_claims(self.storage, self.run_id)
            else:
                logger.warning(
                    "Run %s is committed; the next run finishes publishing it.", self.run_id
                )
            self._lock.release()
            # Runs after the last commit failed too, so without this, journals would pile up until a
            # run succeeds.
            self._prune(after=self._before or "")
        except SingerSparkError as failure:
            # The run is undecided, so the next start finds the lock of a dead process and rolls the
            # run back.
            self._lock.stop()
            logger.warning("Cleaning up after the failed run failed: %s", failure)

    def leave(self) -> None:
        """End a run that had nothing to do, without a trace."""
        self._lock.release()

    def _head(self) -> dict[str, Any]:
        return journal.head(self.layout, self._lock.entry, self._before)

    def _end(self) -> None:
        """Clean up after a success; a failure here doesn't change it."""
        try:
            self.checkpoint.remove()
            self.storage.delete_all(self.layout.staging(self.run_id))
            sweep_batches(self.storage, self.layout)
            self._prune()
            self._lock.release()
        except StorageError as failure:
            self._lock.stop()
            logger.warning("Cleaning up after the run failed: %s", failure)

    def _prune(self, after: str = "") -> None:
        keep = {self._before or "", self.recovery.signed or ""}
        journal.prune(self.storage, self.layout, self.recovery.decided, keep, after)


def open_run(
    storage: Storage,
    layout: Layout,
    *,
    lock_ttl_seconds: float = 60,
    store: StateStore | None = None,
    force: bool = False,
    process: Process | None = None,
    command: str | None = None,
) -> PipelineRun:
    """Take the pipeline's lock, and finish or undo what a dead run left.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        lock_ttl_seconds: After this long without a heartbeat the run counts as dead on other hosts.
        store: Where the published state is, from `open_state_store`; by default the bucket's
            `state.json`. Only a run of the target with a store given moves a state that is kept
            elsewhere.
        force: Take the pipeline even from a living holder, which then can't commit any more.
        process: The process that holds the lock; by default this one.
        command: The `spark-lake` command that this run is; None for a run of the target.

    Raises:
        LockedError: a living run holds the pipeline; names it and since when.
        StateError: the saved state is malformed, or another lake's.
        ConfigurationError: the state is kept elsewhere, and this run may not move it.
    """
    location = store or BucketState(storage, layout.state)
    lock = take_lock(
        storage, layout, lock_ttl_seconds, force=force, process=process, command=command
    )
    try:
        return PipelineRun(
            lock, location, recover(lock, location, may_move=store is not None and command is None)
        )
    except BaseException:
        with suppress(StorageError):
            lock.release()
        raise


def change_state(run: PipelineRun, edited: Callable[[JSON | None], JSON | None]) -> bool:
    """Save the result of `edited` applied to the saved state, and end the run.

    False, without a trace, if unchanged.

    Raises:
        SingerSparkError: `edited` refused; or the storage failed, and the text says whether the run
            is committed.
    """
    with run.failing(SingerSparkError):  # refused: this counts as a run that never happened
        before = run.committed_state()
        after = edited(copy.deepcopy(before))
    if after is None or same_state(before, after):
        run.leave()
        return False
    with run.failing():
        left = run.recovery.checkpoint
        if left is not None:
            _command_logger.warning(
                "What dead run %s had staged is dropped: that run began from another state.",
                left.run_id,
            )
            run.checkpoint.discard()
        too_late_to_stop()
        run.commit(Commit(state=after))
    return True
