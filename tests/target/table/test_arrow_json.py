"""Rows of Parquet files as JSON: what a JSON parser reads back is what the file holds."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from target_spark_lake.table.arrow_columns import json_objects

MOMENT = datetime(2025, 1, 20, 15, 30, 0, 5, UTC)
VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.int64(), -(2**63), -(2**63)),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.float64(), 1e-300, 1e-300),
    (pa.float64(), 0.1 + 0.2, 0.1 + 0.2),
    (pa.float64(), math.nan, "NaN"),
    (pa.float32(), -math.inf, "-Infinity"),
    (pa.decimal128(38, 10), Decimal("0.0000000001"), Decimal("0.0000000001")),
    (pa.string(), 'a"b\\c\n\u2028\x00\x1fü🙂', 'a"b\\c\n\u2028\x00\x1fü🙂'),
    (pa.large_string(), "\\", "\\"),
    (pa.dictionary(pa.int8(), pa.string()), "x", "x"),
    (pa.binary(), b"\x00\xff", "AP8="),
    (pa.date32(), date(1, 1, 1), "0001-01-01"),
    (pa.timestamp("us"), datetime(2025, 1, 20, 15, 30, 0, 5), "2025-01-20T15:30:00.000005"),
    (
        pa.timestamp("ms", "Europe/Berlin"),
        MOMENT.replace(microsecond=0),
        "2025-01-20T15:30:00.000Z",
    ),
    (pa.timestamp("ns", "UTC"), MOMENT, "2025-01-20T15:30:00.000005Z"),
    (pa.time64("us"), time(1, 2, 3, 4), "01:02:03.000004"),
    (pa.null(), None, None),
    (pa.list_(pa.int8()), [1, None], [1, None]),
    (
        pa.struct([("a", pa.date32()), ("ü", pa.list_(pa.float64()))]),
        {"a": None, "ü": [math.inf]},
        None,
    ),
    (pa.map_(pa.string(), pa.int8()), [("k", 1)], [["k", 1]]),
]


@pytest.mark.parametrize(("kind", "value", "read"), VALUES, ids=lambda value: str(value)[:20])
def test_values_and_null_become_equivalent_json(kind: pa.DataType, value: Any, read: Any) -> None:
    expected = {"a": None, "ü": ["Infinity"]} if pa.types.is_struct(kind) else read
    name = 'col"\\ ü'
    rows = pa.RecordBatch.from_arrays([pa.array([value, None, value], kind)] * 2, [name, "other"])
    found = [json.loads(text, parse_float=Decimal) for text in json_objects(rows).to_pylist()]
    first, second, third = (each[name] for each in found)
    assert (float(first) if isinstance(read, float) else first) == expected
    assert (second, first) == (None, third)
    assert [list(each) for each in found] == [[name, "other"]] * 3


def test_no_rows_are_no_text() -> None:
    assert (
        json_objects(pa.RecordBatch.from_arrays([pa.array([], pa.string())], ["a"])).to_pylist()
        == []
    )
