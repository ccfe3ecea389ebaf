"""DuckDB's types at their extremes, compared with what DuckDB's own Python package reads of the
same file.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tap.opened import discovered, read
from tap_spark_jdbc.dialects import overridden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tap_spark_jdbc.dialects.tables import Table

TEXT = "CAST({c} AS VARCHAR)"
INSTANT = "strftime({c} AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S.%f')"
ELEMENTS = "CAST({c} AS VARCHAR[])"
# Type: its ANSI name in the lake, what Python reads to compare with, two extremes; a NULL follows.
TYPES: dict[str, tuple[str, str, str, str]] = {
    "boolean": ("BOOLEAN", "{c}", "true", "false"),
    "tinyint": ("TINYINT", "{c}", "-128", "127"),
    "smallint": ("SMALLINT", "{c}", "-32768", "32767"),
    "integer": ("INTEGER", "{c}", "-2147483648", "2147483647"),
    "bigint": ("BIGINT", "{c}", "-9223372036854775808", "9223372036854775807"),
    "utinyint": ("SMALLINT", "{c}", "0", "255"),
    "usmallint": ("INTEGER", "{c}", "0", "65535"),
    "uinteger": ("BIGINT", "{c}", "0", "4294967295"),
    "ubigint": ("DECIMAL(20,0)", "{c}", "0", "18446744073709551615"),
    "hugeint": (
        "NUMERIC",
        TEXT,
        "-170141183460469231731687303715884105728",
        "170141183460469231731687303715884105727",
    ),
    "uhugeint": ("NUMERIC", TEXT, "0", "340282366920938463463374607431768211455"),
    "bignum": ("NUMERIC", TEXT, f"'-{'9' * 60}'", f"'{'9' * 60}'"),
    "decimal(38,38)": (
        "DECIMAL(38,38)",
        "{c}",
        f"'0.{'9' * 38}'",
        "'0.00000000000000000123456789123456'",
    ),
    "decimal(38,0)": ("DECIMAL(38,0)", "{c}", f"-{'9' * 38}", "9" * 38),
    "decimal(4,1)": ("DECIMAL(4,1)", "{c}", "-999.9", "0.1"),
    "float": ("REAL", "CAST({c} AS DOUBLE)", "0.1", "3.4028235e38"),
    "double": ("DOUBLE PRECISION", "{c}", "'-inf'", "1.7976931348623157e308"),
    "varchar": ("TEXT", "{c}", "'日本語 😀 ''quoted'' \\'", "''"),
    "blob": ("VARBINARY", "{c}", "'\\x00\\xFF'", "''"),
    "bit": ("BIT", TEXT, "'0101'", "'1'"),
    "date": ("DATE", "{c}", "'0001-01-01'", "'9999-12-31'"),
    "time": ("TIME", TEXT, "'00:00:00'", "'23:59:59.999999'"),
    "timetz": ("TIME WITH TIME ZONE", TEXT, "'10:00:00+02'", "'23:59:59.999999-15'"),
    "time_ns": ("TIME", TEXT, "'00:00:00'", "'23:59:59.123456789'"),
    "timestamp": (
        "TIMESTAMP",
        "{c}",
        "'0001-01-01 00:00:00.000001'",
        "'9999-12-31 23:59:59.999999'",
    ),
    "timestamp_s": ("TIMESTAMP", "{c}", "'1500-02-28 02:30:00'", "'2025-03-30 02:30:00'"),
    "timestamp_ms": ("TIMESTAMP", "{c}", "'2024-02-29 23:59:59.999'", "'2025-03-30 02:30:00.001'"),
    "timestamptz": (
        "TIMESTAMP WITH TIME ZONE",
        INSTANT,
        "'2025-03-30 02:30:00.123456+02'",
        "'2025-10-26 02:30:00.000001+14'",
    ),
    "interval": ("INTERVAL", TEXT, "'1 year 2 months 3 days 04:05:06.789'", "'-1 day'"),
    "uuid": (
        "UUID",
        TEXT,
        "'550e8400-e29b-41d4-a716-446655440000'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    ),
    "json": ("JSON", TEXT, """'{"b": 1.50, "a": [null, "x"]}'""", "'null'"),
    "enum('b', 'a')": ("ENUM", TEXT, "'b'", "'a'"),
    "struct(a integer, b varchar)": (
        "STRUCT",
        TEXT,
        "{'a': 1, 'b': 'it''s'}",
        "{'a': NULL, 'b': ''}",
    ),
    "map(varchar, integer)": ("MAP", TEXT, "MAP {'a': 1}", "MAP {}"),
    "union(n integer, s varchar)": ("UNION", TEXT, "1", "'x'"),
    "integer[]": ("INTEGER ARRAY", "{c}", "[1, NULL, -3]", "[]"),
    "bigint[2]": ("BIGINT ARRAY", "CAST({c} AS bigint[])", "[9223372036854775807, NULL]", "[0, 1]"),
    "varchar[]": ("TEXT ARRAY", "{c}", """['a"b', NULL, 'NULL', 'c,d', '😀\\']""", "['']"),
    "decimal(9,2)[]": ("NUMERIC ARRAY", ELEMENTS, "[1.50, NULL]", "[-0.01]"),
    "double[]": (
        "DOUBLE PRECISION ARRAY",
        "{c}",
        "[0.1::double, 'inf']",
        "[1.7976931348623157e308]",
    ),
    "float[]": (
        "REAL ARRAY",
        "CAST({c} AS DOUBLE[])",
        "[0.1::float, '-inf', NULL]",
        "[3.4028235e38, 1.17549435e-38]",
    ),
    "float[2]": ("REAL ARRAY", "CAST({c} AS DOUBLE[])", "[0.1::float, 16777217]", "[-0.3, 1e-45]"),
    "boolean[]": ("BOOLEAN ARRAY", "{c}", "[true, NULL]", "[false]"),
    "date[]": ("DATE ARRAY", "{c}", "['0001-01-01', NULL]", "['9999-12-31']"),
    "timestamp[]": ("TIMESTAMP ARRAY", "{c}", "['2025-03-30 02:30:00.123456']", "[NULL]"),
    "integer[][]": ("LIST", TEXT, "[[1, NULL], NULL]", "[]"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a table that has a column for each type."""
    path = tmp_path_factory.mktemp("duckdb") / "source.db"
    with duckdb.connect(path) as connection:
        columns = ", ".join(f'"{name}" {name}' for name in TYPES)
        connection.execute(f"create table matrix (id integer primary key, {columns})")
        for number, values in enumerate(zip(*(each[2:] for each in TYPES.values()), strict=True)):
            connection.execute(f"insert into matrix values ({number}, {', '.join(values)})")
        connection.execute(f"insert into matrix values (9, {', '.join(['NULL'] * len(TYPES))})")
        connection.execute("create table precise (id integer, v timestamp_ns)")
        connection.execute("insert into precise values (1, '2025-01-20 15:30:00.123456789')")
        connection.execute("create table endless (id integer, v date, n double)")
        connection.execute("insert into endless values (1, 'infinity', 'nan')")
    return path


def table_of(spark: SparkSession, path: Path, name: str) -> tuple[dict[str, Any], Table]:
    config = {"jdbc_url": f"jdbc:duckdb:{path}"}
    return config, discovered(spark, config)[f"main-{name}"]


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def test_every_value_matches_duckdb_package(spark: SparkSession, path: Path) -> None:
    config, table = table_of(spark, path, "matrix")
    found = read(spark, config, table, order="id")
    with duckdb.connect(path, read_only=True) as connection:
        asked = ", ".join(each[1].replace("{c}", f'"{name}"') for name, each in TYPES.items())
        expected = connection.execute(f"select id, {asked} from matrix order by id").fetchall()
    zoned = [name for name in TYPES if name == "timestamptz"]
    for number, name in enumerate(TYPES, start=1):
        values = [plain(row[number]) for row in found]
        if name in zoned:
            values = [
                value and dt.datetime.fromisoformat(value).strftime("%Y-%m-%d %H:%M:%S.%f")
                for value in values
            ]
        assert values == [row[number] for row in expected], name
        assert str(table.columns[number].sql_type) == TYPES[name][0]


def test_duckdb_nanoseconds_are_never_cut(spark: SparkSession, path: Path) -> None:
    """Nanoseconds are an error, unless the column is read as text."""
    config, table = table_of(spark, path, "precise")
    with pytest.raises(
        Exception, match=r"column v \(TIMESTAMP_NS\) holds a value that is not a valid TIMESTAMP"
    ):
        read(spark, config, table)
    column = table.column("v")
    assert column is not None
    assert read(spark, config, table, overridden(column, "text")) == [
        ("2025-01-20 15:30:00.123456789",)
    ]


def test_infinite_date_is_clear_error(spark: SparkSession, path: Path) -> None:
    config, table = table_of(spark, path, "endless")
    with pytest.raises(
        Exception, match=r"column v \(DATE\) holds a value that is not a valid DATE.*: infinity"
    ):
        read(spark, config, table)
