"""Derby's types at their extremes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tap.opened import connected, discovered, read
from tap_spark_jdbc.dialects import overridden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES: dict[str, list[tuple[str, Any]]] = {
    "boolean": [("true", True)],
    "smallint": [("-32768", -32768)],
    "integer": [("2147483647", 2147483647)],
    "bigint": [("-9223372036854775808", -(2**63))],
    "double": [("0.1", 0.1), ("1.7976931348623157E308", 1.7976931348623157e308)],
    "decimal(31,5)": [("99999999999999999999999999.99999", Decimal("9" * 26 + ".99999"))],
    "char(5)": [("'ab'", "ab   ")],
    "varchar(20)": [("'日本語 😀'", "日本語 😀"), ("''", "")],
    "clob": [("'it''s'", "it's")],
    "date": [
        ("'0001-01-01'", dt.date(1, 1, 1)),
        ("'1500-02-28'", dt.date(1500, 2, 28)),
        ("'9999-12-31'", dt.date(9999, 12, 31)),
    ],
    "time": [("'23:59:59'", "23:59:59")],
    "timestamp": [
        ("'0001-01-01 00:00:00.000001'", dt.datetime(1, 1, 1, 0, 0, 0, 1)),
        ("'1500-02-28 02:30:00'", dt.datetime(1500, 2, 28, 2, 30)),
        ("'2025-03-30 02:30:00.123456'", dt.datetime(2025, 3, 30, 2, 30, 0, 123456)),
    ],
}


def filled(spark: SparkSession, folder: Path, native_type: str, literals: list[str]) -> dict[str, Any]:
    """The config of a database with table T (ID, V)."""
    url = f"jdbc:derby:{folder / 'source'}"
    with connected(spark, {"jdbc_url": f"{url};create=true"}) as connection:
        connection.execute(f"create table t (id int primary key, v {native_type})")
        for number, literal in enumerate([*literals, "null"]):
            connection.execute(f"insert into t values ({number}, {literal})")
    return {"jdbc_url": url}


@pytest.mark.parametrize("native_type", VALUES)
def test_values_survive(spark: SparkSession, tmp_path: Path, native_type: str) -> None:
    config = filled(spark, tmp_path, native_type, [literal for literal, _ in VALUES[native_type]])
    table = discovered(spark, config)["APP-T"]
    rows = [row[0] for row in read(spark, config, table, table.column("V"), order="ID")]
    assert rows == [*(value for _, value in VALUES[native_type]), None]


def test_bytes_survive(spark: SparkSession, tmp_path: Path) -> None:
    config = filled(spark, tmp_path, "varchar(20) for bit data", ["X'00FF'"])
    table = discovered(spark, config)["APP-T"]
    assert bytes(read(spark, config, table, table.column("V"), order="ID")[0][0]) == b"\x00\xff"


def test_nanoseconds_are_an_error_with_a_way_out_and_never_cut(spark: SparkSession, tmp_path: Path) -> None:
    config = filled(spark, tmp_path, "timestamp", ["'2025-01-20 15:30:00.123456789'"])
    table = discovered(spark, config)["APP-T"]
    with pytest.raises(Exception, match=r"column V \(TIMESTAMP\) holds a value that is no TIMESTAMP"):
        read(spark, config, table, table.column("V"))
    text = overridden(table.column("V"), "text")
    assert read(spark, config, table, text, order="ID")[0][0] == "2025-01-20 15:30:00.123456789"


def test_a_type_without_exact_reading_says_so(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path / 'source'}"
    with connected(spark, {"jdbc_url": f"{url};create=true"}) as connection:
        connection.execute("create type price external name 'java.util.Currency' language java")
        connection.execute("create table t (id int, v price)")
    column = discovered(spark, {"jdbc_url": url})["APP-T"].column("V")
    assert "no exact reading" in column.reading.problem
