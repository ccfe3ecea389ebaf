"""Merging in Spark: keys are compared by its tasks, and whole rows are read from files in which some row changes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F

import target_spark_lake
from singer_spark.singer.lake_type import Struct, columns_from_text
from singer_spark.singer.metadata_columns import DELETED_AT
from singer_spark.spark.lake_columns import spark_columns
from singer_spark.spark.python_tasks import send_along
from target_spark_lake.columns.spark_columns import column
from target_spark_lake.formats.merging.completion import completed, filled_in, last_values
from target_spark_lake.formats.merging.conflicts import PRESENT, RUN, SIDE, TABLE, contenders, key_names, resolve
from target_spark_lake.formats.merging.rules import (
    DELETE,
    DELETED_AT_COLUMN,
    FILL,
    GONE,
    LAST_VALUES,
    MARK,
    PLACE,
    ROW_BITS,
    VALUES,
    VERDICT,
    Verdicts,
)
from target_spark_lake.formats.merging.spark_rows import PlacedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from target_spark_lake.formats.merging.merge_engine import Contest, Rewrite
    from target_spark_lake.formats.merging.placed_files import PlacedFile
    from target_spark_lake.formats.merging.rules import MergeRules
    from target_spark_lake.formats.table_writer import TableWriter
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.tables.changes import StagedFile

    Complete = Callable[[pa.Table, pa.Table], pa.Table]

# Up to this many verdicts are broadcast to each task, which avoids sorting the rows they apply to.
BROADCAST_VERDICTS = 2_000_000
# A task holds this many of the keys that it compares.
KEYS_OF_A_TASK = 500_000
_VERDICTS = columns_from_text({PLACE: "bigint", VERDICT: "string", GONE: "boolean"})
_OWN = columns_from_text(
    {"version": "bigint", "is_marked": "boolean", "partial": "boolean", PLACE: "bigint", SIDE: "tinyint"}
)


@dataclass(frozen=True)
class SparkMerge:
    """The engine in Spark, for one stream."""

    session: SparkSession
    writer: TableWriter
    schema: StreamSchema
    table: str

    def __post_init__(self) -> None:
        """Let the session's tasks call this package."""
        send_along(self.session, target_spark_lake)

    @property
    def _rows(self) -> PlacedRows:
        return PlacedRows(self.session, self.writer.run.storage, self.writer.scratch / "copies" / self.table)

    def resolve(self, contest: Contest) -> Verdicts:
        """What becomes of each row; the result is persisted, as it is read several times."""
        rules = contest.rules
        decisive, keys = contest.columns(rules.columns), contest.columns(rules.keys)
        shape = _contender_columns(rules, contest.types)
        rows = self._contenders(contest.brought, decisive, rules, RUN, shape)
        if contest.candidates:
            rows = rows.unionByName(self._contenders(contest.candidates, decisive, rules, TABLE, shape))
        if contest.present is not None:
            rows = rows.unionByName(self._contenders(contest.present, keys, rules, PRESENT, shape))
        count = sum(file.rows for file in (*contest.brought, *contest.candidates, *(contest.present or ())))
        by_key = _by_key(rows, key_names(rules), count)
        decided = by_key.mapInArrow(partial(_resolved, rules), spark_columns(_VERDICTS))
        decided = decided.persist(StorageLevel.MEMORY_AND_DISK)
        number = F.shiftright(PLACE, ROW_BITS).alias("number")
        with warnings.catch_warnings():
            # PySpark leaves the socket of a `collect` to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            sums = F.count("*").alias("rows"), F.count_if(GONE).alias("gone")
            counts = decided.groupBy(number, VERDICT).agg(*sums).collect()
        by_number: dict[int, dict[str, int]] = {}
        for row in counts:
            by_number.setdefault(row["number"], {})[row[VERDICT]] = row["rows"]
        return Verdicts(decided, by_number, sum(row["gone"] for row in counts))

    def _contenders(
        self, files: Sequence[PlacedFile], columns: Struct, rules: MergeRules, side: int, shape: Struct
    ) -> DataFrame:
        made = partial(_contending, rules, side, shape)
        return self._rows.read(files, columns).mapInArrow(made, spark_columns(shape))

    def undeleted(self, files: Sequence[PlacedFile]) -> int:
        """Number of rows that are not marked as deleted."""
        return int(self._rows.read(files, DELETED_AT_COLUMN).where(F.col(DELETED_AT).isNull()).count())

    def rewrite(self, rewrite: Rewrite, verdicts: Verdicts | None, rules: MergeRules) -> list[StagedFile]:
        """Stage new files."""
        rows = self._rows.read(rewrite.brought, rewrite.types)
        if verdicts is not None:
            rows = self._merged(rows, rewrite, verdicts, rules)
        return self.writer.rows(rows, rewrite.columns, self.schema, rewrite.name, rewrite.size)

    def release(self, verdicts: Verdicts) -> None:
        """Let the session forget the verdicts."""
        verdicts.rows.unpersist()

    def _merged(self, brought: DataFrame, rewrite: Rewrite, verdicts: Verdicts, rules: MergeRules) -> DataFrame:
        keys, read = rules.keys, self._rows
        if rewrite.foreign and rewrite.replaced:
            wanted = Struct.of({name: rewrite.types.types[name] for name in [*keys, *rewrite.foreign]})
            known = read.read(rewrite.replaced, wanted)
            fill = partial(filled_in, keys=keys, names=rewrite.foreign)
            brought = _completed(brought, known, keys, fill, sum(file.rows for file in rewrite.replaced))
        rows = read.read(rewrite.opened, rewrite.types).unionByName(brought)
        kept = rows.transform(_staying, verdicts, rewrite.marked_at)
        for lacking, before, complete in ((FILL, VALUES, completed), (DELETE, LAST_VALUES, last_values)):
            if count := verdicts.count(lacking):
                own, known = brought.transform(_judged, verdicts, lacking), rows.transform(_judged, verdicts, before)
                kept = kept.unionByName(_completed(own, known, keys, partial(complete, keys=keys), 2 * count))
        return kept


def _contender_columns(rules: MergeRules, types: Struct) -> Struct:
    cursors = {f"cursor{number}": types.types[name] for number, name in enumerate(rules.cursor)}
    keys = {name: types.types[key] for name, key in zip(key_names(rules), rules.keys, strict=True)}
    return Struct.of({**keys, **cursors, **_OWN.types})


def _contending(
    rules: MergeRules, side: int, shape: Struct, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from target_spark_lake.columns.arrow_columns import fitted

    for rows in batches:
        yield fitted(contenders(rows, rules, side), shape)


def _resolved(rules: MergeRules, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if found:
        yield from resolve(pa.Table.from_batches(found), rules).to_batches()


def _by_key(rows: DataFrame, keys: Sequence[str], count: int) -> DataFrame:
    """The rows in tasks that each have all rows of their keys."""
    tasks = max(1, -(-count // KEYS_OF_A_TASK))
    return rows.repartition(tasks, *map(column, keys))


def _completed(rows: DataFrame, before: DataFrame, keys: Sequence[str], complete: Complete, count: int) -> DataFrame:
    """Rows that take values from others of their keys, by a function of both."""
    known = before.withColumn(SIDE, F.lit(TABLE))
    both = rows.withColumn(SIDE, F.lit(RUN)).unionByName(known, allowMissingColumns=True)
    return _by_key(both, keys, count).mapInArrow(partial(_completing, complete, before.columns), rows.schema)


def _completing(
    complete: Complete, known: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    found = list(batches)
    if found:
        both = pa.Table.from_batches(found)
        side = both[SIDE]
        rows = both.filter(pc.equal(side, RUN)).drop_columns([SIDE])
        before = both.filter(pc.equal(side, TABLE)).select(list(known))
        yield from complete(rows, before).to_batches()


def _staying(rows: DataFrame, verdicts: Verdicts, marked_at: datetime) -> DataFrame:
    """The rows that stay, with the mark set on those with the verdict MARK."""
    known = rows.join(_sent(verdicts, verdicts.rows), PLACE, "left")
    stays = known.where(F.col(VERDICT).isNull() | (F.col(VERDICT) == MARK))
    mark = F.when(F.col(VERDICT) == MARK, F.lit(marked_at)).otherwise(F.col(DELETED_AT))
    return stays.withColumn(DELETED_AT, mark).drop(VERDICT)


def _judged(rows: DataFrame, verdicts: Verdicts, verdict: str) -> DataFrame:
    """The rows with this verdict."""
    return rows.join(_sent(verdicts, verdicts.rows.where(F.col(VERDICT) == verdict)), PLACE, "left_semi")


def _sent(verdicts: Verdicts, rows: DataFrame) -> DataFrame:
    verdict_rows = rows.select(PLACE, VERDICT)
    return F.broadcast(verdict_rows) if verdicts.count() <= BROADCAST_VERDICTS else verdict_rows
