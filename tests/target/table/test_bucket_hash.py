"""Buckets and beginnings are those that Iceberg's readers compute."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import (
    DateType,
    IcebergType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from singer_spark.core.arrow_schema import arrow_type
from singer_spark.core.lake_type import Scalar
from target_spark_lake.stage import arrow_staging

RANDOM = random.Random(7)
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "ü",
    "日本語",
    "🙂🙂",
    "x" * 31,
    *(str(RANDOM.random()) for _ in range(30)),
    None,
]
NUMBERS = [
    0,
    1,
    -1,
    -11,
    10**12,
    -(2**63),
    2**63 - 1,
    *(RANDOM.randrange(-(2**40), 2**40) for _ in range(30)),
    None,
]
MOMENTS = [
    datetime(1, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2026, 11, 24, 9, 8, 7, 654321),
    None,
]
CASES: list[tuple[str, IcebergType, list[Any]]] = [
    ("string", StringType(), TEXTS),
    ("bigint", LongType(), NUMBERS),
    ("date", DateType(), [None if each is None else each.date() for each in MOMENTS]),
    ("timestamp_ntz", TimestampType(), MOMENTS),
    (
        "timestamp",
        TimestamptzType(),
        [None if each is None else each.replace(tzinfo=UTC) for each in MOMENTS],
    ),
]


def as_iceberg(value: Any) -> Any:
    """As PyIceberg's own values are."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - datetime(1970, 1, 1)) // (datetime.resolution)
    return value.toordinal() - date(1970, 1, 1).toordinal() if isinstance(value, date) else value


@pytest.mark.parametrize(("kind", "iceberg", "values"), CASES, ids=[case[0] for case in CASES])
def test_buckets_are_iceberg_s(kind: str, iceberg: IcebergType, values: list[Any]) -> None:
    array = pa.array(values, arrow_type(Scalar(kind)))
    wanted = [BucketTransform(17).transform(iceberg)(as_iceberg(each)) for each in values]
    assert arrow_staging.bucketed(array, 17).to_pylist() == wanted


@pytest.mark.parametrize(("kind", "iceberg", "values"), CASES[:2], ids=["string", "bigint"])
def test_beginnings_are_iceberg_s(kind: str, iceberg: IcebergType, values: list[Any]) -> None:
    values = [each for each in values if each != -(2**63)]  # below it there is no multiple of 3
    array = pa.array(values, arrow_type(Scalar(kind)))
    wanted = [TruncateTransform(3).transform(iceberg)(each) for each in values]
    assert arrow_staging.truncated(array, 3).to_pylist() == wanted
