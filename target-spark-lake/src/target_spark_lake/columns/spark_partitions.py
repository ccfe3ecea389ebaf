"""Writes rows into hive folders by Spark, with exactly the names that `partitioning` defines."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from target_spark_lake.columns.partitioning import (
    BUCKET,
    ESCAPED,
    HIDDEN,
    LONGEST_FOLDER,
    NULL_VALUE,
    TRUNCATE,
    UNDERFLOW,
    UNHOLDABLE,
    Part,
    Partitioning,
    escaped,
    least_truncated,
)
from target_spark_lake.columns.spark_bucket import bucketed, truncated
from target_spark_lake.columns.spark_columns import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Of a row group, compressed. A merge decodes and writes every row group with a changed row, and copies the others.
_ROW_GROUPS = {"parquet.block.size": str(1 << 24), "parquet.block.row.count.limit": str(1 << 20)}
_PATTERNS = {"year": "yyyy", "month": "yyyy-MM", "day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}


def write_parquet(rows: DataFrame, url: str, codec: str, partitioning: Partitioning | None, files: int = 0) -> None:
    """Write rows as Parquet.

    Args:
        rows: The rows; those of a partitioned table have all of its columns.
        url: A folder that does not exist yet.
        codec: Parquet codec.
        partitioning: The table's hive folders; None if it has none. A value that can't be a folder name is written as
            `UNHOLDABLE`: whoever lists the result must call `Partitioning.check_written`.
        files: Approximate number of files; 0 for one per task.
    """
    options = {"compression": codec, **_ROW_GROUPS}
    if partitioning is None:
        whole = rows.coalesce(files) if files else rows
        whole.write.options(**options).parquet(url)
        return
    types = dict(rows.dtypes)
    foldered = rows.withColumns({part.name: _folder_text(part, types[part.column]) for part in partitioning.parts})
    names = [part.name for part in partitioning.parts]
    if files:
        # All rows of a folder go to one task, which writes them into one file.
        foldered = foldered.repartition(files, *map(column, names))
    foldered.write.options(**options).partitionBy(*names).parquet(url)


def _folder_text(part: Part, kind: str) -> Column:
    text = _text(part, kind)
    holdable = F.when(_is_unholdable(part, text), F.lit(UNHOLDABLE)).otherwise(text)
    if part.unit != TRUNCATE or kind == "string":
        return holdable
    return F.when(column(part.column) < least_truncated(kind, part.argument), F.lit(UNDERFLOW)).otherwise(holdable)


def _text(part: Part, kind: str) -> Column:
    value = column(part.column)
    if part.unit in HIDDEN:
        return (bucketed if part.unit == BUCKET else truncated)(value, kind, part.argument).cast("string")
    # Instants are formatted in the session's zone, which is always UTC.
    return value.cast("string") if part.unit is None else F.date_format(value, _PATTERNS[part.unit])


def _is_unholdable(part: Part, text: Column) -> Column:
    room = LONGEST_FOLDER - len(f"{escaped(part.name)}=".encode())
    long = F.octet_length(F.regexp_replace(text, F.lit(ESCAPED), F.lit("%00"))) > room
    return F.coalesce(
        reduce(
            or_,
            (
                text == "",
                text == NULL_VALUE,
                text == UNHOLDABLE,
                text == UNDERFLOW,
                F.contains(text, F.lit("\0")),
                long,
            ),
        ),
        F.lit(False),
    )
