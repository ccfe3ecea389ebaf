"""H2's types at their extremes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tap.jdbc_files import making
from tap.opened import discovered, read
from tap_spark_jdbc.dialects import known_dialects, overridden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Type: its ANSI name in the lake, and two extremes, each as a literal and as the value that it is;
# a NULL follows.
TYPES: dict[str, tuple[str, tuple[str, Any], tuple[str, Any]]] = {
    "boolean": ("BOOLEAN", ("true", True), ("false", False)),
    "tinyint": ("TINYINT", ("-128", -128), ("127", 127)),
    "smallint": ("SMALLINT", ("-32768", -32768), ("32767", 32767)),
    "integer": ("INTEGER", ("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)),
    "bigint": ("BIGINT", ("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)),
    "numeric(38, 0)": ("DECIMAL(38,0)", ("9" * 38, Decimal("9" * 38)), ("-1", Decimal(-1))),
    "numeric(38, 38)": (
        "DECIMAL(38,38)",
        (f"0.{'9' * 38}", Decimal(f"0.{'9' * 38}")),
        ("0", Decimal("0e-38")),
    ),
    "numeric(12, 2)": (
        "DECIMAL(12,2)",
        ("-9999999999.99", Decimal("-9999999999.99")),
        ("0.01", Decimal("0.01")),
    ),
    "numeric(60, 5)": (
        "NUMERIC",
        (f"{'9' * 55}.99999", f"{'9' * 55}.99999"),
        ("0.00001", "0.00001"),
    ),
    "numeric": ("NUMERIC", ("9" * 90, "9" * 90), ("-1", "-1")),
    "decfloat(40)": (
        "NUMERIC",
        ("0.0000123456789123456", "0.0000123456789123456"),
        ("cast('NaN' as decfloat)", "NaN"),
    ),
    "real": ("REAL", ("0.5", 0.5), ("cast('-Infinity' as real)", float("-inf"))),
    "double precision": (
        "DOUBLE PRECISION",
        ("0.1", 0.1),
        ("1.7976931348623157E308", 1.7976931348623157e308),
    ),
    "character(5)": ("CHAR(5)", ("'ab'", "ab   "), ("'日本語'", "日本語  ")),
    "character varying(20)": ("VARCHAR(20)", ("'it''s 😀 \\'", "it's 😀 \\"), ("''", "")),
    "varchar_ignorecase(9)": ("VARCHAR(9)", ("'Aß'", "Aß"), ("'NULL'", "NULL")),
    "character large object": ("TEXT", ("repeat('é', 70000)", "é" * 70000), ("''", "")),
    "binary varying(9)": ("VARBINARY", ("X'00FF'", b"\x00\xff"), ("X''", b"")),
    "binary large object": ("VARBINARY", ("X'00FF'", b"\x00\xff"), ("X''", b"")),
    "date": (
        "DATE",
        ("date '0001-01-01'", dt.date(1, 1, 1)),
        ("date '9999-12-31'", dt.date(9999, 12, 31)),
    ),
    "time(9)": (
        "TIME",
        ("time '23:59:59.123456789'", "23:59:59.123456789"),
        ("time '00:00:00'", "00:00:00"),
    ),
    "time(6) with time zone": (
        "TIME WITH TIME ZONE",
        ("time with time zone '10:00:00.5+05:30'", "10:00:00.5+05:30"),
        ("time with time zone '23:59:59-18:00'", "23:59:59-18"),
    ),
    "timestamp": (
        "TIMESTAMP",
        ("timestamp '0001-01-01 00:00:00.000001'", dt.datetime(1, 1, 1, 0, 0, 0, 1)),
        ("timestamp '2025-03-30 02:30:00'", dt.datetime(2025, 3, 30, 2, 30)),
    ),
    "timestamp(9)": (
        "TIMESTAMP",
        ("timestamp '9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ("timestamp '1500-02-28 02:30:00.123'", dt.datetime(1500, 2, 28, 2, 30, 0, 123000)),
    ),
    "timestamp with time zone": (
        "TIMESTAMP WITH TIME ZONE",
        (
            "timestamp with time zone '2025-03-30 02:30:00.123456+05:30'",
            "2025-03-29 21:00:00.123456",
        ),
        ("timestamp with time zone '2025-10-26 02:30:00-12:00'", "2025-10-26 14:30:00"),
    ),
    "interval day to second": (
        "INTERVAL",
        ("interval '1 02:03:04.5' day to second", "INTERVAL '1 02:03:04.5' DAY TO SECOND"),
        ("interval '-1 00:00:00' day to second", "INTERVAL '-1 00:00:00' DAY TO SECOND"),
    ),
    "uuid": (
        "UUID",
        ("'550e8400-e29b-41d4-a716-446655440000'", "550e8400-e29b-41d4-a716-446655440000"),
        ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ),
    "json": (
        "JSON",
        ("""json '{"b": 1.50, "a": [null]}'""", '{"b":1.50,"a":[null]}'),
        ("json 'null'", "null"),
    ),
    "enum('b', 'a')": ("ENUM", ("'b'", "b"), ("'a'", "a")),
    "geometry": (
        "GEOMETRY",
        ("'POINT (1 2)'", "POINT (1 2)"),
        ("'SRID=4326;POINT (1.5 2)'", "SRID=4326;POINT (1.5 2)"),
    ),
    "integer array": ("INTEGER ARRAY", ("array[1, null, -3]", [1, None, -3]), ("array[]", [])),
    "character varying(10) array": (
        "TEXT ARRAY",
        ("""array['a"b', null, 'NULL', 'c,d\\']""", ['a"b', None, "NULL", "c,d\\"]),
        ("array['']", [""]),
    ),
    "enum('b', 'a') array": ("TEXT ARRAY", ("array['b', null]", ["b", None]), ("array[]", [])),
    "numeric(9, 2) array": (
        "NUMERIC ARRAY",
        ("array[1.50, null]", ["1.50", None]),
        ("array[-0.01]", ["-0.01"]),
    ),
    "timestamp array": (
        "TIMESTAMP ARRAY",
        (
            "array[timestamp '2025-03-30 02:30:00.5', null]",
            [dt.datetime(2025, 3, 30, 2, 30, 0, 500000), None],
        ),
        ("array[]", []),
    ),
}


@pytest.fixture(scope="module")
def url(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a table that has a column for each type."""
    url = f"jdbc:h2:{tmp_path_factory.mktemp('h2') / 'source'}"
    with making(spark, url) as connection:
        columns = ", ".join(f'"{name}" {name}' for name in TYPES)
        connection.execute(f'create table "matrix" ("id" integer primary key, {columns})')
        for number in (1, 2):
            literals = ", ".join(each[number][0] for each in TYPES.values())
            connection.execute(f'insert into "matrix" values ({number}, {literals})')
        connection.execute(f'insert into "matrix" values (3, {", ".join(["null"] * len(TYPES))})')
        connection.execute("create table precise (v timestamp(9), o java_object)")
        connection.execute(
            "insert into precise (v) values (timestamp '2025-01-20 15:30:00.123456789')"
        )
        connection.execute("create table ancient (v date)")
        connection.execute("insert into ancient values (date '-0044-03-15')")
    return url


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def test_every_value_of_h2_survives(spark: SparkSession, url: str) -> None:
    table = discovered(spark, {"jdbc_url": url})["PUBLIC-matrix"]
    assert {column.name: str(column.sql_type) for column in table.columns[1:]} == {
        name: each[0] for name, each in TYPES.items()
    }
    found = read(spark, {"jdbc_url": url}, table, order="id")
    for number, (name, each) in enumerate(TYPES.items(), start=1):
        assert [plain(row[number]) for row in found] == [each[1][1], each[2][1], None], name


@pytest.mark.parametrize(
    "element",
    [
        "binary varying(9)",
        "binary large object",
        "json",
        "geometry",
        "interval day to second",
        "time(0)",
        "uuid array",
    ],
)
def test_array_without_exact_text_is_reported(element: str) -> None:
    for native_type in (f"{element} array", f"{element} array[3]".upper()):
        column = known_dialects()["h2"].column("v", native_type, nullable=True)
        assert column.reading.problem == f"no exact reading of type {native_type} is known"


def test_h2_nanoseconds_are_never_cut(spark: SparkSession, url: str) -> None:
    """Nanoseconds are an error, unless the column is read as text."""
    table = discovered(spark, {"jdbc_url": url})["PUBLIC-PRECISE"]
    moment, thing = table.columns
    with pytest.raises(
        Exception, match=r"column V \(TIMESTAMP\(9\)\) holds a value that is not a valid TIMESTAMP"
    ):
        read(spark, {"jdbc_url": url}, table, moment)
    assert read(spark, {"jdbc_url": url}, table, overridden(moment, "text")) == [
        ("2025-01-20 15:30:00.123456789",)
    ]
    assert "no exact reading" in str(thing.reading.problem)


def test_date_before_christ_is_clear_error(spark: SparkSession, url: str) -> None:
    table = discovered(spark, {"jdbc_url": url})["PUBLIC-ANCIENT"]
    with pytest.raises(Exception, match=r"holds a value that is not a valid DATE.*: -0044-03-15"):
        read(spark, {"jdbc_url": url}, table)
