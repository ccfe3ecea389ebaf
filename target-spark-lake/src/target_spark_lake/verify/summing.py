"""Sums of checksums by bucket, made for the source by the database itself: agreeing buckets need not be read.

A bucket agrees if both sides have the same number of rows with the same sums, with or without the rows that the lake
need not have yet. Only the others are read and compared row by row, so if one side prints a text differently that
costs only time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from singer_spark.compared_source import (
    BUCKET,
    BUCKET_DIGITS,
    HALVES,
    HIGH,
    LOW,
    NEWER,
    NULL_TEXT,
    ROWS,
    SEPARATOR,
    Part,
    ReadAgainError,
    Summing,
)
from singer_spark.errors import SourceError
from singer_spark.singer.lake_type import Scalar
from target_spark_lake.columns.spark_columns import column
from target_spark_lake.verify.comparison import Comparison, collected

if TYPE_CHECKING:
    from singer_spark.compared_source import SourceRows

# Beyond this, everything is read: the condition would cost more than it saves.
MOST_READ = 4096
_BITS = {"float": ("Float", "floatToIntBits"), "double": ("Double", "doubleToLongBits")}
# Halves are split once more, since a sum of all of them would exceed 64 bits.
_LOW_BITS = 30
_OF_SOURCE = ("kept", f"IF({NEWER} = 0, {{}}, 0)"), ("all", "{}")
logger = logging.getLogger("spark-lake")


@dataclass(frozen=True)
class Summed:
    """The result of comparing the sums.

    Attributes:
        counts: Rows of the agreeing buckets, as in `comparison.Found`.
        part: The rows of the other buckets; None if all agree.
    """

    counts: Mapping[str, int]
    part: Part | None


def summed(rows: SourceRows, comparison: Comparison, lake: DataFrame) -> Summed | None:
    """Compare the sums of both sides; None if there are none or they save nothing, so that all rows must be read."""
    names = tuple(each.name for each in comparison.columns)
    if lacking := _unsummed(rows, comparison):
        logger.info("stream %s: all rows are read, for there are no checksums of them: %s", rows.stream, lacking)
        return None
    summing = Summing(names, comparison.keys, rows.buckets)
    try:
        with rows.source_errors():
            (found,) = collected(_judged(rows.sums(summing), _of_lake(comparison, summing, lake)))
    except (ReadAgainError, SourceError) as error:
        logger.warning("stream %s: all rows are read, for the database made no checksums: %s", rows.stream, error)
        return None
    uneven = tuple(sorted(found["uneven"]))
    logger.info(
        "stream %s: by checksums made in the database %s rows agree, in %s of %s ranges of the key's hash",
        rows.stream, f"{found['even'] or 0:,}", f"{found['buckets'] - len(uneven):,}", f"{found['buckets']:,}",
    )  # fmt: skip
    if len(uneven) > MOST_READ:
        return None
    even = found["even"] or 0
    counts = {"source_rows": even, "lake_rows": even, "not_compared": found["newer"] or 0}
    return Summed(counts, Part(summing, uneven) if uneven else None)


def in_part(part: Part, lake: DataFrame) -> DataFrame:
    """The rows of a table that belong to a part."""
    types = dict(lake.dtypes)
    names = part.summing.keys or part.summing.columns
    hashed = F.sha2(_joined([value_text(column(name), types[name]) for name in names]), 256)
    return lake.where(_bucket(hashed, part.summing).isin(*part.buckets))


def value_text(value: Column, kind: str) -> Column:
    """The text of a value, given its Spark type, within the text of its row."""
    if kind == "string":
        text = F.concat(F.char_length(value), F.lit(":"), value)
    elif kind == "boolean":
        text = value.cast("int").cast("string")
    elif kind == "binary":
        text = F.lower(F.hex(value))
    elif kind in _BITS:
        name, bits = _BITS[kind]
        text = F.when(value.isNotNull(), F.java_method(F.lit(f"java.lang.{name}"), F.lit(bits), value))
    else:
        text = value.cast("string")
    return F.coalesce(text, F.lit(NULL_TEXT))


def _unsummed(rows: SourceRows, comparison: Comparison) -> str | None:
    """Why there are no sums; None if there are."""
    other = [each.name for each in comparison.columns if each.source != each.lake or not isinstance(each.lake, Scalar)]
    if other:
        return f"{', '.join(other)} can't be summed up there, or is of another type in the lake"
    return rows.unsummed([each.name for each in comparison.columns])


def _of_lake(comparison: Comparison, summing: Summing, lake: DataFrame) -> DataFrame:
    """The sums of the table's rows by `BUCKET`."""
    types = {each.name: str(each.lake) for each in comparison.columns}

    def texts(names: tuple[str, ...], of: str | None = None) -> Column:
        return F.sha2(_joined([value_text(column(name, of), types[name]) for name in names]), 256)

    rows = comparison.lake_rows(lake, lambda row: texts(summing.columns, row))
    keys = [value_text(column(group), types[name]) for group, name in zip(comparison.group, summing.keys, strict=False)]
    hashed = F.sha2(_joined(keys), 256) if keys else F.col("checksum")
    halves = [_digits(F.col("checksum"), *half).alias(name) for half, name in zip(HALVES, (HIGH, LOW), strict=True)]
    return (
        rows.select(_bucket(hashed, summing).alias(BUCKET), *halves)
        .groupBy(BUCKET)
        .agg(F.count(F.lit(1)).alias(ROWS), *(_sum_of_halves(name).alias(name) for name in (HIGH, LOW)))
    )


def _judged(source: DataFrame, lake: DataFrame) -> DataFrame:
    """One row: the number of agreeing rows, of newer rows beside them, and the buckets that don't agree."""
    values = (ROWS, HIGH, LOW)
    ours = source.groupBy(BUCKET).agg(
        *(F.expr(f"sum({which.format(each)}) AS {each}_{name}") for name, which in _OF_SOURCE for each in values)
    )
    both = ours.join(lake, BUCKET, "full_outer")
    none = F.lit(0)
    both = both.select(BUCKET, *(F.coalesce(F.col(each), none).alias(each) for each in both.columns if each != BUCKET))
    agrees = {name: " AND ".join(f"{each}_{name} = {each}" for each in values) for name, _ in _OF_SOURCE}
    is_even = f"({agrees['all']}) OR ({agrees['kept']})"
    return both.agg(
        F.expr(f"sum(IF({is_even}, {ROWS}, 0)) AS even"),
        F.expr(f"sum(IF({is_even}, {ROWS}_all - {ROWS}, 0)) AS newer"),
        F.expr(f"collect_list(IF({is_even}, NULL, {BUCKET})) AS uneven"),
        F.expr("count(*) AS buckets"),
    )


def _joined(texts: list[Column]) -> Column:
    return F.concat_ws(SEPARATOR, *texts)


def _digits(hashed: Column, start: int, count: int) -> Column:
    return F.conv(F.substring(hashed, start, count), 16, 10).cast("bigint")


def _bucket(hashed: Column, summing: Summing) -> Column:
    return (_digits(hashed, *BUCKET_DIGITS) % summing.buckets).cast("int")


def _sum_of_halves(name: str) -> Column:
    high = f"CAST(sum(shiftright({name}, {_LOW_BITS})) AS DECIMAL(38,0)) * {1 << _LOW_BITS}"
    return F.expr(f"CAST({high} + sum({name} & {(1 << _LOW_BITS) - 1}) AS DECIMAL(38,0))")
