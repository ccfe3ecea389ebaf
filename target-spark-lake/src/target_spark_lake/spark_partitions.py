"""Rows written into hive folders by Spark, under the very names that `partitioning` gives."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from target_spark_lake.partitioning import ESCAPED, LONGEST_FOLDER, NULL_VALUE, Part, Partitioning, escaped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PATTERNS = {"year": "yyyy", "month": "yyyy-MM", "day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}


def write_parquet(rows: DataFrame, url: str, codec: str, partitioning: Partitioning | None, files: int = 0) -> None:
    """Writes rows as Parquet.

    Args:
        rows: The rows; those of a partitioned table have all of its columns.
        url: A folder that is not there yet.
        codec: Of Parquet.
        partitioning: Of the table; None where it has no hive folders.
        files: About how many files are wanted; 0: as many as there are tasks.

    Raises:
        RecordError: a value can't be the name of a folder; files are written nevertheless.
    """
    if partitioning is None:
        whole = rows.coalesce(files) if files else rows
        whole.write.option("compression", codec).parquet(url)
        return
    from pyspark.sql import Observation

    counted, names = Observation(), [part.name for part in partitioning.parts]
    texts = {part.name: _text(part) for part in partitioning.parts}
    unholdable = {name: _is_unholdable(part, texts[name]) for name, part in zip(names, partitioning.parts, strict=True)}
    counts = [F.count_if(each).alias(f"level{number}") for number, each in enumerate(unholdable.values())]
    judged = rows.observe(counted, *counts)
    # A value that fails the run anyhow must not fail it in the middle of Spark.
    safe = {name: F.when(~unholdable[name], text) for name, text in texts.items()}
    told = judged.withColumns(safe)
    if files:
        # All rows of a folder in one task, which writes them into one file.
        told = told.repartition(files, *(_quoted(name) for name in names))
    told.write.option("compression", codec).partitionBy(*names).parquet(url)
    found = counted.get
    for number, part in enumerate(partitioning.parts):
        if found[f"level{number}"]:
            raise partitioning.unholdable(part.column)


def _text(part: Part) -> Column:
    column = _quoted(part.column)
    # Instants are formatted in the session's zone, which is UTC whatever the machine's is.
    return column.cast("string") if part.unit is None else F.date_format(column, _PATTERNS[part.unit])


def _is_unholdable(part: Part, text: Column) -> Column:
    room = LONGEST_FOLDER - len(f"{escaped(part.name)}=".encode())
    long = F.octet_length(F.regexp_replace(text, F.lit(ESCAPED), F.lit("%00"))) > room
    return F.coalesce(reduce(or_, (text == "", text == NULL_VALUE, F.contains(text, F.lit("\0")), long)), F.lit(False))


def _quoted(name: str) -> Column:
    escaped_name = name.replace("`", "``")
    return F.col(f"`{escaped_name}`")
