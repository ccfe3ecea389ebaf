"""SQLite is asked by Python's own module, and by its JDBC driver where that has other texts, or a
newer library.
"""

from __future__ import annotations

import math
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from end_to_end.marked import until
from tap.opened import connected, opening, refused
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection
from tap_spark_jdbc.source.python_connection import UnsuitableError
from tap_spark_jdbc.source.sqlite_connection import SqliteConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Quotes = tuple[Callable[[float], str | None], Callable[[], str]]
# The last ones are for the driver: a float, bytes, and a function of newer libraries.
ASKED = [
    "select 1 as n, 'é😀' as t, null as z, '' as e, 9223372036854775807 as m",
    "select typeof(v), hex(v), quote(v) from t order by id",
    "select 0.1 + 0.2 as f",
    "select x'00ff' as b",
    "select octet_length('é') as o",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a b%20#é.db"
    with sqlite3.connect(made) as connection:
        connection.executescript(
            "create table t (id integer primary key, v); insert into t (v) values (1), (1.5), "
            "('x'), (x'00'), (null)"
        )
    connection.close()
    return made


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., Database]]:
    with opening(jdbc_url=f"jdbc:sqlite:{path}") as opened:
        yield opened


def test_answers_are_those_of_driver(
    spark: SparkSession, path: Path, opened: Callable[..., Database]
) -> None:
    asked = opened().connection
    assert isinstance(asked, SqliteConnection)
    with connected(spark, {"jdbc_url": f"jdbc:sqlite:{path}"}) as jdbc:
        for sql in ASKED:
            assert asked.rows(sql) == jdbc.rows(sql), sql


@given(st.floats() | st.integers(-(10**18), 10**18).map(lambda n: n / 1000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example(1e15)
@example(1e14)
@example(-0.0)
@example(1e-5)
@example(0.1 + 0.2)
def test_floats_are_quoted_as_by_driver(of_both: Quotes, number: float) -> None:
    """A float that has the same text in all versions of the library, or no text here."""
    own, driver = of_both
    if (found := own(number)) is not None:
        assert found == driver()
    short = float(f"{number:.15g}") == number
    assert (found is None) == (not short or not math.isfinite(number))


@pytest.fixture
def of_both(spark: SparkSession, path: Path, opened: Callable[..., Database]) -> Iterator[Quotes]:
    """What quotes a stored float in Python, or returns None, and what does by the driver."""
    asked, quote = opened().connection, "select quote(v) from t where id = 1"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as own,
        connected(spark, {"jdbc_url": f"jdbc:sqlite:{path}"}) as jdbc,
    ):

        def quoted(number: float) -> str | None:
            own.execute("update t set v = ? where id = 1", [number])
            try:
                return asked._result(quote)[0][0]
            except UnsuitableError:
                return None

        yield quoted, lambda: str(jdbc.rows(quote)[0][0])


def test_idle_run_needs_no_java(sqlite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tap, connection = sqlite(
        "create table orders (id integer primary key, v text, r real); "
        "insert into orders values (1, 'a', 0.5)",
        incremental_tables=["orders:id:integer"],
    )
    first = tap.run().succeeded()
    assert len(first.records("orders")) == 1
    with monkeypatch.context() as without:
        without.setenv("JAVA_HOME", "/nowhere")
        idle = tap.run(state=first.final_state).succeeded()
    assert (idle.records("orders"), idle.final_state) == ([], first.final_state)
    connection.execute("insert into orders values (2, 'b', 1.5)")
    few = tap.run(state=idle.final_state).succeeded()
    assert few.records("orders") == [{"id": 2, "v": "b", "r": 1.5}]


def test_missing_file_is_not_made(spark: SparkSession, path: Path) -> None:
    gone = path.with_name("gone.db")
    source = Database(TapSettings.from_config({"jdbc_url": f"jdbc:sqlite:{gone}"}))
    assert refused(lambda: source.connection).code == TapCode.CONNECTION_FAILED
    assert not gone.exists()


def test_nothing_can_be_written(opened: Callable[..., Database]) -> None:
    error = refused(lambda: opened().connection.execute("delete from t"))
    assert error.code == TapCode.STATEMENT_REFUSED


def test_parameters_are_for_driver(
    spark: SparkSession, path: Path, opened: Callable[..., Database]
) -> None:
    source = opened(jdbc_url=f"jdbc:sqlite:{path}?cache_size=100")
    assert isinstance(source.connection, JdbcConnection)


def test_signal_ends_statement(opened: Callable[..., Database]) -> None:
    """A signal's handler runs while a statement does, and the statement ends."""
    asked = opened().connection
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"

    def stop(*_: object) -> None:
        raise InterruptedError

    def send() -> None:
        until(lambda: asked.waits_since is not None, "the statement")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, stop)
    try:
        sender = threading.Thread(target=send)
        sender.start()
        with pytest.raises(InterruptedError):
            asked.rows(endless)
        sender.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert asked.rows("select 1") == [("1",)]
