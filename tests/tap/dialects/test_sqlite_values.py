"""SQLite's columns hold anything: each value is read exactly as its column's type, or is a loud
error.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tap.opened import discovered, read
from tap_spark_jdbc.dialects import overridden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark_jdbc.dialects.tables import Table

MISFITS: dict[str, list[Any]] = {
    "integer": ["abc", 1.5, b"12", ""],
    "real": ["abc", b"1.5"],
    "decimal(10,2)": [12.345, "abc", 123456789, b"1"],
    "numeric": [b"1"],
    "boolean": [2, "maybe", 0.5],
    "text": [b"bytes"],
    "blob": ["text", 5],
    "date": ["2025-02-30", "2025-01-20 10:00", 1737331200, "20/01/2025"],
    "datetime": [
        "2025-01-20 15:30:00.1234567",
        "2025-01-20 25:00:00",
        1737331200000,
        "2025-01-20 15:30:00+02",
    ],
}


class Source:
    """One table t (id, v) in a file."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = path
        self.config = {"jdbc_url": f"jdbc:sqlite:{path}"}

    def fill(self, declared: str, values: list[Any]) -> None:
        self.path.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute(f"create table t (id integer primary key, v {declared})")
            connection.executemany("insert into t (v) values (?)", [(value,) for value in values])
            connection.commit()

    def table(self) -> Table:
        return discovered(self.spark, self.config)["t"]

    def values(self, override: str | None = None) -> list[Any]:
        table = self.table()
        column = table.column("v")
        column = column if override is None else overridden(column, override)
        return [row[0] for row in read(self.spark, self.config, table, column, order="id")]


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path / "source.db")


@pytest.mark.parametrize("declared", MISFITS)
def test_unfit_value_is_an_error_with_a_way_out(source: Source, declared: str) -> None:
    """A value that does not fit is an error that names column, value and way out."""
    source.fill(declared, [])
    table = source.table()
    for value in MISFITS[declared]:
        source.fill(declared, [value])
        with pytest.raises(Exception, match="column v") as caught:
            read(source.spark, source.config, table, table.column("v"), order="id")
        said = str(caught.value)
        assert f"column v ({declared}) holds a value that is not a valid ".lower() in said.lower()
        assert "type_overrides" in said
        if isinstance(value, int | float | str):
            assert str(value) in said


def test_text_override_reads_any_value(source: Source) -> None:
    source.fill("integer", ["abc", 5, 1.5, b"\x01", None])
    assert source.values("text") == ["abc", "5", "1.5", "01", None]


def test_override_reads_datetime_seconds_as_numbers(source: Source) -> None:
    """An override reads the seconds of a datetime column as numbers."""
    source.fill("datetime", [1737331200, None])
    assert source.values("bigint") == [1737331200, None]


def test_value_resembling_sql_stays_unchanged(source: Source) -> None:
    hostile = "'); drop table t; --"
    source.fill("text", [hostile, "{c}", "{complaint}", "\\'"])
    assert source.values() == [hostile, "{c}", "{complaint}", "\\'"]
    source.fill("integer", [hostile])
    with pytest.raises(Exception, match="column v") as caught:
        source.values()
    assert "drop table t" in str(caught.value)
    assert source.values("text") == [hostile]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(numbers=st.lists(st.floats(allow_nan=False), min_size=50, max_size=200))
def test_every_double_survives(source: Source, numbers: list[float]) -> None:
    source.fill("real", numbers)
    with closing(sqlite3.connect(source.path)) as connection:
        # SQLite keeps no negative zero.
        kept = [repr(value) for (value,) in connection.execute("select v from t order by id")]
    assert [repr(value) for value in source.values()] == kept


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cents=st.lists(st.integers(-(10**14), 10**14), min_size=50, max_size=200))
def test_decimals_up_to_fifteen_digits_survive(source: Source, cents: list[int]) -> None:
    amounts = [Decimal(each).scaleb(-2) for each in cents]
    source.fill("decimal(20,2)", [float(amount) for amount in amounts])
    assert source.values() == amounts
