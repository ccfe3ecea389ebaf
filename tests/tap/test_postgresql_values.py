"""Every type of PostgreSQL at its extremes, against what psycopg reads: exact, as text, or a loud error."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tap.opened import discovered, login, read
from tap_spark_jdbc.dialects import overridden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import Database

DAYS = ["0001-01-01", "0004-02-29", "1000-02-28", "1582-10-05", "1582-10-14", "1969-12-31", "2024-02-29", "9999-12-31"]
MOMENTS = [f"{day} {clock}" for day in DAYS for clock in ("00:00:00", "02:30:00.000001", "23:59:59.999999")]
NUMBERS = ["NaN", "Infinity", "-Infinity", "0", "-0", "1e-40", "1.7976931348623157e308", "0.1", "123456789.12345679"]

# Type, values, and the SQL by which psycopg is asked; its values are the truth.
AS_VALUES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "oid": ["0", "4294967295"],
    "double precision": NUMBERS,
    "numeric(12,2)": ["-9999999999.99", "9999999999.99", "0.01", "-0.00"],
    "numeric(38,0)": ["9" * 38, "-" + "9" * 38],
    "numeric(38,38)": ["0." + "9" * 38, "-0." + "0" * 37 + "1"],
    "varchar(20)": ["", " spaced ", "日本語 😀", "quotes \"'\\", "line\nfeed\ttab\r"],
    "char(5)": ["ab", ""],
    "text": ["", "x" * 10_000, "\u2028", "null"],
    "date": DAYS,
    "timestamp": MOMENTS,
    "timestamp(3)": ["2024-03-31 02:30:00.123"],
    "integer[]": ["{}", "{1,NULL,-5}"],
    "text[]": ['{"a,b","",NULL,"{x}","q\\"uote"}'],
    "boolean[]": ["{t,f,NULL}"],
    "double precision[]": ["{1.5,-0.1,NULL}"],
    "date[]": ["{0001-01-01,1582-10-05,NULL}"],
    "timestamp[]": ['{"1000-02-28 02:30:00.000001",NULL}'],
}
AS_TEXT: dict[str, list[str]] = {
    "numeric": ["NaN", "Infinity", "0.0000123456789123456", "9" * 60, "-1e-20"],
    "numeric(40,5)": ["9" * 35 + ".99999"],
    "numeric(5,-2)": ["1234500"],
    "numeric(3,5)": ["0.00999"],
    "citext_like": ["Mixed"],
    "uuid": ["550e8400-e29b-41d4-a716-446655440000"],
    "json": ['{"b": 1, "a":  1.10, "b": null}', "null", "[1, 2]"],
    "jsonb": ['{"a": 123456789012345678901234567890.10}', "null"],
    "time": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "timetz": ["12:00:00.000001+05:30"],
    "interval": ["1 year -2 mons 3 days 04:05:06.000007", "-00:00:01"],
    "inet": ["192.168.0.1/24", "::1"],
    "int4range": ["[1,5)", "empty"],
    "bit(8)": ["10101010"],
    "mood": ["happy"],
    "point": ["(1.5,2)"],
    "numeric[]": ["{1.50,NULL,99999999999999999999999999999999999999999}"],
    "mood[]": ["{happy,NULL}", "{}"],
}
REFUSED = {
    "date": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"],
    "timestamp": ["infinity", "-infinity", "0044-03-15 00:00:00 BC", "10000-01-01 00:00:00"],
    "timestamptz": ["infinity", "0001-01-01 00:00:00+05", "9999-12-31 23:59:59-05"],
    "numeric(12,2)": ["NaN"],
    "integer[]": ["{{1,2},{3,4}}", "[0:1]={1,2}"],
    "mood[]": ["{{happy}}"],
    "date[]": ["{infinity}"],
}


@pytest.fixture(scope="module")
def database(postgresql) -> Database:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create type mood as enum ('happy', 'sad'); create domain citext_like as text")
        # The rows must not depend on the zone or the style that the server was given.
        connection.execute(f"alter database {database.name} set timezone to 'America/St_Johns'")
        connection.execute(f"alter database {database.name} set datestyle to 'German'")
        connection.execute(f"alter database {database.name} set intervalstyle to 'iso_8601'")
        connection.execute(f"alter database {database.name} set extra_float_digits to -5")
    return database


@pytest.fixture
def table(database: Database):
    """`table(type, values)` makes table t (id, v), a NULL at its end; gives the connection that reads it back."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'; set datestyle to 'ISO'; set intervalstyle to 'postgres'")
        connection.execute("set extra_float_digits to 3")

        def make(native_type: str, values: list[str]) -> psycopg.Connection:
            connection.execute("drop table if exists t")
            connection.execute(f"create table t (id serial primary key, v {native_type})")
            insert = sql.SQL("insert into t (v) values ({})")
            for value in [*values, None]:
                connection.execute(insert.format(sql.Literal(value)))
            return connection

        yield make


def values_of(spark: SparkSession, database: Database) -> list[Any]:
    config = login(database)
    found = discovered(spark, {**config, "tables": ["t"]})["public-t"]
    return [row[0] for row in read(spark, config, found, found.column("v"), order="id")]


@pytest.mark.parametrize("native_type", AS_VALUES)
def test_values_survive(spark: SparkSession, database: Database, table, native_type: str) -> None:
    truth = table(native_type, AS_VALUES[native_type]).execute("select v from t order by id").fetchall()
    found = values_of(spark, database)
    assert len(found) == len(AS_VALUES[native_type]) + 1
    for mine, (theirs,) in zip(found, truth, strict=True):
        # The text of a double tells -0.0 from 0.0, and NaN is NaN.
        assert (repr(mine) == repr(theirs)) if isinstance(theirs, float) else (mine == theirs)
        assert type(mine) is type(theirs)


@pytest.mark.parametrize("native_type", AS_TEXT)
def test_what_no_type_holds_survives_as_its_text(
    spark: SparkSession, database: Database, table, native_type: str
) -> None:
    connection = table(native_type, AS_TEXT[native_type])
    cast = "v::text[]" if native_type.endswith("[]") else "v::text"
    truth = [value for (value,) in connection.execute(f"select {cast} from t order by id")]
    assert values_of(spark, database) == truth


def test_real_numbers_survive(spark: SparkSession, database: Database, table) -> None:
    connection = table("real", ["1.1", "3.4028235e38", "1e-45", "NaN", "Infinity"])
    truth = [value for (value,) in connection.execute("select v::float8 from t order by id")]
    assert [str(value) for value in values_of(spark, database)] == [str(value) for value in truth]


def test_bytes_survive(spark: SparkSession, database: Database, table) -> None:
    connection = table("bytea", ["", "\\x00ff10", "\\x" + "ab" * 5000])
    truth = [value for (value,) in connection.execute("select v from t order by id")]
    assert [None if value is None else bytes(value) for value in values_of(spark, database)] == truth


def test_instants_stay_instants(spark: SparkSession, database: Database, table) -> None:
    moments = [
        "2025-03-30 02:30:00+01",
        "2025-10-26 02:30:00.000001+02",
        "0001-01-01 00:00:00+00",
        "1582-10-10 12:00+00",
    ]
    connection = table("timestamptz", [*moments, "9999-12-31 23:59:59.999999+00"])
    truth = [text for (text,) in connection.execute("select v::text from t order by id")]
    assert values_of(spark, database) == [None if text is None else text.removesuffix("+00") for text in truth]


@pytest.mark.parametrize(("native_type", "value"), [(kind, value) for kind in REFUSED for value in REFUSED[kind]])
def test_what_a_type_can_t_hold_is_a_loud_error_that_names_the_column(
    spark: SparkSession, database: Database, table, native_type: str, value: str
) -> None:
    table(native_type, [value])
    with pytest.raises(Exception, match=r"v|infinity") as caught:
        values_of(spark, database)
    assert "column v (" in str(caught.value)
    assert "type_overrides" in str(caught.value)


@pytest.mark.parametrize(("native_type", "value"), [(kind, value) for kind in REFUSED for value in REFUSED[kind]])
def test_the_way_out_of_the_error_is_the_text(
    spark: SparkSession, database: Database, table, native_type: str, value: str
) -> None:
    connection = table(native_type, [value])
    truth = [text for (text,) in connection.execute("select v::text from t order by id")]
    config = login(database)
    found = discovered(spark, {**config, "tables": ["t"]})["public-t"]
    column = overridden(found.column("v"), "text")
    assert [row[0] for row in read(spark, config, found, column, order="id")] == truth


@pytest.mark.parametrize(
    ("type_name", "good", "bad"),
    [
        ("DECIMAL(20,5)", ["123456789012345.12345", "-0.50000", "7.00000"], ["0.000001", "1234567890123456", "NaN"]),
        ("BIGINT", ["9223372036854775807", "-1"], ["1.5", "9223372036854775808"]),
        ("DOUBLE PRECISION", ["0.5", "NaN"], []),
    ],
)
def test_an_override_is_exact_or_an_error(
    spark: SparkSession, database: Database, table, type_name: str, good: list[str], bad: list[str]
) -> None:
    config = login(database)
    table("numeric", good)
    exact = [Decimal(number) for number in good]
    found = discovered(spark, {**config, "tables": ["t"]})["public-t"]
    column = overridden(found.column("v"), type_name)
    rows = [row[0] for row in read(spark, config, found, column, order="id")]
    assert [str(Decimal(str(value))) for value in rows[:-1]] == [str(number) for number in exact]
    assert rows[-1] is None
    for value in bad:
        table("numeric", [value])
        with pytest.raises(Exception, match="column v") as caught:
            read(spark, config, found, column, order="id")
        assert value in str(caught.value)


def test_bytes_of_a_database_without_encoding_are_refused_or_read_as_bytes(spark: SparkSession, postgresql) -> None:
    database = postgresql.database("bytes_without_encoding")
    with psycopg.connect(postgresql.database("postgres").dsn, autocommit=True) as connection:
        connection.execute(
            f"create database {database.name} encoding 'SQL_ASCII' template template0 locale 'C' locale_provider libc"
        )
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (id serial, v text); insert into t (v) values (E'a\\xffb\\\\c')")
    config = login(database)
    found = discovered(spark, config)["public-t"]
    with pytest.raises(Exception, match=r"Invalid character data|invalid byte sequence"):
        read(spark, config, found, found.column("v"))
    ((value,),) = read(spark, config, found, overridden(found.column("v"), "binary"))
    assert bytes(value) == b"a\xffb\\c"
