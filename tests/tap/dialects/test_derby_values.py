"""Derby's types at their extremes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tap.opened import connected, discovered, read
from tap_spark_jdbc.dialects import overridden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

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


@pytest.fixture(scope="module")
def url(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a table for each type, with columns ID and V, and a NULL at its end."""
    url = f"jdbc:derby:{tmp_path_factory.mktemp('derby') / 'source'}"
    with connected(spark, {"jdbc_url": f"{url};create=true"}) as connection:
        for native_type, pairs in VALUES.items():
            fill(connection, native_type, [literal for literal, _ in pairs])
        fill(connection, "varchar(20) for bit data", ["X'00FF'"])
        connection.execute("create table precise (id int primary key, v timestamp)")
        connection.execute("insert into precise values (0, '2025-01-20 15:30:00.123456789')")
        connection.execute("create type price external name 'java.util.Currency' language java")
        connection.execute("create table prices (id int, v price)")
        connection.execute(
            "create table other (id int not null generated always as identity, doubled generated "
            "always as (id * 2), "
            "r real, l long varchar, b blob, f char(3) for bit data, n numeric(5), x xml)"
        )
        connection.execute(
            "insert into other (r, l, b, f, n, x) values (3.4028235E38, 'long', cast(X'FF00' as "
            "blob), X'010203', -99999, xmlparse(document '<a>1</a>' preserve whitespace))"
        )
        connection.execute("insert into other (r) values (null)")
    return url


def fill(connection: JdbcConnection, native_type: str, literals: list[str]) -> None:
    connection.execute(f'create table "{native_type}" (id int primary key, v {native_type})')
    for number, literal in enumerate([*literals, "null"]):
        connection.execute(f'insert into "{native_type}" values ({number}, {literal})')


def values_of(spark: SparkSession, url: str, table: str, override: str | None = None) -> list[Any]:
    config = {"jdbc_url": url, "tables": [table]}
    found = discovered(spark, config)[f"APP-{table}"]
    column = found.column("V")
    column = column if override is None else overridden(column, override)
    return [row[0] for row in read(spark, config, found, column, order="ID")]


@pytest.mark.parametrize("native_type", VALUES)
def test_values_survive(spark: SparkSession, url: str, native_type: str) -> None:
    assert values_of(spark, url, native_type) == [
        *(value for _, value in VALUES[native_type]),
        None,
    ]


def test_bytes_survive(spark: SparkSession, url: str) -> None:
    kept, nothing = values_of(spark, url, "varchar(20) for bit data")
    assert (bytes(kept), nothing) == (b"\x00\xff", None)


def test_generated_columns_and_rare_types_survive(spark: SparkSession, url: str) -> None:
    config = {"jdbc_url": url, "tables": ["OTHER"]}
    table = discovered(spark, config)["APP-OTHER"]
    assert [str(column.sql_type) for column in table.columns[:2]] == ["INTEGER", "INTEGER"]
    full, empty = [
        [bytes(value) if isinstance(value, bytearray) else value for value in row]
        for row in read(spark, config, table, order="ID")
    ]
    largest = 3.4028234663852886e38
    assert full == [
        1,
        2,
        largest,
        "long",
        b"\xff\x00",
        b"\x01\x02\x03",
        Decimal(-99999),
        "<a>1</a>",
    ]
    assert empty == [2, 4, *[None] * 6]


def test_derby_nanoseconds_are_never_cut(spark: SparkSession, url: str) -> None:
    """Nanoseconds are an error, unless the column is read as text."""
    with pytest.raises(
        Exception, match=r"column V \(TIMESTAMP\) holds a value that is not a valid TIMESTAMP"
    ):
        values_of(spark, url, "PRECISE")
    assert values_of(spark, url, "PRECISE", "text") == ["2025-01-20 15:30:00.123456789"]


@pytest.mark.parametrize(
    ("native_type", "texts"),
    [
        ("integer", ["2147483647"]),
        ("bigint", ["-9223372036854775808"]),
        ("decimal(31,5)", ["9" * 26 + ".99999"]),
        ("double", ["0.1", "1.7976931348623157E308"]),
        ("clob", ["it's"]),
        ("date", ["0001-01-01", "1500-02-28", "9999-12-31"]),
    ],
)
def test_every_value_reads_as_text(
    spark: SparkSession, url: str, native_type: str, texts: list[str]
) -> None:
    assert values_of(spark, url, native_type, "text") == [*texts, None]


def test_long_clob_reads_whole_as_text(spark: SparkSession, url: str) -> None:
    with connected(spark, {"jdbc_url": url}) as connection:
        connection.execute("create table long (id int primary key, v clob)")
        part = f"cast('{'x' * 30_000}' as clob)"
        connection.execute(f"insert into long values (0, {part} || {part})")
    assert values_of(spark, url, "LONG", "text") == ["x" * 60_000]


def test_inexact_derby_type_is_reported(spark: SparkSession, url: str) -> None:
    found = discovered(spark, {"jdbc_url": url, "tables": ["PRICES"]})["APP-PRICES"]
    assert "no exact reading" in found.column("V").reading.problem
