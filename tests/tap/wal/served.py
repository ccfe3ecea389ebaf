"""Slots of real servers, asked without a JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg

from servers.postgresql import PostgreSQL, running
from singer_spark.errors import SourceError
from tap_spark_jdbc.dialects.postgresql import POSTGRESQL
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection_errors import with_hint
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.wal.log_source import log_server
from tap_spark_jdbc.wal.publication import Publication
from tap_spark_jdbc.wal.slot import LogSlot


class Asked:
    """A connection whose refusals are the tap's."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def rows(self, sql: str) -> list[Any]:
        return self.execute(sql).fetchall()

    def execute(self, sql: str) -> psycopg.Cursor[Any]:
        try:
            return self.connection.execute(sql)
        except psycopg.Error as error:
            raise SourceError(
                TapCode.STATEMENT_REFUSED,
                with_hint(str(error).splitlines()[0], error.sqlstate or ""),
            ) from error


@contextmanager
def asked(dsn: str) -> Iterator[Database]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        parts = {"connection": Asked(connection), "source": SimpleNamespace(dialect=POSTGRESQL)}
        yield cast("Database", SimpleNamespace(**parts))


@contextmanager
def served(**settings: str) -> Iterator[str]:
    """The DSN of a server of these settings, in a folder that another account can enter."""
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        Path(folder).chmod(0o755)
        with running(Path(folder) / "server", **settings) as facts:
            yield PostgreSQL(**facts).database("postgres").dsn


def slot_of(database: Database, name: str) -> LogSlot:
    server = log_server(database)
    return LogSlot(database, server, name, Publication(database, server, "published"))
