"""Merging in Spark: its tasks read, decide and rewrite by the functions that this process uses.

Keys and verdicts pass between tasks; rows and verdicts never come to the driver.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import functions as F

import target_spark_lake
from singer_spark.core.lake_type import Struct, columns_from_text
from singer_spark.core.messages import DELETED_AT
from singer_spark.engine.python_tasks import send_along, spark_columns
from singer_spark.engine.spark_versions import repartitioned, sent_rows
from target_spark_lake.formats.conflicts import (
    PRESENT,
    RUN,
    SIDE,
    TABLE,
    contenders,
    key_names,
    resolve,
)
from target_spark_lake.formats.rewriting import Rewrite, staged_files
from target_spark_lake.formats.row_ids import divided, read_rows
from target_spark_lake.formats.rules import (
    DECIDED,
    DELETED,
    DELETED_AT_COLUMN,
    GONE,
    LAST_VALUES,
    ROW_BITS,
    ROW_ID,
    TAKER,
    VALUES,
    VERDICT,
    Verdicts,
)
from target_spark_lake.stage.spark_staging import staged_by_tasks
from target_spark_lake.table.arrow_columns import fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from singer_spark.store.storage import Storage
    from target_spark_lake.formats.merge_engine import Conflict
    from target_spark_lake.formats.row_ids import NumberedFile
    from target_spark_lake.formats.rules import MergeRules
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.table_index import FileStatistics

    MayHold = Callable[[FileStatistics], bool]

# A task holds this many of the keys that it compares.
KEYS_OF_A_TASK = 500_000
_OWN = columns_from_text(
    {
        "version": "bigint",
        "is_marked": "boolean",
        "partial": "boolean",
        ROW_ID: "bigint",
        SIDE: "tinyint",
    }
)
# A task that rewrites files, and the number above the row's bits in the row ids of rows that it
# needs.
_TASK, _NUMBER = "task", "number"


@dataclass(frozen=True)
class SparkMerge:
    """The engine in Spark, for one stream; a task reads or writes about `file_bytes`."""

    session: SparkSession
    storage: Storage
    file_bytes: int

    def __post_init__(self) -> None:
        """Let the session's tasks call this package."""
        send_along(self.session, target_spark_lake)

    def resolve(self, conflict: Conflict) -> Verdicts:
        """What becomes of each row; the result is persisted, as it is read several times."""
        rules = conflict.rules
        may_hold = None if rules.examines_all else conflict.keys.may_be_in
        rows = self._rows_in_conflict(conflict, conflict.incoming, RUN)
        if conflict.candidates:
            rows = rows.unionByName(
                self._rows_in_conflict(conflict, conflict.candidates, TABLE, may_hold)
            )
        if conflict.present is not None:
            rows = rows.unionByName(self._rows_in_conflict(conflict, conflict.present, PRESENT))
        files = (*conflict.incoming, *conflict.candidates, *(conflict.present or ()))
        count = sum(file.rows for file in files)
        by_key = rows.repartition(max(1, -(-count // KEYS_OF_A_TASK)), *key_names(rules))
        decided = by_key.mapInArrow(partial(_resolved, rules), spark_columns(DECIDED))
        decided = decided.persist(StorageLevel.MEMORY_AND_DISK)
        with warnings.catch_warnings():
            # PySpark leaves the socket of a `collect` to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            sums = (
                F.count("*").alias("rows"),
                F.count_if(GONE).alias("gone"),
                F.count_if(DELETED).alias("deleted"),
            )
            counts = decided.groupBy(_number(ROW_ID), VERDICT).agg(*sums).collect()
        by_number: dict[int, dict[str, int]] = {}
        for row in counts:
            by_number.setdefault(row[_NUMBER], {})[row[VERDICT]] = row["rows"]
        gone, deleted = (sum(row[name] for row in counts) for name in ("gone", "deleted"))
        return Verdicts(decided, by_number, gone, deleted)

    def _rows_in_conflict(
        self,
        conflict: Conflict,
        files: Sequence[NumberedFile],
        side: int,
        may_hold: MayHold | None = None,
    ) -> DataFrame:
        rules = conflict.rules
        columns = conflict.columns(rules.keys if side == PRESENT else rules.columns)
        shape = _compared_columns(rules, conflict.types)
        return self._read(files, columns, partial(_contending, rules, side, shape), shape, may_hold)

    def undeleted(self, files: Sequence[NumberedFile]) -> int:
        """Number of rows that are not marked as deleted."""
        rows = self._read(
            files, DELETED_AT_COLUMN, partial(fitted, columns=DELETED_AT_COLUMN), DELETED_AT_COLUMN
        )
        return int(rows.where(F.col(DELETED_AT).isNull()).count())

    def _read(
        self,
        files: Sequence[NumberedFile],
        columns: Struct,
        made: Callable[[pa.RecordBatch], pa.RecordBatch],
        shape: Struct,
        may_hold: MayHold | None = None,
    ) -> DataFrame:
        """What a function makes of these columns of the rows."""
        groups = divided(files, self.file_bytes)
        read = partial(_made, self.storage, groups, columns, made, may_hold)
        return self._tasks(len(groups)).mapInArrow(read, spark_columns(shape))

    def _tasks(self, count: int) -> DataFrame:
        """The number of each task, in a partition of its own."""
        return self.session.range(0, count, 1, max(1, count)).withColumnRenamed("id", _TASK)

    def rewrite(self, rewrite: Rewrite, verdicts: Verdicts | None) -> list[StagedFile]:
        """Stage new files; each task writes some files again."""
        parts = _parts(rewrite, verdicts)
        rows = self._tasks(len(parts))
        if verdicts is not None:
            rows = self._of_tasks(parts, verdicts.rows).unionByName(rows, allowMissingColumns=True)
            rows = repartitioned(rows, len(parts), _TASK)
        return staged_by_tasks(rows, partial(_rewritten, self.storage, parts), rewrite.partitioning)

    def _of_tasks(self, parts: Sequence[Rewrite], verdicts: DataFrame) -> DataFrame:
        """Each task's verdicts: on rows of its files, and on rows that complete some of them."""
        tasks: dict[int, set[int]] = defaultdict(set)
        for task, part in enumerate(parts):
            for file in (*part.opened, *part.incoming):
                for _, number in file.numbers:
                    tasks[number].add(task)
        pairs = [(task, number) for number, some in tasks.items() for task in some]
        columns = {_TASK: [task for task, _ in pairs], _NUMBER: [number for _, number in pairs]}
        known = F.broadcast(sent_rows(self.session, columns))
        own = verdicts.select(_number(ROW_ID), ROW_ID, VERDICT)
        taken = verdicts.where(F.col(TAKER).isNotNull()).select(_number(TAKER), ROW_ID, VERDICT)
        # A row that completes another one in its own file is there twice, which changes nothing.
        return own.unionByName(taken).join(known, _NUMBER).select(_TASK, ROW_ID, VERDICT)

    def release(self, verdicts: Verdicts) -> None:
        """Let the session forget the verdicts."""
        verdicts.rows.unpersist()


def _number(row_id: str) -> Column:
    return F.shiftright(row_id, ROW_BITS).alias(_NUMBER)


def _compared_columns(rules: MergeRules, types: Struct) -> Struct:
    cursors = {f"cursor{number}": types.types[name] for number, name in enumerate(rules.cursor)}
    keys = {name: types.types[key] for name, key in zip(key_names(rules), rules.keys, strict=True)}
    return Struct.of({**keys, **cursors, **_OWN.types})


def _contending(
    rules: MergeRules, side: int, shape: Struct, rows: pa.RecordBatch
) -> pa.RecordBatch:
    return fitted(contenders(rows, rules, side), shape)


def _made(
    storage: Storage,
    groups: Sequence[Sequence[NumberedFile]],
    columns: Struct,
    made: Callable[[pa.RecordBatch], pa.RecordBatch],
    may_hold: MayHold | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from map(made, read_rows(storage, groups[task], columns, may_hold))


def _resolved(rules: MergeRules, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if found:
        yield from resolve(pa.Table.from_batches(found), rules).to_batches()


def _parts(rewrite: Rewrite, verdicts: Verdicts | None) -> list[Rewrite]:
    """What each task writes again: files of about one new file's size, a hive folder's together."""
    incoming = {file.path for file in rewrite.incoming}
    files = [*sorted(rewrite.opened, key=lambda file: file.folders), *rewrite.incoming]
    gives = {VALUES, LAST_VALUES}
    givers = [file for file in files if verdicts and gives & verdicts.of_file(file.numbers).keys()]
    parts = []
    for number, group in enumerate(divided(files, rewrite.file_bytes)):
        own = {file.path for file in group}
        came = [file for file in group if file.path in incoming]
        parts.append(
            replace(
                rewrite,
                opened=[file for file in group if file.path not in incoming],
                incoming=came,
                # Only rows of the run take values from others.
                replaced=rewrite.replaced if came else (),
                others=[file for file in givers if file.path not in own] if came else (),
                folder=f"{rewrite.folder}/{number:05d}",
            )
        )
    return parts


def _rewritten(
    storage: Storage,
    parts: Sequence[Rewrite],
    batches: Iterator[pa.RecordBatch],
    scratch: Path,
    attempt: str,
) -> list[StagedFile]:
    """Rewrite the files of the tasks whose numbers and verdicts these are; of one task, if Spark
    can ensure that.
    """
    found = list(batches)
    if not found:
        return []
    rows, files = pa.Table.from_batches(found), []
    for task in pc.unique(rows[_TASK]).to_pylist():
        verdicts = None
        if ROW_ID in rows.column_names:
            own = rows.filter((pc.field(_TASK) == task) & pc.field(ROW_ID).is_valid())
            verdicts = own.sort_by(ROW_ID)
        part = replace(parts[task], folder=f"{parts[task].folder}-{attempt}")
        files += staged_files(storage, part, verdicts, scratch.with_name(f"{scratch.name}-{task}"))
    return files
