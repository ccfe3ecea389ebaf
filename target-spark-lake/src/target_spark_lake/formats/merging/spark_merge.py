"""Merging in Spark: reads whole rows only from files in which some row changes."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, UNCHANGED
from target_spark_lake.columns.spark_columns import column
from target_spark_lake.formats.merging.contest import MARK, PLACE, VERDICT, Verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

LATEST = "_spark_lake_latest"
# Up to this many verdicts are broadcast to each task, which avoids sorting the rows they apply to.
BROADCAST_VERDICTS = 2_000_000


def staying(rows: DataFrame, verdicts: Verdicts, marked_at: datetime) -> DataFrame:
    """The rows that stay, with the mark set on those with the verdict MARK."""
    known = rows.join(_sent(verdicts, verdicts.rows), PLACE, "left")
    stays = known.where(F.col(VERDICT).isNull() | (F.col(VERDICT) == MARK))
    mark = F.when(F.col(VERDICT) == MARK, F.lit(marked_at)).otherwise(F.col(DELETED_AT))
    return stays.withColumn(DELETED_AT, mark).drop(VERDICT)


def judged(rows: DataFrame, verdicts: Verdicts, verdict: str) -> DataFrame:
    """The rows with this verdict."""
    return rows.join(_sent(verdicts, verdicts.rows.where(F.col(VERDICT) == verdict)), PLACE, "left_semi")


def last_values(deleted: DataFrame, before: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Deletes, filled from the newest earlier row of their key, since a tap often sends only the key."""
    same = reduce(and_, (column(name, "deleted") == column(name, "before") for name in keys))
    paired = deleted.alias("deleted").join(before.alias("before"), same, "left")
    own = {*keys, *METADATA_COLUMNS}
    return paired.select(
        *(
            column(name, "deleted").alias(name)
            if name in own
            else F.coalesce(column(name, "deleted"), column(name, "before")).alias(name)
            for name in deleted.columns
        )
    )


def completed(lacking: DataFrame, before: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows with unchanged columns, filled from the newest row of the key that has a value for them.

    A delete gets all values that it lacks.
    """
    names = [name for name in lacking.columns if name not in {*keys, *METADATA_COLUMNS, UNCHANGED, PLACE}]

    def lacks(name: str, side: str | None = None) -> Column:
        gaps = F.from_json(column(UNCHANGED, side), "array<string>")
        return F.coalesce(F.array_contains(gaps, name), F.lit(False))

    newest = (
        F.max_by(F.struct(column(name)), F.when(~lacks(name), F.col(PLACE))).alias(f"value{place}")
        for place, name in enumerate(names)
    )
    known = before.groupBy(*(column(key).alias(f"key{place}") for place, key in enumerate(keys))).agg(*newest)
    same = reduce(and_, (column(key, "rows") == F.col(f"known.key{place}") for place, key in enumerate(keys)))
    paired = lacking.alias("rows").join(known.alias("known"), same, "left")

    def value(name: str) -> Column:
        own = column(name, "rows")
        if name == UNCHANGED:
            return F.lit(None).cast("string")
        if name not in names:
            return own
        # By position, so that no user's column name becomes part of a path.
        theirs = F.col(f"known.value{names.index(name)}").getField(name)
        is_delete = F.col(f"rows.{DELETED_AT}").isNotNull()
        return F.when(lacks(name, "rows") | (is_delete & own.isNull()), theirs).otherwise(own)

    return paired.select(*(value(name).alias(name) for name in lacking.columns))


def filled_in(rows: DataFrame, known: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Fill columns that the run does not send (`names`) from the rows of the same keys, as other writers left them."""
    latest = known.groupBy(*map(column, keys)).agg(F.max_by(F.struct(*map(column, names)), PLACE).alias(LATEST))
    same = reduce(and_, (column(name, "rows") == column(name, "latest") for name in keys))
    paired = rows.alias("rows").join(latest.alias("latest"), same, "left")
    theirs = {name: F.col(f"latest.{LATEST}").getField(name) for name in names}
    return paired.select(*(theirs.get(name, column(name, "rows")).alias(name) for name in rows.columns))


def _sent(verdicts: Verdicts, rows: DataFrame) -> DataFrame:
    verdict_rows = rows.select(PLACE, VERDICT)
    return F.broadcast(verdict_rows) if verdicts.count() <= BROADCAST_VERDICTS else verdict_rows
