"""PostgreSQL is asked by psycopg, in the same words and with the same answers as by its JDBC
driver, so that a run that reads nothing over JDBC starts no JVM.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.marked import until
from singer_spark.errors import DisturbedError, SourceError
from tap.opened import connected, login
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection
from tap_spark_jdbc.source.libpq_connection import LibpqConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import Database as Made
    from servers.postgresql import PostgreSQL

SHOP = """
create table orders (id int primary key, text text, updated timestamptz not null default now());
insert into orders select i, 'row ' || i from generate_series(1, 50) i;
create table odd (id int primary key, at interval);
insert into odd values (1, '1 day');
"""
VALUES = """
select true, 1::int2, 9223372036854775807, 1.10::numeric, 'NaN'::numeric, 0.1::float4,
0.1::float8 + 0.2, '-Infinity'::float8, 'a' || chr(10) || 'é😀', 'c  '::char(5), null, ''::text,
date '0044-03-15 BC', timestamp 'infinity', timestamptz '2024-02-29 23:59:59.999999+05',
time '24:00', '{"a": [1.50]}'::jsonb, '6f1d8a3e-0000-4000-8000-000000000001'::uuid,
'10.0.0.0/8'::cidr, '0/16B3748'::pg_lsn, B'101',
'[1,5)'::int4range, 'pg_class'::regclass, row(1, 'x')
"""
REFUSED = {
    "select * from nowhere": TapCode.STATEMENT_REFUSED,
    "select secret from hidden": TapCode.GRANT_MISSING,
    "select cast('x' as int)": TapCode.STATEMENT_REFUSED,
    "set statement_timeout = 1; select pg_sleep(9)": TapCode.TIMED_OUT,
    "selec": TapCode.STATEMENT_REFUSED,
}


@pytest.fixture
def database(postgresql: PostgreSQL) -> Made:
    return postgresql.new_database()


@pytest.fixture
def opened(database: Made) -> Iterator[Callable[..., Database]]:
    """Opens the database as the tap does."""
    made: list[Database] = []

    def opening(**settings: Any) -> Database:
        made.append(Database(TapSettings.from_config(login(database, **settings))))
        return made[-1]

    yield opening
    for each in made:
        each.close()


def shape(error: SourceError) -> tuple[type[SourceError], Any]:
    return type(error), error.code


def refused(ask: Callable[[], object]) -> SourceError:
    with pytest.raises(SourceError) as raised:
        ask()
    return raised.value


def test_plain_run_needs_no_java(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a first load, nor an increment, nor an idle run starts a JVM."""
    incremental = ["orders:updated:timestamptz"]
    tap, connection = postgres(SHOP, tables=["orders"], incremental_tables=incremental)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    first = tap.run().succeeded()
    assert len(first.records("public-orders")) == 50
    idle = tap.run(state=first.final_state).succeeded()
    assert idle.records("public-orders") == []
    connection.execute("update orders set text = 'new', updated = now() where id = 7")
    few = tap.run(state=idle.final_state).succeeded()
    assert [each["id"] for each in few.records("public-orders")] == [7]


def test_jvm_comes_with_column_for_it(postgres: Any) -> None:
    """A column that only the JDBC driver reads gets its JVM within the run."""
    tap, _ = postgres(SHOP)
    assert tap.run().succeeded().records("public-odd") == [{"id": 1, "at": "1 day"}]


def test_values_have_same_texts(
    spark: SparkSession, database: Made, opened: Callable[..., Database]
) -> None:
    """Those of all types that a question selects: neither arrays nor bytes."""
    asked = opened().connection
    assert isinstance(asked, LibpqConnection)
    with connected(spark, login(database)) as jdbc:
        assert asked.rows(VALUES) == jdbc.rows(VALUES)
        assert asked.server == jdbc.server
        assert asked.identifier_quote() == jdbc.identifier_quote()


@pytest.mark.parametrize("sql", REFUSED)
def test_refusals_have_same_codes(
    sql: str, spark: SparkSession, database: Made, opened: Callable[..., Database]
) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table hidden (secret int)")
        connection.execute(f"create role {database.name}_guest login password 'guest'")
    guest = {"user": f"{database.name}_guest", "password": "guest"}
    found = refused(lambda: opened(**guest).connection.execute(sql))
    with connected(spark, login(database, **guest)) as jdbc:
        assert shape(found) == shape(refused(lambda: jdbc.execute(sql)))
    assert found.code == REFUSED[sql]


def test_another_s_lock(database: Made, opened: Callable[..., Database]) -> None:
    with psycopg.connect(database.dsn) as connection:
        connection.execute("create table held (id int)")
        connection.commit()
        connection.execute("lock table held")
        asked = opened().connection
        asked.execute("set lock_timeout = 1")
        error = refused(lambda: asked.rows("select * from held"))
    assert (type(error), error.code) == (DisturbedError, TapCode.CHANGED_WHILE_READ)


def test_masked_value_is_not_quoted(opened: Callable[..., Database]) -> None:
    hidden = opened(stream_options={"orders": {"mask": {"text": "hash"}}}, mask_key="k" * 32)
    error = refused(lambda: hidden.connection.rows("select cast('secret' as int)"))
    assert "secret" not in str(error).replace("cast('secret' as int)", "")
    assert error.__cause__ is None
    quoting = refused(lambda: opened().connection.rows("select cast('secret' || '!' as int)"))
    assert 'invalid input syntax for type integer: "secret!"' in str(quoting)


def test_ended_session_is_replaced(
    database: Made, opened: Callable[..., Database], short_pauses: None
) -> None:
    source = opened()
    assert source.connection.rows("select 1") == [("1",)]
    before = source.connection.session
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(f"select pg_terminate_backend({before})")
        until(
            lambda: (
                connection.execute(
                    f"select 1 from pg_stat_activity where pid = {before}"
                ).fetchone()
                is None
            ),
            "the end of the session",
        )
    assert source.connection.rows("select 2") == [("2",)]
    assert source.connection.session != before
    assert source.connection.rows("show timezone") == [("UTC",)]


def test_abort_ends_waiting(database: Made, opened: Callable[..., Database]) -> None:
    """A thread that waits for the server gets an error."""
    waiting = opened().another_connection()
    failed: list[SourceError] = []

    def wait() -> None:
        failed.append(refused(lambda: waiting.rows("select pg_sleep(600)")))

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: waiting.waits_since is not None, "the query")
    waiting.abort()
    thread.join(60)
    assert [each.code for each in failed] == [TapCode.CONNECTION_LOST]
    waiting.close()


def test_queries_are_described_by_driver(
    spark: SparkSession, database: Made, opened: Callable[..., Database]
) -> None:
    query = "select 1::numeric(9,2) as price, now() as at, '{}'::text[] as names"
    with connected(spark, login(database)) as jdbc:
        assert opened().connection.describe(query) == jdbc.describe(query)
        assert opened().connection.search_pattern("a_b%") == jdbc.search_pattern("a_b%")
        found = opened().connection.metadata("getSchemas")
        assert found == jdbc.metadata("getSchemas")


def test_driver_asks_by_parameter_of_its_own(
    spark: SparkSession, database: Made, opened: Callable[..., Database]
) -> None:
    by_driver(opened(jdbc_url=f"{database.jdbc_url}?socketTimeout=60"))


def test_driver_asks_without_psycopg(
    spark: SparkSession, opened: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    by_driver(opened())


def test_driver_asks_where_texts_are_bytes(
    spark: SparkSession, database: Made, opened: Callable[..., Database]
) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            f"create database {database.name}_bytes encoding 'SQL_ASCII' template template0 "
            "locale 'C' locale_provider libc"
        )
    by_driver(opened(jdbc_url=f"{database.jdbc_url}_bytes"))


def by_driver(source: Database) -> None:
    assert isinstance(source.connection, JdbcConnection)
    assert source.connection.rows("select 1") == [("1",)]


def test_wrong_password_is_refused_as_by_driver(
    spark: SparkSession, opened: Callable[..., Database]
) -> None:
    error = refused(lambda: opened(password="wrong").connection)
    assert error.code == TapCode.CONNECTION_FAILED
