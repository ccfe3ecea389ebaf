"""`spark-lake compact`: fewer, larger files, as a journalled run of its own that changes no row and
no state.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import ConfigurationError, LockedError
from target_spark_lake.config.config_schema import DELTA, ICEBERG
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.compaction_plan import COMPACTED, Join, is_small, joined_paths
from target_spark_lake.formats.table_joining import joined_files, joins_of, reason_against
from target_spark_lake.table.changes import Commit, TableChange
from target_spark_lake.table.table_record import TableRecord, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from singer_spark.store.bucket import FileInfo
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings

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
        changes = tuple(_change(run, settings, plan, Path(scratch)) for plan in plans)
        too_late_to_stop()
        run.commit(Commit(changes))
    return tuple(_compacted(plan, change) for plan, change in zip(plans, changes, strict=True))


def _plans(run: PipelineRun, settings: TargetSettings, stream: str | None) -> Iterator[_Plan]:
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


def _change(run: PipelineRun, settings: TargetSettings, plan: _Plan, scratch: Path) -> TableChange:
    table, record, retire = plan.table, plan.record, joined_paths(plan.joins)
    logger.info("stream %s: %d file(s) of %s are joined", record.stream, len(retire), table)
    staged = joined_files(run, settings, table, record, plan.joins, scratch)
    sizes = [
        *(file.size for file in plan.files if file.path not in set(retire)),
        *(file.bytes for file in staged),
    ]
    small = sum(is_small(size, settings.file_bytes) for size in sizes)
    after, extension = (
        replace(record, small_files=small, small_files_left=small),
        f"{settings.compression}.parquet",
    )
    change = TableChange(record.stream, table, staged, retire, after, extension, records=0)
    log = run.logs.of(record.format)
    return change if log is None else log.rearranged(run.logs.seen(log, table), change)


def _compacted(plan: _Plan, change: TableChange) -> CompactedTable:
    before = [file.size for join in plan.joins for file in join.files]
    after = [file.bytes for file in change.staged]
    return CompactedTable(
        plan.record.stream, plan.table, len(before), len(after), sum(before), sum(after)
    )
