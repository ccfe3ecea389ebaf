"""What is peculiar to PostgreSQL as psycopg asks it; see `test_python_connection`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from singer_spark.errors import DisturbedError
from tap.opened import login, opening, refused
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import Database as Made
    from servers.postgresql import PostgreSQL


@pytest.fixture
def database(postgresql: PostgreSQL) -> Made:
    return postgresql.new_database()


@pytest.fixture
def opened(database: Made) -> Iterator[Callable[..., Database]]:
    """Opens the database as the tap does."""
    with opening(**login(database)) as opened:
        yield opened


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
