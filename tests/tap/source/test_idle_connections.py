"""Readers' connections: many tables are read over few, and none is kept that could hold others
up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from tap.in_process import run_tap
from tap.opened import login
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.source.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from servers.mariadb import MariaDatabase

TABLES = 12


@pytest.fixture
def opened(spark: SparkSession, database: MariaDatabase) -> Iterator[Database]:
    del spark
    found = Database(TapSettings.from_config(login(database)))
    yield found
    found.close()


@pytest.mark.usefixtures("spark")
def test_many_small_tables_need_few_logins(database: MariaDatabase) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        for number in range(TABLES):
            cursor.execute(f"create table t{number} (id int primary key)")
            cursor.execute(f"insert into t{number} values (1), (2)")
        cursor.execute("show status like 'Connections'")
        before = int(cursor.fetchone()[1])
        sent = run_tap(login(database, schemas=[database.name])).succeeded()
        cursor.execute("show status like 'Connections'")
        logins = int(cursor.fetchone()[1]) - before
    assert all(
        sent.values(f"{database.name}-t{number}", "id").total() == 2 for number in range(TABLES)
    )
    assert logins < TABLES


def test_blocking_connections_are_closed(opened: Database) -> None:
    """A connection in a transaction, or one on which a statement failed, is not reused."""
    kept: list[Any] = []

    def use(sql: str, *, autocommit: bool = True) -> str:
        with opened.idle_connections.one(opened.gateway, opened.source) as (connection, begin):
            kept.append(connection)
            connection.setAutoCommit(autocommit)
            connection.prepareStatement(sql).execute()
        return begin

    assert use("select 1")
    # The same one, whose session has begun already.
    assert not use("select 1", autocommit=False)
    assert kept[1].isClosed()
    assert use("select 1")
    with pytest.raises(Py4JJavaError):
        use("select nothing")
    assert kept[3].isClosed()
    use("select 1")
    opened.disconnect()
    assert kept[4].isClosed()
