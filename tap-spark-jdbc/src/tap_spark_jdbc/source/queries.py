"""Streams made of SQL.

A query is a table whose columns the database describes without running it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.config.query_text import bare
from tap_spark_jdbc.config.settings import QueryStream
from tap_spark_jdbc.dialects import Dialect
from tap_spark_jdbc.dialects.tables import Column, Table
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.driver_metadata import native_type
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection


def described_queries(
    connection: JdbcConnection,
    dialect: Dialect,
    queries: Sequence[QueryStream],
    tables: Collection[str],
) -> list[Table]:
    """Each query as a table without schema; none of them is run.

    Raises:
        ConfigurationError: a query's name is a table's stream, or its column names are not unique.
        SourceError: the database refused one.
    """
    taken = [query.name for query in queries if query.name in tables]
    if taken:
        raise ConfigurationError(
            TapCode.BAD_QUERY,
            f"queries: {', '.join(map(repr, taken))} is a table's stream already; give the query "
            "another name",
        )
    return [_described(connection, dialect, query) for query in queries]


def described_columns(connection: JdbcConnection, dialect: Dialect, sql: str) -> tuple[Column, ...]:
    """The columns of a query, each with its reading; any of them may be NULL.

    Raises:
        ConfigurationError: two have the same name.
    """
    rows = connection.describe(f"SELECT * FROM (\n{sql}\n) q")
    names = [str(row["COLUMN_NAME"]) for row in rows]
    twins = sorted({repr(name) for name in names if names.count(name) > 1})
    if twins:
        raise ConfigurationError(
            TapCode.BAD_QUERY,
            f"more than one column is named {' or '.join(twins)}; name them apart by AS",
        )
    types = [native_type(row) for row in rows]
    if dialect.described_type is not None:
        types = _catalog_types(connection, dialect, rows)
    # An outer join produces NULLs in columns that have none in their table.
    return tuple(
        dialect.column(name, "" if kind == dialect.undeclared_type else kind, nullable=True)
        for name, kind in zip(names, types, strict=True)
    )


def _described(connection: JdbcConnection, dialect: Dialect, query: QueryStream) -> Table:
    table = Table(None, query.name, (), query=bare(query.sql))
    try:
        return replace(table, columns=described_columns(connection, dialect, table.query or ""))
    except ConfigurationError as error:
        raise ConfigurationError(
            TapCode.BAD_QUERY, f"queries: {query.name!r}: {error.message}"
        ) from error
    except SourceError as error:
        raise SourceError(
            TapCode.BAD_QUERY,
            f"queries: the database refused the SQL of {query.name!r}: {error.message}",
        ) from error


def _catalog_types(
    connection: JdbcConnection, dialect: Dialect, rows: Sequence[dict[str, str | None]]
) -> list[str]:
    """The types as the database's own catalog names them; a type that it can't name keeps the
    driver's name.
    """
    assert dialect.described_type is not None
    expressions = [
        dialect.described_type.replace("{precision}", str(int(row["COLUMN_SIZE"] or 0)))
        .replace("{scale}", str(int(row["DECIMAL_DIGITS"] or 0)))
        .replace("{name}", dialect.string(str(row["TYPE_NAME"])))
        for row in rows
    ]
    (found,) = connection.rows(
        f"SELECT {', '.join(f'{each} AS t{index}' for index, each in enumerate(expressions))}"
    )
    return [kind or str(row["TYPE_NAME"]) for kind, row in zip(found, rows, strict=True)]
