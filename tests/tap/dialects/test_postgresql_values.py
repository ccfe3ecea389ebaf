"""What types of PostgreSQL hold and the lake's don't is a loud error, and what overrides make of
it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from tap.opened import discovered, login, read
from tap_spark_jdbc.dialects import overridden
from tap_spark_jdbc.dialects.postgresql import POSTGRESQL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import Database

REFUSED = {
    "date": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"],
    "timestamp": ["infinity", "-infinity", "0044-03-15 00:00:00 BC", "10000-01-01 00:00:00"],
    "timestamptz": ["infinity", "0001-01-01 00:00:00+05", "9999-12-31 23:59:59-05"],
    "numeric(12,2)": ["NaN"],
    "integer[]": ["{{1,2},{3,4}}", "[0:1]={1,2}"],
    "mood[]": ["{{happy}}"],
    "date[]": ["{infinity}"],
    "timestamp[]": ["{10000-01-01 00:00:00}"],
    "timestamptz[]": ["{9999-12-31 23:59:59-05}", "{0001-01-01 00:00:00+05}"],
}


@pytest.fixture(scope="module")
def database(postgresql) -> Database:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create type mood as enum ('happy', 'sad')")
        # The rows must not depend on the zone or the style that the server was given.
        connection.execute(f"alter database {database.name} set timezone to 'America/St_Johns'")
        connection.execute(f"alter database {database.name} set datestyle to 'German'")
        connection.execute(f"alter database {database.name} set intervalstyle to 'iso_8601'")
        connection.execute(f"alter database {database.name} set extra_float_digits to -5")
    return database


@pytest.fixture
def table(database: Database):
    """`table(type, values)` makes table t (id, v), with a NULL at its end, and returns the
    connection that reads it back.
    """
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            "set timezone to 'UTC'; set datestyle to 'ISO'; set intervalstyle to 'postgres'"
        )
        connection.execute("set extra_float_digits to 3")

        def make(native_type: str, values: list[str]) -> psycopg.Connection:
            connection.execute("drop table if exists t")
            connection.execute(f"create table t (id serial primary key, v {native_type})")
            insert = sql.SQL("insert into t (v) values ({})")
            for value in [*values, None]:
                connection.execute(insert.format(sql.Literal(value)))
            return connection

        yield make


@pytest.mark.parametrize("native_type", REFUSED)
def test_unrepresentable_value_names_its_column(
    spark: SparkSession, database: Database, table, native_type: str
) -> None:
    """A value that a type can't hold is an error that names the column and suggests text."""
    table(native_type, [])
    config = login(database)
    found = discovered(spark, {**config, "tables": ["t"]})["public-t"]
    for value in REFUSED[native_type]:
        table(native_type, [value])
        with pytest.raises(Exception, match=r"v|infinity") as caught:
            read(spark, config, found, found.column("v"), order="id")
        assert "column v (" in str(caught.value)
        assert "type_overrides" in str(caught.value)
    connection = table(native_type, REFUSED[native_type])
    truth = [text for (text,) in connection.execute("select v::text from t order by id")]
    column = overridden(found.column("v"), "text")
    assert [row[0] for row in read(spark, config, found, column, order="id")] == truth


@pytest.mark.parametrize(
    ("type_name", "good", "bad"),
    [
        (
            "DECIMAL(20,5)",
            ["123456789012345.12345", "-0.50000", "7.00000"],
            ["0.000001", "1234567890123456", "NaN"],
        ),
        ("BIGINT", ["9223372036854775807", "-1"], ["1.5", "9223372036854775808"]),
        ("DOUBLE PRECISION", ["0.5", "NaN"], []),
    ],
)
def test_override_is_exact_or_fails(
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


@pytest.mark.parametrize("native_type", ["timestamp without time zone", "timestamp with time zone"])
def test_timestamp_of_any_year_keeps_microseconds(database: Database, native_type: str) -> None:
    rule = next(rule for rule in POSTGRESQL.type_rules if re.fullmatch(rule.pattern, native_type))
    taken = rule.select.format(c="v", complaint="'no moment: '")
    # From year 1 to 9999, a third of them where the quick way ends, and all about 1900 and 2041 to
    # the microsecond.
    spans = (
        (-62135596800, 253402300799),
        (-2208988800, 2240611200),
        (2240611199, 2240611201),
        (-2208988801, -2208988799),
    )
    made = " union all ".join(
        f"select (({first} + random()::numeric * ({last} - {first}))::numeric(20, 6) * "
        "1000000)::bigint as m from generate_series(1, 50000)"
        for first, last in spans
    )
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'")
        seconds = "m / 1000000 * interval '1 second' + m % 1000000 * interval '1 microsecond'"
        moments = f"select m, timestamptz '1970-01-01 00:00:00+00' + {seconds} as v from ({made}) n"
        rows = f"select m, cast(v as {native_type}) as v from ({moments}) n"
        asked = (
            f"select count(*), count(*) filter (where m is distinct from {taken}) from ({rows}) n"
        )
        assert connection.execute(asked).fetchall() == [(200_000, 0)]


def test_bytes_without_encoding_are_refused_or_binary(spark: SparkSession, postgresql) -> None:
    """Bytes of a database without encoding are refused or read as bytes."""
    database = postgresql.database("bytes_without_encoding")
    with psycopg.connect(postgresql.database("postgres").dsn, autocommit=True) as connection:
        connection.execute(
            f"create database {database.name} encoding 'SQL_ASCII' template template0 locale 'C' "
            "locale_provider libc"
        )
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            "create table t (id serial, v text); insert into t (v) values (E'a\\xffb\\\\c')"
        )
    config = login(database)
    found = discovered(spark, config)["public-t"]
    with pytest.raises(Exception, match=r"Invalid character data|invalid byte sequence"):
        read(spark, config, found, found.column("v"))
    ((value,),) = read(spark, config, found, overridden(found.column("v"), "binary"))
    assert bytes(value) == b"a\xffb\\c"
