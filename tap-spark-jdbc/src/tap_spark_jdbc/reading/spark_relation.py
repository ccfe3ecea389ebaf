"""A subselect of the source as a Spark relation, which one task reads over JDBC."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tap_spark_jdbc.source.jdbc_source import JdbcSource


def relation(session: SparkSession, source: JdbcSource, select: str, schema: str, fetch_size: int) -> DataFrame:
    """The rows of a subselect, with the types of `schema`."""
    # `DataFrameReader.jdbc`, which takes predicates, writes the names of connection properties in lower case, and
    # drivers recognise most of them only in their own spelling.
    options = {**source.reader_options(), "customSchema": schema}
    return (
        session.read.format("jdbc").options(**options).option("fetchsize", fetch_size).option("dbtable", select).load()
    )
