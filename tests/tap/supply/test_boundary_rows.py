"""Fingerprints of rows at a boundary: those that version 0.1.0 took, whatever a row holds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap_spark_jdbc.extract.fingerprints import Look, fingerprint
from tap_spark_jdbc.plan.stream_sql import RowBoundary
from tap_spark_jdbc.supply.record_lines import BoundaryRows, _respelled, fingerprints

FOUND = Look(bookmark=True, upper=True, nulls=False)
# As `to_json` of Spark 4.1 on Java 17 printed them.
RECORDS: list[tuple[dict[str, tuple[pa.DataType, Any]], str]] = [
    (
        {
            "truth": (pa.bool_(), True),
            "long": (pa.int64(), -(2**63)),
            "money": (pa.decimal128(12, 2), Decimal("0.00")),
            "fine": (pa.decimal128(38, 20), Decimal("1E-20")),
            'te"xt\\\t\x1f\x7f é': (pa.string(), 'a"\\\n\x01é🔑'),
            "bytes": (pa.binary(), b"\x00\xff"),
        },
        '{"truth":true,"long":-9223372036854775808,"money":0.00,"fine":1E-20,'
        '"te\\"xt\\\\\\t\\u001F\x7f é":"a\\"\\\\\\n\\u0001é🔑","bytes":"AP8="}',
    ),
    (
        {
            "day": (pa.date32(), date(1, 1, 1)),
            "naive": (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59)),
            "aware": (pa.timestamp("us", "UTC"), datetime(2025, 1, 1, 0, 0, 0, 1, UTC)),
            "null": (pa.string(), None),
            "texts": (pa.list_(pa.string()), ["a", None]),
        },
        '{"day":"0001-01-01","naive":"9999-12-31T23:59:59.000000",'
        '"aware":"2025-01-01T00:00:00.000001Z",'
        '"null":null,'
        '"texts":["a",null]}',
    ),
    (
        {
            "zero": (pa.float64(), -0.0),
            "plain": (pa.float64(), 0.001),
            "below": (pa.float64(), 0.00099),
            "above": (pa.float64(), 1e7),
            "under": (pa.float64(), 9999999.5),
            "third": (pa.float64(), 1 / 3),
            "single": (pa.float32(), 0.1),
            "round": (pa.float32(), 1e10),
            "endless": (pa.float32(), float("-inf")),
            "list": (pa.list_(pa.float64()), [float("nan"), None, 123456789.0, 100.0]),
        },
        '{"zero":-0.0,"plain":0.001,"below":9.9E-4,"above":1.0E7,"under":9999999.5,'
        '"third":0.3333333333333333,"single":0.1,"round":1.0E10,"endless":"-Infinity",'
        '"list":["NaN",null,1.23456789E8,100.0]}',
    ),
]
# Numbers of which Java 17 prints more digits than they need, and their texts there and in Java 19.
OLDER = [
    (pa.float32(), 813694976.0, "8.1369498E8", "8.13695E8"),
    (pa.float32(), -65861419008.0, "-6.5861419E10", "-6.586142E10"),
    (pa.float64(), 22658735625207808.0, "2.2658735625207808E16", "2.265873562520781E16"),
    (pa.float64(), 1901890662754676480.0, "1.90189066275467648E18", "1.9018906627546765E18"),
]


@pytest.mark.parametrize(("values", "record"), RECORDS)
def test_fingerprints_match_version_0_1_0(
    values: dict[str, tuple[pa.DataType, Any]], record: str
) -> None:
    schema = pa.schema({name: kind for name, (kind, _) in values.items()})
    rows = pa.RecordBatch.from_pylist(
        [{name: value for name, (_, value) in values.items()}], schema
    )
    assert fingerprints(rows) == [fingerprint(record.encode())]


@pytest.mark.parametrize(("kind", "value", "older", "newer"), OLDER)
def test_row_is_known_by_either_spelling(
    kind: pa.DataType, value: float, older: str, newer: str
) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([value], kind)], ["n"])
    for text in (older, newer):
        sent = fingerprint(f'{{"n":{text}}}'.encode())
        found = BoundaryRows(FOUND, Counter([sent.hex()]))
        assert found.unsent(rows, boundaries(RowBoundary.BOOKMARK, 1)).num_rows == 0
        assert found.at_bookmark == [sent]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_respelled_number_keeps_its_value(value: float) -> None:
    text = _respelled(pa.array([value]).cast(pa.string())[0].as_py())
    assert (float(text), str(float(text))) == (value, str(value))
    assert "." in text


def test_as_many_equal_rows_are_skipped_as_sent() -> None:
    rows = pa.RecordBatch.from_pylist([{"long": 1}, {"long": 1}, {"long": 2}, {"long": 1}])
    first = BoundaryRows(FOUND, Counter())
    first.unsent(rows.slice(0, 3), boundaries(RowBoundary.UPPER, 3))

    second = BoundaryRows(FOUND, Counter(each.hex() for each in first.at_upper))
    left = second.unsent(rows, boundaries(RowBoundary.BOOKMARK, 4))

    assert left.to_pylist() == [{"long": 1}]
    assert len(second.at_bookmark) == 4
    assert second.unsent(rows, boundaries(RowBoundary.NONE, 4)) == rows


def test_only_rows_of_changed_buckets_are_read() -> None:
    rows = pa.RecordBatch.from_pylist([{"long": 1}, {"long": 2}, {"long": 3}])
    hashes = fingerprints(rows)
    look = Look(bookmark=True, upper=False, nulls=False, changed=frozenset([hashes[1][0]]))
    found = BoundaryRows(look, Counter())
    at = pa.array([int(RowBoundary.BOOKMARK)] * 2 + [int(RowBoundary.NONE)], pa.int32())
    assert found.unsent(rows, at).to_pylist() == [{"long": 2}, {"long": 3}]
    assert (found.found(3, 0).rows, found.at_bookmark) == (2, [hashes[1]])


def boundaries(boundary: RowBoundary, rows: int) -> pa.Array:
    return pa.array([int(boundary)] * rows, pa.int32())
