"""Replication keys that are expressions: their value becomes one more column of the table and its
stream.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core.key_value import KeyType
from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.plan.stream_choice import options_of
from tap_spark_jdbc.source.queries import described_columns

if TYPE_CHECKING:
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.dialects.tables import Table
    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

# PostgreSQL truncates names to 63 bytes.
_LONGEST_NAME = 60


def with_computed_key(
    connection: JdbcConnection, dialect: Dialect, table: Table, settings: TapSettings
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
    is_cast = expression.lower().startswith("cast(")
    if (
        dialect.integer_expression
        and options.replication_key_type is KeyType.INTEGER
        and not is_cast
    ):
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
    """The column's name, made from the expression's words, so that another expression is another
    key.
    """
    words = "_".join(re.findall(r"\w+", expression.lower()))
    if len(words.encode()) <= _LONGEST_NAME:
        return words
    beginning = words[:40].encode()[:40].decode(errors="ignore")
    return f"{beginning}_{hashlib.sha256(expression.encode()).hexdigest()[:12]}"
