"""ADBC's own database object, that all connections of a run share."""

from __future__ import annotations

from typing import Any

from adbc_driver_manager import AdbcConnection

from tap.opened import source_of
from tap_spark_jdbc.source.libpq import ColumnarDatabase, conninfo


def test_failed_run_ends_by_its_own_error(postgresql: Any) -> None:
    """ADBC refuses to close a database with open connections.

    That must not hide why the run ended.
    """
    login = postgresql.new_database()
    source = source_of({"jdbc_url": login.jdbc_url, "user": login.user, "password": login.password})
    database = ColumnarDatabase()
    with AdbcConnection(database.opened(conninfo(source))):
        database.close()
    database.close()
