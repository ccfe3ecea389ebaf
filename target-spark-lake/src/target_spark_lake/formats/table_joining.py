"""Joining of files of one table, for `spark-lake compact` and for runs that find many small files.

Arrow streams the rows of several files into fewer files, in order and without a JVM. Memory holds
one row group being read and one being written, whatever the size of the table.

If a table that a run changes has many small files, the run joins the oldest in its own commit.
Their number is kept in the table's record, so a run with nothing to join looks for nothing. What
can't be joined (a small file in each of many folders, say) is examined again only after as many new
small files have come.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.arrow_schema import columns_of_arrow
from singer_spark.core.lake_type import Array, LakeType, Struct, columns_from_text
from singer_spark.errors import ResourceError, SchemaError, StorageError, one_line, shortage
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.compaction_plan import (
    SMALL,
    Join,
    has_many,
    is_small,
    joined_paths,
    oldest,
    planned_joins,
)
from target_spark_lake.layout import JOINED, table_folders
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.stage.table_rewriter import columns_inside
from target_spark_lake.table.arrow_columns import fitted
from target_spark_lake.table.changes import StagedFile
from target_spark_lake.table.lake_parquet import ROW_GROUP_BYTES, LakeFile, gathered, opened_parquet
from target_spark_lake.table.partitioning import folder_names, folder_values
from target_spark_lake.table.row_order import Parts, cut_parts, in_parts, joined_parts, read_parts
from target_spark_lake.table.table_index import TableIndex
from target_spark_lake.table.table_record import DELTA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.table.changes import TableChange
    from target_spark_lake.table.table_record import TableRecord

BATCH_ROWS = 8192
logger = logging.getLogger("target-spark-lake")
MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class FileJoiner:
    """Joins files of one table in a staging folder; `scratch` is an unused local folder.

    With `may_drop`, columns missing from the table are left out; otherwise such a file is refused.
    """

    storage: Storage
    columns: Struct
    folder: str
    scratch: Path
    codec: str
    file_bytes: int
    may_drop: bool = False

    def joined(self, join: Join, name: str) -> tuple[StagedFile, ...]:
        """Stage the new files in a folder of this name; all but the last have at least half of the
        target size.
        """
        columns = columns_inside(self.columns, StagedFile("", 0, 0, join.partition))
        what = join.files[0].path
        rows: list[int] = []

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal what
            for file in join.files:
                what = file.path
                rows.append(0)
                for batch in self._batches(file.path, columns):
                    rows[-1] += batch.num_rows
                    yield fitted(batch, columns)

        try:
            files = tuple(self._written(gathered(batches(), self.group_bytes), columns, join, name))
        except (OSError, ValueError, pa.ArrowException) as error:
            cause = " ".join(str(error).split())
            failure = StorageError(
                LakeCode.SPARK_TASK_FAILED,
                f"file {what} could not be joined with others of its table: {cause}",
            )
            raise shortage(error, f"the joined files in {self.folder}") or failure from error
        if join.is_ordered_by_name:
            return files
        parts = joined_parts(zip(join.parts, rows, strict=True), join.stretches)
        return tuple(self._in_parts(files, parts))

    def _written(
        self, groups: Iterator[pa.Table], columns: Struct, join: Join, name: str
    ) -> Iterator[StagedFile]:
        """Write at least one file; a file ends before a further row group would make it too
        large.
        """
        location = StagingLocation.of(self.storage, self.folder, self.scratch)
        group, wanted = next(groups, None), self.file_bytes
        for number in count():
            file = f"{name}/{number:05d}.parquet"
            before = size = rows = 0
            with LakeFile(location.path(file), columns, self.codec) as writer:
                while (
                    group is not None
                    and size < wanted
                    and (2 * size < wanted or 2 * size - before <= wanted)
                ):
                    writer.write(group)
                    rows += group.num_rows
                    before, size = size, writer.size
                    del group  # before the next one is read
                    group = next(groups, None)
            path, size = f"{self.folder}/{file}", location.bring_one(file)
            yield StagedFile(path, rows, size, join.partition, place=join.sort_prefix)
            if group is None:
                return

    def _in_parts(self, files: Sequence[StagedFile], parts: Parts) -> Iterator[StagedFile]:
        """The files with their row orders."""
        start = 0
        for file in files:
            yield in_parts(self.storage, file, cut_parts(parts, start, file.rows))
            start += file.rows

    def _batches(self, path: str, columns: Struct) -> Iterator[pa.RecordBatch]:
        with open_parquet(self.storage, path) as file:
            source = opened_parquet(file)
            if not self.may_drop:
                _refuse_to_drop(path, columns_of_arrow(source.schema_arrow), columns)
            metadata = source.metadata
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            size = sum(group.total_byte_size for group in groups)
            a_row = max(1, size // max(1, metadata.num_rows))
            yield from source.iter_batches(max(1, min(BATCH_ROWS, self.group_bytes // a_row)))

    @property
    def group_bytes(self) -> int:
        """Size of a row group in Arrow's memory."""
        return min(ROW_GROUP_BYTES, self.file_bytes)


def _refuse_to_drop(path: str, found: Struct | None, columns: Struct) -> None:
    """Refuse a file with unknown columns: another writer may have put it into the folder."""
    unknown = ["a type that no column has"] if found is None else list(_unknown(found, columns, ""))
    if unknown:
        raise StorageError(
            LakeCode.FOREIGN_FILE,
            f"file {path} holds {', '.join(unknown)}, which its table does not have; take it out "
            "of the table's folder",
        )


def _unknown(found: LakeType, known: LakeType, name: str) -> Iterator[str]:
    """Names of the members, at any depth, that only the file has."""
    if isinstance(found, Array) and isinstance(known, Array):
        yield from _unknown(found.element, known.element, name)
    elif isinstance(found, Struct) and isinstance(known, Struct):
        for each in found:
            inner = f"{name}.{each.name}".lstrip(".")
            if each.name in known.types:
                yield from _unknown(each.type, known.types[each.name], inner)
            else:
                yield inner


def joins_of(
    run: PipelineRun,
    settings: TargetSettings,
    table: str,
    record: TableRecord,
    files: Sequence[FileInfo],
    share: int,
) -> list[Join]:
    """The possible joins of a table's files (`planned_joins`); in a partitioned table, only of
    files in proper folders.
    """
    if wanted := folder_names(record.partition_by):
        found = [(file, folder_values(table_folders(table, file.path))) for file in files]
        files = [file for file, values in found if tuple(values) == wanted]
    parts = read_parts(run.storage, run.layout, table, [file.path for file in files])
    return planned_joins(table, files, settings.file_bytes, parts, share=share)


def reason_against(run: PipelineRun, table: str, record: TableRecord) -> str:
    """Why files of a table with its own log can't be joined here; empty if they can."""
    log = run.logs.of(record.format)
    if log is None:
        return ""
    snapshot = run.logs.snapshot(table, record)
    if snapshot is None:
        raise StorageError(LakeCode.TABLE_LOG_GONE, log.missing_message(record.stream, table))
    try:
        snapshot.current_record(record)
    except SchemaError:
        return "got a column by someone else that this program can't keep"
    return snapshot.reason_against_joining(record)


def joined_files(
    run: PipelineRun,
    settings: TargetSettings,
    table: str,
    record: TableRecord,
    joins: Sequence[Join],
    scratch: Path,
) -> tuple[StagedFile, ...]:
    """Stage the new files."""
    folder = f"{run.staging_path(record.stream)}/{JOINED}/{table}"
    columns, logged = columns_from_text(record.columns), run.logs.of(record.format) is not None
    # For such a table only the log says which columns readers see, whatever else files hold.
    joiner = FileJoiner(
        run.storage, columns, folder, scratch, settings.compression, settings.file_bytes, logged
    )
    staged = [
        file for number, join in enumerate(joins) for file in joiner.joined(join, f"{number:05d}")
    ]
    # An empty one has its columns in the log, and needs no file for them.
    return tuple(file for file in staged if file.rows or not logged)


@dataclass(frozen=True)
class AutoCompaction:
    """Adds compaction to a run's change of a table.

    `scratch` is a local folder that is removed afterwards.
    """

    run: PipelineRun
    settings: TargetSettings
    scratch: Path

    def of(self, change: TableChange) -> TableChange:
        """The change, with many small files joined, and their number in its record."""
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
        found, left = change.record.small_files, change.record.small_files_left
        if found is None:
            return change
        return _counted(change, found + self._small(file.bytes for file in change.staged), left)

    def _small_before(self, change: TableChange, record: TableRecord) -> int | None:
        """Number of earlier small files that stay; None if never counted."""
        if change.index is not None:
            staged, known = {file.path for file in change.staged}, change.index.files
            return self._small(each.bytes for path, each in known.items() if path not in staged)
        is_delta, table, gone = record.format == DELTA, change.table, set(change.retire)
        if is_delta and (before := self.run.logs.snapshot(table, record)) is not None:
            files = before.data_files(table)
            return self._small(file.size for file in files if file.path not in gone)
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
        scratch = self.scratch / "joined" / table
        try:
            joined = joined_files(run, self.settings, table, record, chosen, scratch)
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
        change, gone = replace(change, joined=joined, joined_from=sources), set(sources)
        if (index := change.index) is not None:
            known = {path: each for path, each in index.files.items() if path not in gone}
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
