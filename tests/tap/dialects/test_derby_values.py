"""Derby's types at their extremes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tap.opened import connected, discovered, read
from tap_spark_jdbc.dialects import overridden

if TYPE_CHECKING:
    from collections.abc import Iterable

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
TEXTS = {
    "integer": ["2147483647"],
    "bigint": ["-9223372036854775808"],
    "decimal(31,5)": ["9" * 26 + ".99999"],
    "double": ["0.1", "1.7976931348623157E308"],
    "clob": ["it's"],
    "date": ["0001-01-01", "1500-02-28", "9999-12-31"],
}
# The last one has NULL in each column.
ROWS = 1 + max(map(len, VALUES.values()))


@pytest.fixture(scope="module")
def url(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a table of all types, a column for each, and tables with columns ID and V."""
    url = f"jdbc:derby:{tmp_path_factory.mktemp('derby') / 'source'}"
    with connected(spark, {"jdbc_url": f"{url};create=true"}) as connection:
        columns = ", ".join(f'"{each}" {each}' for each in VALUES)
        connection.execute(f'create table "all" (id int primary key, {columns})')
        literals = [padded([each for each, _ in pairs], "null") for pairs in VALUES.values()]
        for number, row in enumerate(zip(*literals, strict=True)):
            connection.execute(f'insert into "all" values ({number}, {", ".join(row)})')
        connection.execute('create table "bytes" (id int primary key, v varchar(20) for bit data)')
        connection.execute("insert into \"bytes\" values (0, X'00FF'), (1, null)")
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


def padded(values: list[Any], nothing: Any = None) -> list[Any]:
    return values + [nothing] * (ROWS - len(values))


def values_of(spark: SparkSession, url: str, table: str, override: str | None = None) -> list[Any]:
    config = {"jdbc_url": url, "tables": [table]}
    found = discovered(spark, config)[f"APP-{table}"]
    column = found.column("V")
    column = column if override is None else overridden(column, override)
    return [row[0] for row in read(spark, config, found, column, order="ID")]


def all_of(
    spark: SparkSession, url: str, types: Iterable[str], override: str | None = None
) -> dict[str, list[Any]]:
    config = {"jdbc_url": url, "tables": ["all"]}
    found = discovered(spark, config)["APP-all"]
    columns = [found.column(each) for each in types]
    if override is not None:
        columns = [overridden(each, override) for each in columns]
    rows = read(spark, config, found, *columns, order="ID")
    return {each: list(values) for each, *values in zip(types, *rows, strict=True)}


def test_values_survive(spark: SparkSession, url: str) -> None:
    assert all_of(spark, url, VALUES) == {
        each: padded([value for _, value in pairs]) for each, pairs in VALUES.items()
    }


def test_bytes_survive(spark: SparkSession, url: str) -> None:
    kept, nothing = values_of(spark, url, "bytes")
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


def test_every_value_reads_as_text(spark: SparkSession, url: str) -> None:
    assert all_of(spark, url, TEXTS, "text") == {
        each: padded(texts) for each, texts in TEXTS.items()
    }


def test_long_clob_reads_whole_as_text(spark: SparkSession, url: str) -> None:
    with connected(spark, {"jdbc_url": url}) as connection:
        connection.execute("create table long (id int primary key, v clob)")
        part = f"cast('{'x' * 30_000}' as clob)"
        connection.execute(f"insert into long values (0, {part} || {part})")
    assert values_of(spark, url, "LONG", "text") == ["x" * 60_000]


def test_inexact_derby_type_is_reported(spark: SparkSession, url: str) -> None:
    found = discovered(spark, {"jdbc_url": url, "tables": ["PRICES"]})["APP-PRICES"]
    assert "no exact reading" in found.column("V").reading.problem
