"""Streams and replication keys made of SQL; the database describes its columns without running it.

A query is a table. A replication key that is an expression becomes one more column of its table and
the table's stream.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core.key_value import KeyType
from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.config.settings import QueryStream
from tap_spark_jdbc.config.stream_options import bare
from tap_spark_jdbc.dialects import Dialect
from tap_spark_jdbc.dialects.tables import Column, Table
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.plan.stream_choice import options_of
from tap_spark_jdbc.source.connection import Connection
from tap_spark_jdbc.source.discovery import native_type

if TYPE_CHECKING:
    from tap_spark_jdbc.config.settings import TapSettings

# PostgreSQL truncates names to 63 bytes.
_LONGEST_NAME = 60


def described_queries(
    connection: Connection,
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


def described_columns(connection: Connection, dialect: Dialect, sql: str) -> tuple[Column, ...]:
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
            f"more than one column is named {' or '.join(twins)}; give them different names with "
            "AS",
        )
    types = [native_type(row) for row in rows]
    if dialect.described_type is not None:
        types = _catalog_types(connection, dialect, rows)
    # An outer join produces NULLs in columns that have none in their table.
    return tuple(
        dialect.column(name, "" if kind == dialect.undeclared_type else kind, nullable=True)
        for name, kind in zip(names, types, strict=True)
    )


def _described(connection: Connection, dialect: Dialect, query: QueryStream) -> Table:
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
    connection: Connection, dialect: Dialect, rows: Sequence[dict[str, str | None]]
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


def with_computed_key(
    connection: Connection, dialect: Dialect, table: Table, settings: TapSettings
) -> Table:
    """The table; if the stream's replication key is an expression, it is read by a query that
    computes the key.
    """
    options = options_of(table.stream, settings)
    expression = options.replication_key
    if expression is None or "(" not in expression or table.column(expression) is not None:
        return table
    name = column_name(expression)
    if table.column(name) is not None:
        raise ConfigurationError(
            TapCode.BAD_KEY_EXPRESSION,
            f"stream {table.stream}: replication_key {expression!r} would be a column {name!r}, "
            "which the table has already; make a stream of it by `queries`",
        )
    # Needed to find late rows.
    writer = ", t.xmin, t.tableoid" if dialect.shares_snapshots and not table.is_view else ""
    key = f"({expression}\n)"
    is_integer = options.replication_key_type is KeyType.INTEGER
    if dialect.integer_expression and is_integer and not expression.lower().startswith("cast("):
        key = dialect.integer_expression.replace("{e}", key)
    sql = f"SELECT t.*{writer}, {key} AS {dialect.quote(name)} FROM {dialect.table(table)} t"
    try:
        *_, computed = described_columns(connection, dialect, sql)
    except SourceError as error:
        raise SourceError(
            TapCode.BAD_KEY_EXPRESSION,
            f"stream {table.stream}: the database refused replication_key {expression!r}: "
            f"{error.message}",
        ) from error
    return replace(table, columns=(*table.columns, computed), query=sql, computed_key=expression)


def column_name(expression: str) -> str:
    """The column's name, made of the expression's words: another expression, another key."""
    words = "_".join(re.findall(r"\w+", expression.lower()))
    if len(words.encode()) <= _LONGEST_NAME:
        return words
    beginning = words[:40].encode()[:40].decode(errors="ignore")
    return f"{beginning}_{hashlib.sha256(expression.encode()).hexdigest()[:12]}"
