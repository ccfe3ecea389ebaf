"""Merging in Spark: reads whole rows only from files in which some row changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, UNCHANGED
from target_spark_lake.columns.spark_columns import column
from target_spark_lake.columns.staged_metadata import POSITION
from target_spark_lake.formats.merging.contest import MARK, PLACE, VERDICT, Verdicts

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

FILE = "_spark_lake_file"
# Up to this many verdicts are broadcast to each task, which avoids sorting the rows they apply to.
BROADCAST_VERDICTS = 2_000_000


def read_rows(
    session: SparkSession,
    files: Mapping[str, Sequence[tuple[int, int]]],
    columns: StructType,
    constants: Mapping[str, pa.Array],
    *,
    positioned: bool = False,
) -> DataFrame:
    """Read rows with their places.

    Args:
        session: A running session.
        files: URLs with (row, place) pairs: the place of the first row, and further ones where counting starts anew.
        columns: Columns to read; NULL if a file lacks one.
        constants: Further columns, with a single value for each file.
        positioned: Whether the rows carry their positions because they are out of order.
    """
    own = StructField(POSITION, LongType())
    schema = StructType([*columns.fields, own]) if positioned else columns
    rows = session.read.schema(schema).parquet(*map(_literally, files))
    position = column(POSITION) if positioned else F.col("_metadata.row_index")
    # Spark normalizes the URLs its own way, and reports the result.
    starts = {_plain(unquote(url)): url for url in rows.inputFiles()}
    spelled = [_plain(starts[_plain(url)]) for url in files]
    in_parts = any(len(places) > 1 for places in files.values())
    known = [
        [{"row": row, "place": place} for row, place in places] if in_parts else places[0][1]
        for places in files.values()
    ]
    # Sending an Arrow table needs no job.
    first = session.createDataFrame(pa.table({FILE: spelled, PLACE: known, **constants}))
    lost = F.raise_error(F.concat(F.lit("no place is known for "), FILE)).cast("bigint")
    return (
        rows.select(*map(column, columns.names), position.alias(POSITION), F.col("_metadata.file_path").alias(FILE))
        .join(F.broadcast(first), FILE, "left")
        .withColumn(PLACE, F.coalesce(_place_in_part() if in_parts else F.col(PLACE) + F.col(POSITION), lost))
        .select(*map(column, [*columns.names, *constants]), PLACE)
    )


def _place_in_part() -> Column:
    begun = F.filter(PLACE, lambda part: part["row"] <= F.col(POSITION))
    return F.element_at(begun, -1)["place"] + F.col(POSITION) - F.element_at(begun, -1)["row"]


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
    latest = known.groupBy(*map(column, keys)).agg(F.max_by(F.struct(*map(column, names)), PLACE).alias(FILE))
    same = reduce(and_, (column(name, "rows") == column(name, "latest") for name in keys))
    paired = rows.alias("rows").join(latest.alias("latest"), same, "left")
    theirs = {name: F.col(f"latest.{FILE}").getField(name) for name in names}
    return paired.select(*(theirs.get(name, column(name, "rows")).alias(name) for name in rows.columns))


def _sent(verdicts: Verdicts, rows: DataFrame) -> DataFrame:
    verdict_rows = rows.select(PLACE, VERDICT)
    return F.broadcast(verdict_rows) if verdicts.count() <= BROADCAST_VERDICTS else verdict_rows


def _plain(url: str) -> str:
    return re.sub("^file:/+", "file:/", url)


def _literally(url: str) -> str:
    """A URL with glob characters escaped."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", url)
