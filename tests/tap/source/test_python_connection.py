"""Servers are asked by a Python driver, in the same words and with the same answers as by their
JDBC driver, so that a run that reads nothing over JDBC starts no JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.marked import until
from singer_spark.errors import SourceError
from tap.conftest import Tap
from tap.opened import connected, login, opening, refused
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.source.python_connection import PythonConnection

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SERVERS = ["postgresql", "mariadb", "mysql"]
SHOP = """
create table orders (id int primary key, text varchar(20), updated timestamp not null);
insert into orders values (1, 'a', '2024-01-01 00:00:00'), (2, 'b', '2024-01-02 00:00:00')
"""
ODD = {
    "postgresql": ("interval", "'1 day'", "1 day"),
    **dict.fromkeys(["mariadb", "mysql"], ("bit(3)", "5", "101")),
}
VALUES = {
    # Those of all types that a question selects: neither arrays nor bytes.
    "postgresql": """
select true, 1::int2, 9223372036854775807, 1.10::numeric, 'NaN'::numeric, 0.1::float4,
0.1::float8 + 0.2, '-Infinity'::float8, 'a' || chr(10) || 'é😀', 'c  '::char(5), null, ''::text,
date '0044-03-15 BC', timestamp 'infinity', timestamptz '2024-02-29 23:59:59.999999+05',
time '24:00', '{"a": [1.50]}'::jsonb, '6f1d8a3e-0000-4000-8000-000000000001'::uuid,
'10.0.0.0/8'::cidr, '0/16B3748'::pg_lsn, B'101', '[1,5)'::int4range, 'pg_class'::regclass,
row(1, 'x')
""",
    # Where the two drivers spell a value differently, the JDBC driver is asked.
    **dict.fromkeys(
        ["mariadb", "mysql"],
        """
select true as a, -1 as b, 18446744073709551615 as c, 1.10 as d, 1e20 as e, 0.1e0 + 0.2e0 as f,
concat('a', char(10 using utf8mb4), 'é😀') as g, null as h, '' as i, date '2024-02-29' as j,
timestamp '2024-02-29 23:59:59.999999' as k, time '23:00:00' as l, b'101' as m,
cast(utc_timestamp(6) as char) > '2024' as n, hex('a') as o, json_object('a', 1) as p,
group_concat('x', 'y') as q, sum(1) as r, count(*) as s, cast(1.5 as double) as t
""",
    ),
}
OF_MARIADB = {
    "select * from nowhere": TapCode.GRANT_MISSING,
    "select secret from hidden": TapCode.GRANT_MISSING,
    "selec": TapCode.STATEMENT_REFUSED,
    "select nothing": TapCode.STATEMENT_REFUSED,
}
REFUSED = {
    "postgresql": {
        "select * from nowhere": TapCode.STATEMENT_REFUSED,
        "select secret from hidden": TapCode.GRANT_MISSING,
        "select cast('x' as int)": TapCode.STATEMENT_REFUSED,
        "set statement_timeout = 1; select pg_sleep(9)": TapCode.TIMED_OUT,
        "selec": TapCode.STATEMENT_REFUSED,
    },
    "mariadb": OF_MARIADB,
    "mysql": OF_MARIADB,
}
GUEST = {
    "postgresql": "create role {name} login password 'guest'",
    **dict.fromkeys(
        ["mariadb", "mysql"],
        "create user {name} identified by 'guest'; create table seen (id int); "
        "grant select on seen to {name}",
    ),
}
SESSIONS = {
    "postgresql": ("select pg_terminate_backend({session})", "show timezone", "UTC"),
    **dict.fromkeys(["mariadb", "mysql"], ("kill {session}", "select @@time_zone", "+00:00")),
}
SLOW = {
    "postgresql": "select pg_sleep(600)",
    **dict.fromkeys(["mariadb", "mysql"], "select sleep(600)"),
}
DESCRIBED = {
    "postgresql": "select 1::numeric(9,2) as price, now() as at, '{}'::text[] as names",
    **dict.fromkeys(["mariadb", "mysql"], "select cast(1 as decimal(9,2)) as price, now() as at"),
}


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(kind).new_database()


@contextmanager
def own(database: Any) -> Iterator[Callable[[str], object]]:
    """Runs statements of the database's owner, each committed."""
    if hasattr(database, "is_mysql"):
        with database.connect() as connection, connection.cursor() as cursor:
            yield lambda script: [cursor.execute(each) for each in script.split("; ")]
    else:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            yield connection.execute


@pytest.fixture
def opened(database: Any) -> Iterator[Callable[..., Database]]:
    """Opens the database as the tap does."""
    with opening(**login(database)) as opened:
        yield opened


@pytest.fixture
def make_shop(database: Any, kind: str, tmp_path: Path) -> Callable[..., Tap]:
    def make(**settings: Any) -> Tap:
        odd, value, _ = ODD[kind]
        with own(database) as run:
            for each in SHOP.split(";"):
                run(each)
            run(f"create table odd (id int primary key, v {odd})")
            run(f"insert into odd values (1, {value})")
        schemas = ["public" if kind == "postgresql" else database.name]
        return Tap(tmp_path, login(database, schemas=schemas, **settings))

    return make


def test_plain_run_needs_no_java(
    database: Any, kind: str, make_shop: Callable[..., Tap], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a first load, nor an increment, nor an idle run starts a JVM."""
    key = "datetime" if kind == "postgresql" else "timestamp"
    tap = make_shop(tables=["orders"], incremental_tables=[f"orders:updated:{key}"])
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    first = tap.run().succeeded()
    (stream,) = {each["stream"] for each in first.messages if each["type"] == "RECORD"}
    assert len(first.records(stream)) == 2
    idle = tap.run(state=first.final_state).succeeded()
    assert idle.records(stream) == []
    with own(database) as run:
        run("update orders set text = 'new', updated = '2024-01-03' where id = 1")
    few = tap.run(state=idle.final_state).succeeded()
    assert [(each["id"], each["text"]) for each in few.records(stream)] == [(1, "new")]


def test_jvm_comes_with_column_for_it(kind: str, make_shop: Callable[..., Tap]) -> None:
    """A column that only the JDBC driver reads gets its JVM within the run."""
    sent = make_shop().run().succeeded()
    rows = [each["record"] for each in sent.messages if each["type"] == "RECORD"]
    assert {"id": 1, "v": ODD[kind][2]} in rows


def test_values_have_same_texts(
    spark: SparkSession, kind: str, database: Any, opened: Callable[..., Database]
) -> None:
    asked = opened().connection
    assert isinstance(asked, PythonConnection)
    with connected(spark, login(database)) as jdbc:
        assert asked.rows(VALUES[kind]) == jdbc.rows(VALUES[kind])
        assert asked.identifier_quote() == jdbc.identifier_quote()
        assert asked.session != jdbc.session
        assert asked.server.split()[0] == jdbc.server.split()[0]


def test_refusals_have_same_codes(
    spark: SparkSession, kind: str, database: Any, opened: Callable[..., Database]
) -> None:
    guest = {"user": f"{database.name}_guest", "password": "guest"}
    with own(database) as run:
        run("create table hidden (secret int)")
        run(GUEST[kind].replace("{name}", guest["user"]))
    asked = opened(**guest).connection
    with connected(spark, login(database, **guest)) as jdbc:
        for sql, code in REFUSED[kind].items():
            found = refused(partial(asked.execute, sql))
            expected = refused(partial(jdbc.execute, sql))
            assert (type(found), found.code) == (type(expected), expected.code), sql
            assert found.code == code


def test_wrong_password_is_refused_as_by_driver(
    spark: SparkSession, opened: Callable[..., Database]
) -> None:
    error = refused(lambda: opened(password="wrong").connection)
    assert error.code == TapCode.CONNECTION_FAILED


def test_ended_session_is_replaced(
    kind: str, database: Any, opened: Callable[..., Database], short_pauses: None
) -> None:
    source, (end, zone, utc) = opened(), SESSIONS[kind]
    assert source.connection.rows("select 1") == [("1",)]
    before = source.connection.session
    with own(database) as run:
        run(end.replace("{session}", str(before)))
    until(lambda: source.connection.rows(zone) and source.connection.session != before, "another")
    assert source.connection.rows(zone) == [(utc,)]


def test_abort_ends_waiting(kind: str, opened: Callable[..., Database]) -> None:
    """A thread that waits for the server gets an error."""
    waiting = opened().another_connection()
    failed: list[SourceError] = []
    thread = threading.Thread(
        target=lambda: failed.append(refused(lambda: waiting.rows(SLOW[kind])))
    )
    thread.start()
    until(lambda: waiting.waits_since is not None, "the query")
    waiting.abort()
    thread.join(60)
    assert [each.code for each in failed] == [TapCode.CONNECTION_LOST]
    waiting.close()


def test_queries_are_described_by_driver(
    spark: SparkSession, kind: str, database: Any, opened: Callable[..., Database]
) -> None:
    with connected(spark, login(database)) as jdbc:
        asked = opened().connection
        assert asked.describe(DESCRIBED[kind]) == jdbc.describe(DESCRIBED[kind])
        assert asked.search_pattern("a_b%") == jdbc.search_pattern("a_b%")
        assert asked.metadata("getTableTypes") == jdbc.metadata("getTableTypes")
