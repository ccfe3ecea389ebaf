"""`spark-lake vacuum`: removes what no reader of a kept version needs, as a journalled run of its
own.

Unreferenced files are determined before the commit, and recorded in the journal. They are removed
after it, by whichever process finishes the run, if they are still unreferenced then. No row, no
state, and no table's current version changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import LockedError
from singer_spark.state.run_log import (
    LAKE_FOLDER,
    PUBLISHED,
    folder_name,
    last_committed,
    read_entry,
    run_ids,
    time_of,
)
from singer_spark.store.storage import each
from target_spark_lake.commit.journal import FAILED
from target_spark_lake.intake.batch_locations import forgotten_batches, storage_time, sweep_batches
from target_spark_lake.table.changes import Commit, Unreferenced
from target_spark_lake.table.table_record import records_of
from target_spark_lake.table_logs.table_log import TableLogs

if TYPE_CHECKING:
    from singer_spark.state.store import StateStore
    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.layout import Layout


@dataclass(frozen=True)
class Vacuumed:
    """What is, or was, removed.

    Attributes:
        before: Whatever is older than this is not kept.
        tables: Replaced files by table; only tables that have any.
        rejected: Quarantined records.
        journals: Journals of runs.
        batches: Files of BATCH messages that no run took.
    """

    before: datetime
    tables: tuple[Unreferenced, ...]
    rejected: Unreferenced
    journals: Unreferenced
    batches: Unreferenced

    @property
    def of_the_run(self) -> tuple[Unreferenced, ...]:
        """All that the journal names; batches that no run took are removed at the end of any
        run.
        """
        return tuple(
            found
            for found in (*self.tables, self.rejected, self.journals)
            if found.files or found.details
        )


def vacuum(run: PipelineRun, store: StateStore, age: timedelta) -> Vacuumed:
    """Remove what is older than `age`; if there is nothing the run leaves no trace.

    The run is ended in any case.

    Raises:
        LockedError: a dead run can be resumed, or another run took over the pipeline.
        StorageError: the storage failed; the text says whether the run is committed.
    """
    with run.failing(LockedError):
        run.guard_checkpoint("a vacuum", "vacuum")
    with run.failing():
        # Ages are measured by the storage's clock, which has just stamped the run's lock.
        now = storage_time(run.storage, run.layout)
        moment = datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC)
        found = to_vacuum(run.storage, run.layout, store, moment, age)
        if found.of_the_run:
            too_late_to_stop()
            run.commit(Commit(unreferenced=found.of_the_run))
            return found
    with run.failing():
        sweep_batches(run.storage, run.layout)
    run.leave()
    return found


def to_vacuum(
    storage: Storage, layout: Layout, store: StateStore, now: datetime, age: timedelta
) -> Vacuumed:
    """What can be removed for a pipeline now; only reads.

    Raises:
        StorageError: the storage failed, or a table's log can't be handled.
    """
    logs, before = TableLogs(storage, layout), now - age
    tables = [
        log.unreferenced(table, record, before)
        for table, record in records_of(storage, layout.pipeline).items()
        # A table without a log consists of its files, and keeps none that its readers don't see.
        if (log := logs.of(record.format)) is not None
    ]
    batches = [
        file
        for files in forgotten_batches(storage, layout, now.timestamp()).values()
        for file in files
    ]
    return Vacuumed(
        before,
        tuple(found for found in tables if found.files or found.details),
        Unreferenced.of(_rejected(storage, layout, before)),
        Unreferenced.of(_journals(storage, layout, store, before)),
        Unreferenced.of(batches),
    )


def _rejected(storage: Storage, layout: Layout, before: datetime) -> list[FileInfo]:
    folder = f"{LAKE_FOLDER}/rejected/{folder_name(layout.pipeline)}"
    found = (
        (file.path[len(folder) + 1 :].partition("/")[0], file) for file in storage.list(folder)
    )
    return [file for run_id, file in found if _is_older(run_id, file, before)]


def _journals(
    storage: Storage, layout: Layout, store: StateStore, before: datetime
) -> list[FileInfo]:
    """Journals that are no longer needed.

    A start may need those of the last commit and all runs after it, of the run that saved the
    state, and of the run that wrote the state kept elsewhere. Also kept are journals of runs that
    another process decided as dead: if such a run was only suspended, its journal keeps it from
    committing.
    """
    decided = run_ids(storage, layout.runs)
    last = last_committed(storage, layout.runs, decided)
    if last is None:
        return []
    signature = store.signature()
    kept = {signature.run_id} if signature else set()
    files = {file.path: file for file in storage.list(layout.runs)}
    older = [
        run_id for run_id in decided if run_id < last.run_id and layout.journal(run_id) in files
    ]
    entries = each(storage, lambda run_id: read_entry(storage, layout.runs, run_id), older)
    saved = next(
        (entry for entry in (last, *entries) if entry is not None and entry.state is not None), None
    )
    return [
        files[layout.journal(entry.run_id)]
        for entry in entries
        if entry is not None
        and entry is not saved
        and entry.run_id not in kept
        and (entry.phase == PUBLISHED or entry.body["outcome"] == FAILED)
        and _is_older(entry.run_id, files[layout.journal(entry.run_id)], before)
    ]


def _is_older(run_id: str, file: FileInfo, before: datetime) -> bool:
    """Whether a run's file is older; if the storage gives no times, only the run's id counts."""
    try:
        begun = time_of(run_id)
    except ValueError:  # not a run's: someone else put it there
        return False
    return begun < before and (file.modified is None or file.modified < before.timestamp())
