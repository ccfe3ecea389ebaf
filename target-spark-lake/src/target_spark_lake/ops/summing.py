"""Sums of checksums by bucket, computed for the source by the database itself, so that agreeing
buckets need not be read.

A bucket agrees if both sides have the same number of rows with the same sums, with or without the
rows that the lake need not have yet. Only the others are read and compared row by row, so if one
side prints a text differently that costs only time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.compared_source import NULL_TEXT, SEPARATOR, BucketSum, Part, SourceRows, Summing
from singer_spark.core.lake_type import STRING, LakeType, Scalar, Struct
from singer_spark.errors import SourceError
from target_spark_lake.ops.comparison import Comparison, Rows, slices_of
from target_spark_lake.table.arrow_columns import fitted

# Beyond this, everything is read, because the condition would cost more than it saves.
MOST_READ = 4096
_NAN = {"float": 0x7FC00000, "double": 0x7FF8000000000000}
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


@dataclass(frozen=True)
class _Sums:
    """Sums of a bucket's rows."""

    rows: int = 0
    high: int = 0
    low: int = 0

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(self.rows + other.rows, self.high + other.high, self.low + other.low)


def summed(rows: SourceRows, comparison: Comparison, lake: Rows) -> Summed | None:
    """Compare the sums of both sides.

    None if there are none or they save nothing, so that all rows must be read.
    """
    names = tuple(each.name for each in comparison.columns)
    if lacking := _unsummed(rows, comparison):
        logger.info(
            "stream %s: all rows are read, because there are no checksums of them: %s",
            rows.stream,
            lacking,
        )
        return None
    summing = Summing(names, comparison.keys, rows.buckets)
    try:
        source = rows.sums(summing)
    except SourceError as error:
        logger.warning(
            "stream %s: all rows are read, because the database made no checksums: %s",
            rows.stream,
            error,
        )
        return None
    even, newer, uneven, buckets = _judged(source, _of_lake(comparison, summing, lake))
    logger.info(
        "stream %s: by checksums made in the database %s rows agree, in %s of %s ranges of the "
            "key's hash",
        rows.stream, f"{even:,}", f"{buckets - len(uneven):,}", f"{buckets:,}",
    )  # fmt: skip
    if len(uneven) > MOST_READ:
        return None
    counts = {"source_rows": even, "lake_rows": even, "not_compared": newer}
    return Summed(counts, Part(summing, uneven) if uneven else None)


def in_part(part: Part, comparison: Comparison, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a table that belong to a part."""
    names = part.summing.keys or part.summing.columns
    buckets = _buckets(_hashes(rows, names, comparison), part.summing)
    return rows.filter(pc.is_in(pa.array(buckets, pa.int32()), pa.array(part.buckets, pa.int32())))


def value_text(values: pa.Array, kind: LakeType) -> pa.Array:
    """The text of each value of a type, within the text of its row."""
    name = kind.name if isinstance(kind, Scalar) else ""
    if name == "string":
        text = pc.binary_join_element_wise(pc.utf8_length(values).cast(pa.string()), values, ":")
    elif name == "boolean":
        text = values.cast(pa.int8()).cast(pa.string())
    elif name == "binary":
        text = pa.array(
            [None if each is None else each.hex() for each in values.to_pylist()], pa.string()
        )
    elif name in _NAN:
        whole = pa.int32() if name == "float" else pa.int64()
        text = pc.if_else(pc.is_nan(values), pa.scalar(_NAN[name], whole), values.view(whole)).cast(
            pa.string()
        )
    elif name in ("timestamp", "timestamp_ntz"):
        text = pc.replace_substring_regex(
            pc.strftime(values, format="%Y-%m-%d %H:%M:%S"), r"\.?0*$", ""
        )
    else:
        rows = pa.RecordBatch.from_arrays([values], ["value"])
        text = fitted(rows, Struct.of({"value": STRING})).column(0)
    return pc.fill_null(text, NULL_TEXT)


def _unsummed(rows: SourceRows, comparison: Comparison) -> str | None:
    """Why there are no sums; None if there are."""
    other = [
        each.name
        for each in comparison.columns
        if each.source != each.lake or not isinstance(each.lake, Scalar)
    ]
    if other:
        return (
            f"the database can't compute checksums of {', '.join(other)}, or the lake has another "
            "type for it"
        )
    return rows.unsummed([each.name for each in comparison.columns])


def _of_lake(comparison: Comparison, summing: Summing, lake: Rows) -> dict[int, _Sums]:
    """The sums of the table's current rows by bucket."""
    sums: dict[int, _Sums] = {}
    with comparison.current(_hashed(each, comparison, summing) for each in lake()) as current:
        for rows in current:
            grouped = rows.group_by("bucket").aggregate([("high", "list"), ("low", "list")])
            # Sums exceed 64 bits.
            for bucket, high, low in zip(
                *(each.to_pylist() for each in grouped.columns), strict=True
            ):
                sums[bucket] = sums.get(bucket, _Sums()) + _Sums(len(high), sum(high), sum(low))
    return sums


def _hashed(rows: pa.RecordBatch, comparison: Comparison, summing: Summing) -> pa.RecordBatch:
    hashes = _hashes(rows, summing.columns, comparison)
    of_group = _hashes(rows, summing.keys, comparison) if summing.keys else hashes
    groups = pa.array([each.hex() for each in of_group], pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "group": groups,
            "slice": slices_of(groups),
            "bucket": pa.array(_buckets(of_group, summing), pa.int32()),
            # The first 15 of 16 digits each.
            "high": pa.array([int.from_bytes(each[:8], "big") >> 4 for each in hashes], pa.int64()),
            "low": pa.array(
                [int.from_bytes(each[8:16], "big") >> 4 for each in hashes], pa.int64()
            ),
            **comparison.state(rows),
        }
    )


def _judged(
    source: list[BucketSum], lake: dict[int, _Sums]
) -> tuple[int, int, tuple[int, ...], int]:
    """The number of agreeing rows, the number of newer rows beside them, the buckets that don't
    agree, and the number of all buckets.
    """
    kept: dict[int, _Sums] = {}
    newer: dict[int, _Sums] = {}
    for each in source:
        sums = newer if each.newer else kept
        sums[each.bucket] = sums.get(each.bucket, _Sums()) + _Sums(each.rows, each.high, each.low)
    even = beside = 0
    uneven = []
    buckets = sorted({*kept, *newer, *lake})
    for bucket in buckets:
        ours, further, theirs = (sums.get(bucket, _Sums()) for sums in (kept, newer, lake))
        if theirs not in (ours, ours + further):
            uneven.append(bucket)
            continue
        even += theirs.rows
        beside += ours.rows + further.rows - theirs.rows
    return even, beside, tuple(uneven), len(buckets)


def _hashes(rows: pa.RecordBatch, names: tuple[str, ...], comparison: Comparison) -> list[bytes]:
    types = {each.name: each.lake for each in comparison.columns}
    texts = [value_text(rows.column(name), types[name]) for name in names]
    joined = pc.binary_join_element_wise(*texts, SEPARATOR).cast(pa.binary())
    return [sha256(each).digest() for each in joined.to_pylist()]


def _buckets(hashes: list[bytes], summing: Summing) -> list[int]:
    return [int.from_bytes(each[:2], "big") % summing.buckets for each in hashes]
