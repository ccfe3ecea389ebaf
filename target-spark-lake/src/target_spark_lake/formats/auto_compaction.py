"""Compaction within a run: if a table that it changes has many small files, it joins the oldest in
its own commit.

Their number is kept in the table's record, so a run with nothing to join looks for nothing. What
can't be joined (a small file in each of many folders, say) is examined again only after as many new
small files have come.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.errors import ResourceError, StorageError, one_line
from target_spark_lake.formats.compaction_plan import (
    SMALL,
    has_many,
    is_small,
    joined_paths,
    oldest,
)
from target_spark_lake.formats.table_joining import joined_files, joins_of, reason_against
from target_spark_lake.table.table_index import TableIndex
from target_spark_lake.table.table_record import DELTA

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.table.changes import StagedFile, TableChange
    from target_spark_lake.table.table_record import TableRecord

logger = logging.getLogger("target-spark-lake")

MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class AutoCompaction:
    """Adds compaction to a run's change of a table.

    `scratch` is a local folder that is removed afterwards.
    """

    run: PipelineRun
    settings: TargetSettings
    scratch: Path

    def of(self, change: TableChange) -> TableChange:
        """The change, with small files joined if the table has many, and their number in its
        record.
        """
        record = change.record
        if record is None:
            return change
        small_before = self._small_before(change, record)
        change = _counted(change, small_before, record.small_files_left)
        # Earlier files are joined only if the change leaves them as they are.
        may_join = not change.rewritten and (
            change.log is not None or self.run.logs.of(record.format) is None
        )
        if (
            self.settings.joins_small_files
            and may_join
            and has_many(small_before, record.small_files_left)
        ):
            change = self._joined(change, record)
        assert change.record is not None
        found, added = change.record.small_files, self._small(file.bytes for file in change.staged)
        return (
            change
            if found is None
            else _counted(change, found + added, change.record.small_files_left)
        )

    def _small_before(self, change: TableChange, record: TableRecord) -> int | None:
        """Number of earlier small files that stay; None if never counted."""
        if change.index is not None:
            staged = {file.path for file in change.staged}
            return self._small(
                each.bytes for path, each in change.index.files.items() if path not in staged
            )
        if (
            record.format == DELTA
            and (before := self.run.logs.snapshot(change.table, record)) is not None
        ):
            gone = set(change.retire)
            return self._small(
                file.size for file in before.data_files(change.table) if file.path not in gone
            )
        # An overwrite leaves none.
        return 0 if change.retire and not change.rewritten else record.small_files

    def _small(self, sizes: Iterable[int]) -> int:
        return sum(is_small(size, self.settings.file_bytes) for size in sizes)

    def _joined(self, change: TableChange, record: TableRecord) -> TableChange:
        run, table, gone = self.run, change.table, set(change.retire)
        if reason_against(run, table, record):
            return change
        files = [file for file in run.data_files(table) if file.path not in gone]
        small = self._small(file.size for file in files)
        if not has_many(small):
            return _counted(change, small, 0)
        joins = joins_of(run, self.settings, table, record, files, SMALL)
        chosen = oldest(joins, MOST_BYTES)
        if not chosen:
            return _counted(change, small, small)
        try:
            joined = joined_files(
                run, self.settings, table, record, chosen, self.scratch / "joined" / table
            )
            change = self._with(change, joined, joined_paths(chosen))
        except (StorageError, ResourceError) as error:
            logger.warning(
                "stream %s: small files of %s stay as they are: %s",
                change.stream,
                table,
                one_line(error),
            )
            return _counted(change, small, small)
        small += self._small(file.bytes for file in change.joined) - len(change.joined_from)
        rest = len(joined_paths(joins)) > len(change.joined_from)
        return _counted(change, small, 0 if rest else small)

    def _with(
        self, change: TableChange, joined: tuple[StagedFile, ...], sources: tuple[str, ...]
    ) -> TableChange:
        """The change, with joined files in place of their sources."""
        logger.info(
            "stream %s: %d small files of %s become %d",
            change.stream,
            len(sources),
            change.table,
            len(joined),
        )
        change = replace(change, joined=joined, joined_from=sources)
        if change.index is not None:
            known = {
                path: each for path, each in change.index.files.items() if path not in set(sources)
            }
            change = replace(change, index=TableIndex(known))
        log = self.run.logs.of(change.log.format) if change.log is not None else None
        if log is None:
            return change
        return log.rearranged(self.run.logs.seen(log, change.table), change)


def _counted(change: TableChange, small_files: int | None, left: int) -> TableChange:
    assert change.record is not None
    return replace(
        change, record=replace(change.record, small_files=small_files, small_files_left=left)
    )
