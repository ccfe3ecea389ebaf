"""Fingerprints of rows that the columnar driver gives: those that Spark takes, whatever a row holds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tap_spark_jdbc.columnar import edge_rows
from tap_spark_jdbc.columnar.columnar_query import CrowdedError
from tap_spark_jdbc.columnar.edge_rows import EdgeRows
from tap_spark_jdbc.extraction.fingerprints import Look
from tap_spark_jdbc.plan.stream_sql import Edge
from tap_spark_jdbc.verify.compared_reader import JSON_OPTIONS, fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PostgreSQL's texts hold any character but NUL.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SINGLE = st.floats(width=32)
KINDS = {
    "truth": (pa.bool_(), st.booleans()),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "whole": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (pa.float32(), SINGLE),
    "double": (pa.float64(), st.floats()),
    "money": (pa.decimal128(12, 2), st.decimals(-(10**10) + 1, 10**10 - 1, places=2)),
    "fine": (pa.decimal128(38, 20), st.decimals(-(10**18) + 1, 10**18 - 1, places=20)),
    'te"xt\\\t\x1f\x7f é': (pa.string(), TEXTS),
    "bytes": (pa.binary(), st.binary()),
    "day": (pa.date32(), st.dates()),
    "naive": (pa.timestamp("us"), st.datetimes()),
    "aware": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "truths": (pa.list_(pa.bool_()), st.lists(st.none() | st.booleans(), max_size=3)),
    "longs": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3)),
    "singles": (pa.list_(pa.float32()), st.lists(st.none() | SINGLE, max_size=3)),
    "doubles": (pa.list_(pa.float64()), st.lists(st.none() | st.floats(), max_size=3)),
    "texts": (pa.list_(pa.string()), st.lists(st.none() | TEXTS, max_size=3)),
}
SCHEMA = pa.schema({name: kind for name, (kind, _) in KINDS.items()})
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | value for name, (_, value) in KINDS.items()}), min_size=1)
NOTHING: dict[str, Any] = dict.fromkeys(KINDS)
RIMS = [
    NOTHING | {"single": 0.1, "double": -0.0, "money": Decimal("0.00"), "fine": Decimal("1E-20"), "day": date(1, 1, 1)},
    NOTHING | {"single": 1e10, "double": 5e-324, "fine": Decimal("0E-20"), "naive": datetime(9999, 12, 31, 23, 59, 59)},
    NOTHING | {"double": 1e7, "single": float("inf"), "doubles": [float("nan"), float("-inf"), 1e-3, 123456789.0]},
]
FOUND = Look(bookmark=True, upper=True, nulls=False)


@given(rows=ROWS)
@example(rows=RIMS)
@settings(max_examples=25, suppress_health_check=[*HealthCheck])
def test_a_row_has_the_fingerprint_that_spark_takes_of_it(
    spark: SparkSession, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    pq.write_table(table, tmp_path / "rows.parquet", store_schema=False)
    record = F.to_json(F.struct(*(F.col(f"`{name}`") for name in SCHEMA.names)), JSON_OPTIONS)
    hashed = spark.read.parquet(str(tmp_path / "rows.parquet")).select(fingerprint(record).alias("hash"))
    hashed.write.mode("overwrite").parquet(str(tmp_path / "hashes"))
    by_spark = pq.read_table(tmp_path / "hashes")["hash"].to_pylist()

    found = EdgeRows(FOUND, Counter(), java_number(spark))
    found.unsent(table.combine_chunks().to_batches()[0], edges(Edge.UPPER, len(rows)))

    assert [each.hex() for each in found.at_upper] == by_spark


def test_of_equal_rows_as_many_are_left_out_as_were_sent(spark: SparkSession) -> None:
    rows = pa.RecordBatch.from_pylist([{"long": 1}, {"long": 1}, {"long": 2}, {"long": 1}])
    first = EdgeRows(FOUND, Counter(), java_number(spark))
    first.unsent(rows.slice(0, 3), edges(Edge.UPPER, 3))

    second = EdgeRows(FOUND, Counter(each.hex() for each in first.at_upper), java_number(spark))
    left = second.unsent(rows, edges(Edge.BOOKMARK, 4))

    assert left.to_pylist() == [{"long": 1}]
    assert len(second.at_bookmark) == 4
    assert second.unsent(rows, edges(Edge.NONE, 4)) == rows


def test_more_rows_at_an_edge_than_java_should_print_one_by_one_are_left_to_jdbc(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_rows, "MOST_ROWS", 5)
    found = EdgeRows(FOUND, Counter(), java_number(spark))
    whole, rows = (pa.RecordBatch.from_pylist([{"v": value}] * 3) for value in (1, 1.5))
    found.unsent(whole, edges(Edge.UPPER, 3))
    found.unsent(whole, edges(Edge.UPPER, 3))
    with pytest.raises(CrowdedError):
        found.unsent(rows, edges(Edge.BOOKMARK, 3))
    found = EdgeRows(FOUND, Counter(), java_number(spark))
    found.unsent(rows, edges(Edge.UPPER, 3))
    with pytest.raises(CrowdedError):
        found.unsent(rows, edges(Edge.BOOKMARK, 3))


def edges(edge: Edge, rows: int) -> pa.Array:
    return pa.array([int(edge)] * rows, pa.int32())


def java_number(spark: SparkSession) -> Any:
    java = spark.sparkContext._gateway.jvm.java.lang
    return lambda value, single: (java.Float if single else java.Double).toString(value)
