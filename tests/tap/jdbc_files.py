"""Databases in files that only their own driver can make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tap.opened import source_of
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of a database that the tap does not know.
HSQLDB = {"driver": "org.hsqldb.jdbc.JDBCDriver", "driver_package": "org.hsqldb:hsqldb:2.7.4"}


@contextmanager
def making(spark: SparkSession, url: str, **settings: str) -> Iterator[JdbcConnection]:
    """A connection that may make the database: without the properties that keep the tap from doing
    so.
    """
    source = source_of({"jdbc_url": url, **settings})
    free = replace(source.dialect, properties={}, session_statements=())
    with closing(
        JdbcConnection.open(spark.sparkContext._gateway, replace(source, dialect=free))
    ) as connection:
        yield connection
