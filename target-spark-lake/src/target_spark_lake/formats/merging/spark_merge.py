"""Merging in Spark: whole rows of those files alone in which the contest found a row that does not stay as it is."""

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
from target_spark_lake.formats.merging.contest import MARK, PLACE, VERDICT, Step, Verdicts

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

FILE = "_spark_lake_file"
# So many verdicts are sent to each task, which spares sorting the rows that they are about.
BROADCAST_VERDICTS = 2_000_000


def read_rows(
    session: SparkSession,
    files: Mapping[str, Sequence[tuple[int, int]]],
    columns: StructType,
    said: Mapping[str, pa.Array],
    *,
    positioned: bool = False,
) -> DataFrame:
    """Reads rows with their places.

    Args:
        session: A running session.
        files: URLs with the places of rows, of the first one and of others from which it does not count on.
        columns: Those to read; NULL where a file lacks one.
        said: Further columns, with the one value that each of the files has.
        positioned: The rows say their positions, for they do not lie in their order.
    """
    own = StructField(POSITION, LongType())
    schema = StructType([*columns.fields, own]) if positioned else columns
    rows = session.read.schema(schema).parquet(*map(_literally, files))
    position = column(POSITION) if positioned else F.col("_metadata.row_index")
    # Spark spells the URLs in a way of its own, and tells it.
    starts = {_plain(unquote(url)): url for url in rows.inputFiles()}
    spelled = [_plain(starts[_plain(url)]) for url in files]
    in_parts = any(len(places) > 1 for places in files.values())
    known = [
        [{"row": row, "place": place} for row, place in places] if in_parts else places[0][1]
        for places in files.values()
    ]
    # An Arrow table needs no job of its own to be sent.
    first = session.createDataFrame(pa.table({FILE: spelled, PLACE: known, **said}))
    lost = F.raise_error(F.concat(F.lit("no place is known for "), FILE)).cast("bigint")
    return (
        rows.select(*map(column, columns.names), position.alias(POSITION), F.col("_metadata.file_path").alias(FILE))
        .join(F.broadcast(first), FILE, "left")
        .withColumn(PLACE, F.coalesce(_place_in_part() if in_parts else F.col(PLACE) + F.col(POSITION), lost))
        .select(*map(column, [*columns.names, *said]), PLACE)
    )


def _place_in_part() -> Column:
    begun = F.filter(PLACE, lambda part: part["row"] <= F.col(POSITION))
    return F.element_at(begun, -1)["place"] + F.col(POSITION) - F.element_at(begun, -1)["row"]


def staying(verdicts: Verdicts, marked_at: datetime) -> Step:
    """The rows that stay, those with the verdict MARK with this mark."""

    def step(rows: DataFrame) -> DataFrame:
        known = rows.join(_sent(verdicts, verdicts.rows), PLACE, "left")
        stays = known.where(F.col(VERDICT).isNull() | (F.col(VERDICT) == MARK))
        mark = F.when(F.col(VERDICT) == MARK, F.lit(marked_at)).otherwise(F.col(DELETED_AT))
        return stays.withColumn(DELETED_AT, mark).drop(VERDICT)

    return step


def judged(verdicts: Verdicts, verdict: str) -> Step:
    """The rows that have this verdict."""
    chosen = verdicts.rows.where(F.col(VERDICT) == verdict)
    return lambda rows: rows.join(_sent(verdicts, chosen), PLACE, "left_semi")


def last_values(deleted: DataFrame, before: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Rows that say a key is deleted, filled from its newest row before: a tap often sends the key alone."""
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
    """Rows that name columns whose values did not change, with these from the newest row of the key that has them.

    Of a row that says that its key is deleted, all values that it lacks.
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
        # By its place: no name of the user's is a part of a path here.
        theirs = F.col(f"known.value{names.index(name)}").getField(name)
        is_delete = F.col(f"rows.{DELETED_AT}").isNotNull()
        return F.when(lacks(name, "rows") | (is_delete & own.isNull()), theirs).otherwise(own)

    return paired.select(*(value(name).alias(name) for name in lacking.columns))


def filled_in(known: DataFrame, keys: Sequence[str], names: Sequence[str]) -> Step:
    """Rows with what others wrote beside the row of their key, in columns (`names`) that the run does not send."""
    latest = known.groupBy(*map(column, keys)).agg(F.max_by(F.struct(*map(column, names)), PLACE).alias(FILE))

    def step(rows: DataFrame) -> DataFrame:
        same = reduce(and_, (column(name, "rows") == column(name, "latest") for name in keys))
        paired = rows.alias("rows").join(latest.alias("latest"), same, "left")
        theirs = {name: F.col(f"latest.{FILE}").getField(name) for name in names}
        return paired.select(*(theirs.get(name, column(name, "rows")).alias(name) for name in rows.columns))

    return step


def _sent(verdicts: Verdicts, rows: DataFrame) -> DataFrame:
    told = rows.select(PLACE, VERDICT)
    return F.broadcast(told) if verdicts.count() <= BROADCAST_VERDICTS else told


def _plain(url: str) -> str:
    return re.sub("^file:/+", "file:/", url)


def _literally(url: str) -> str:
    """A URL in which nothing stands for other names."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", url)
