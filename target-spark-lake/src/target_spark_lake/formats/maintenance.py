"""What `spark-lake compact`, `convert` and `vacuum` do with tables, each as a journalled run of its
own that changes no row and no state.

A compaction makes fewer, larger files. A conversion registers a table's files in the log of another
format, and rewrites none. A vacuum removes what no reader of a kept version needs.

Unreferenced files are determined before the vacuum's commit, and recorded in the journal. They are
removed after it, by whichever process finishes the run, if they are still unreferenced then. No
table's current version changes.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import ConfigurationError, LockedError, SchemaError
from singer_spark.state.run_log import PUBLISHED, last_committed, read_entry, run_ids, time_of
from singer_spark.store.storage import each
from target_spark_lake.commit.journal import FAILED
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.compaction_plan import COMPACTED, Join, is_small, joined_paths
from target_spark_lake.intake.batch_message import forgotten_batches, storage_time, sweep_batches
from target_spark_lake.table.changes import Commit, TableChange, Unreferenced
from target_spark_lake.table.partitioning import folder_names, folder_values, folders_of
from target_spark_lake.table.table_index import FOOTERS_AT_ONCE
from target_spark_lake.table.table_record import DELTA, FORMATS, ICEBERG, TableRecord, records_of
from target_spark_lake.table_log import TableLogs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from singer_spark.state.store import StateStore
    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.layout import Layout
    from target_spark_lake.table_log import TableLog

logger = logging.getLogger("spark-lake")

_OTHERS = {DELTA: "Delta's OPTIMIZE", ICEBERG: "Iceberg's rewrite_data_files"}


@dataclass(frozen=True)
class CompactedTable:
    """The result for a table of a stream: number and bytes of the files removed and of those that
    replace them.
    """

    stream: str
    table: str
    retired: int
    published: int
    retired_bytes: int
    published_bytes: int


@dataclass(frozen=True)
class _Plan:
    """The joins of one table, and all its files."""

    table: str
    record: TableRecord
    joins: tuple[Join, ...]
    files: tuple[FileInfo, ...]


def compact(
    run: PipelineRun, settings: TargetSettings, stream: str | None = None
) -> tuple[CompactedTable, ...]:
    """Join small files of one stream's tables, or of all, and commit.

    If there are none, the run leaves no trace.

    Returns the tables that changed; the run is ended in any case.

    Raises:
        ConfigurationError: there is no such stream, or its table can't be compacted here.
        LockedError: a dead run can be resumed, or another run took over the pipeline.
        StorageError: the storage failed; the text says whether the run is committed.
    """
    with run.failing(ConfigurationError, LockedError):
        run.guard_checkpoint("a compaction", "compact")
        plans = tuple(_plans(run, settings, stream))
    if not plans:
        run.leave()
        return ()
    with (
        run.failing(),
        TemporaryDirectory(
            prefix="compact-", dir=scratch_folder(), ignore_cleanup_errors=True
        ) as scratch,
    ):
        changes = tuple(_compaction_of(run, settings, plan, Path(scratch)) for plan in plans)
        too_late_to_stop()
        run.commit(Commit(changes))
    return tuple(_compacted(plan, change) for plan, change in zip(plans, changes, strict=True))


def _plans(run: PipelineRun, settings: TargetSettings, stream: str | None) -> Iterator[_Plan]:
    # It loads Arrow, which the other commands don't need.
    from target_spark_lake.formats.table_joining import joins_of, reason_against

    records = records_of(run.storage, run.layout.pipeline)
    found = [
        (table, record) for table, record in records.items() if stream in (None, record.stream)
    ]
    if stream is not None and not found:
        raise ConfigurationError(
            LakeCode.TABLE_MISSING,
            f"stream {stream}: pipeline {run.layout.pipeline} has no table of it in "
            f"{run.storage.url}",
        )
    for table, record in found:
        if reason := reason_against(run, table, record):
            message = f"stream {record.stream}: {record.format.title()} table {table} {reason}"
            message += f", so compact does not touch it; use {_OTHERS[record.format]}"
            if stream is not None:
                raise ConfigurationError(LakeCode.TABLE_MISSING, message)
            logger.info("%s", message)
            continue
        files = run.data_files(table)
        joins = joins_of(run, settings, table, record, files, COMPACTED)
        if joins:
            current = run.current_record(record.stream, table) or record
            yield _Plan(table, current, tuple(joins), tuple(files))


def _compaction_of(
    run: PipelineRun, settings: TargetSettings, plan: _Plan, scratch: Path
) -> TableChange:
    from target_spark_lake.formats.table_joining import joined_files

    table, record, retire = plan.table, plan.record, joined_paths(plan.joins)
    logger.info("stream %s: %d file(s) of %s are joined", record.stream, len(retire), table)
    staged = joined_files(run, settings, table, record, plan.joins, scratch)
    sizes = [
        *(file.size for file in plan.files if file.path not in set(retire)),
        *(file.bytes for file in staged),
    ]
    small = sum(is_small(size, settings.file_bytes) for size in sizes)
    after = replace(record, small_files=small, small_files_left=small)
    extension = f"{settings.compression}.parquet"
    change = TableChange(record.stream, table, staged, retire, after, extension, records=0)
    log = run.logs.of(record.format)
    return change if log is None else log.rearranged(run.logs.seen(log, table), change)


def _compacted(plan: _Plan, change: TableChange) -> CompactedTable:
    before = [file.size for join in plan.joins for file in join.files]
    after = [file.bytes for file in change.staged]
    return CompactedTable(
        plan.record.stream, plan.table, len(before), len(after), sum(before), sum(after)
    )


def convert(run: PipelineRun, chosen: str, stream: str | None) -> list[str]:
    """Convert the pipeline's tables to the chosen format, all or none; ends the run in any case.

    With a `stream` only its tables are converted (with append-dedup it has two). Returns the
    folders of the converted tables; empty if all already had that format.

    Raises:
        ConfigurationError: there is no such table, or it can't be converted to that format.
        SchemaError: the format does not allow a column.
    """
    pipeline = run.layout.pipeline
    with run.failing():
        run.guard_checkpoint("a conversion", "convert")
        found = records_of(run.storage, pipeline)
        records = {table: each for table, each in found.items() if stream in (None, each.stream)}
        if not records:
            of_stream = f" of stream {stream}" if stream else ""
            raise ConfigurationError(
                LakeCode.TABLE_MISSING, f"pipeline {pipeline} has no table{of_stream} to convert"
            )
        earlier = FORMATS[: FORMATS.index(chosen)]
        changes = tuple(
            _conversion_of(run, chosen, table, each)
            for table, each in records.items()
            if each.format in earlier
        )
        if changes:
            too_late_to_stop()
            run.commit(Commit(changes))
        else:
            run.leave()
    return [change.table for change in changes]


def _conversion_of(run: PipelineRun, chosen: str, table: str, record: TableRecord) -> TableChange:
    # Checked like a new table of the format: no log may exist, and no name that its readers can't
    # open.
    converted = replace(record, format=chosen)
    run.logs.check_format(record.stream, table, converted, chosen)
    log = run.logs.of(chosen)
    assert log is not None
    if log.snapshot(table) is not None:
        raise ConfigurationError(
            LakeCode.OTHER_FORMAT,
            f"stream {record.stream}: in {table} someone else made a table of format {chosen}; "
            "move its log away",
        )
    files = {file.path: file.size for file in run.data_files(table)}
    _check_files(log, table, record, files)
    return log.change(None, TableChange(record.stream, table, record=converted), files)


def _check_files(log: TableLog, table: str, record: TableRecord, files: Iterable[str]) -> None:
    """Refuse files that a table of the log's format can't take as they are."""
    names = folder_names(record.partition_by)

    def check(path: str) -> None:
        if tuple(folder_values(folders_of(path[len(table) + 1 :]))) != names:
            raise ConfigurationError(
                LakeCode.NOT_CONVERTIBLE,
                f"stream {record.stream}: {path} lies in other hive folders than partition_by "
                "says, which can't be converted; move it away, or load the stream again with "
                "load_method overwrite",
            )
        if other := log.other_columns(record, path):
            raise SchemaError(
                LakeCode.NOT_CONVERTIBLE,
                f"stream {record.stream}: in {path} column(s) {', '.join(other)} have another type "
                "than in the table; load the stream again with load_method overwrite before it is "
                "converted",
            )

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        list(pool.map(check, files))


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
        """All that the journal names; any run's end removes batches that no run took."""
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

    Raises a StorageError if the storage failed, or a table's log can't be handled.
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
    folder = layout.pipeline_rejected
    files = {file.path[len(folder) + 1 :]: file for file in storage.list(folder)}
    return [file for path, file in files.items() if _is_older(path.split("/")[0], file, before)]


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
