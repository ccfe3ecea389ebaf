"""A database as the tap's own parts open it, for tests of those parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from singer_spark.errors import SourceError
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.source.database import Database as Source
from tap_spark_jdbc.source.discovery import discover_tables
from tap_spark_jdbc.source.discovery_bounds import Bounds
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection
from tap_spark_jdbc.source.jdbc_source import JdbcSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import Database, PostgreSQL
    from tap_spark_jdbc.dialects.tables import Column, Table


def login(database: Database, **settings: Any) -> dict[str, Any]:
    """The config of a PostgreSQL database."""
    return {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        **settings,
    }


@contextmanager
def filled(server: PostgreSQL, script: str) -> Iterator[tuple[Database, psycopg.Connection[Any]]]:
    """A new database of the server, made by a script, and a connection that commits each
    statement.
    """
    database = server.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(script)
        yield database, connection


def source_of(config: dict[str, Any]) -> JdbcSource:
    return JdbcSource.of(TapSettings.from_config(config))


@contextmanager
def opening(**config: Any) -> Iterator[Callable[..., Source]]:
    """Opens a source as the tap does, with more settings; each is closed at the end."""
    made: list[Source] = []

    def opened(**settings: Any) -> Source:
        made.append(Source(TapSettings.from_config({**config, **settings})))
        return made[-1]

    yield opened
    for each in made:
        each.close()


def refused(ask: Callable[[], object]) -> SourceError:
    """The refusal that a question must end with."""
    with pytest.raises(SourceError) as raised:
        ask()
    return raised.value


@contextmanager
def connected(spark: SparkSession, config: dict[str, Any]) -> Iterator[JdbcConnection]:
    with closing(JdbcConnection.open(spark.sparkContext._gateway, source_of(config))) as connection:
        yield connection


def discovered(
    spark: SparkSession, config: dict[str, Any], bounds: Bounds | None = None
) -> dict[str, Table]:
    """The tables by stream name, under the config's bounds or these."""
    settings = TapSettings.from_config(config)
    with connected(spark, config) as connection:
        found = discover_tables(
            connection,
            source_of(config).dialect,
            bounds or Bounds(settings.schemas, settings.tables),
        )
    return {table.stream: table for table in found}


def read(
    spark: SparkSession,
    config: dict[str, Any],
    table: Table,
    *columns: Column,
    order: str | None = None,
) -> list[Any]:
    """The rows as Spark has them after the columns' readings; instants as text in UTC."""
    source = source_of(config)
    dialect = source.dialect
    chosen = columns or table.columns
    selected = ", ".join(
        f"{dialect.select(column)} AS {dialect.quote(f'c{n}')}" for n, column in enumerate(chosen)
    )
    ordered = f", {dialect.quote(order)} AS {dialect.quote('o')}" if order else ""
    schema = ", ".join(f"c{n} {column.reading.read_as}" for n, column in enumerate(chosen))
    reader = (
        spark.read.format("jdbc").options(**source.reader_options()).option("customSchema", schema)
    )
    frame = reader.option(
        "dbtable", f"(SELECT {selected}{ordered} FROM {dialect.table(table)}) s"
    ).load()
    if order:
        frame = frame.orderBy("o")
    values = [column.reading.becomes.replace("{c}", f"c{n}") for n, column in enumerate(chosen)]
    zoned = "TIMESTAMP WITH TIME ZONE"
    shown = [
        f"CAST({value} AS STRING)" if column.sql_type.name == zoned else value
        for value, column in zip(values, chosen, strict=True)
    ]
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        return [tuple(row) for row in frame.selectExpr(*shown).collect()]
