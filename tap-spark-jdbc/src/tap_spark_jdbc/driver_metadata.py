"""Discovery by the driver's `DatabaseMetaData`, for databases whose own catalog no dialect queries."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.tables import Column, Table

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.discovery import Bounds, Name
    from tap_spark_jdbc.jdbc_connection import JdbcConnection

Described = dict[str, str | None]

_SIZED = ("CHAR", "VARCHAR", "CHARACTER", "CHARACTER VARYING")
_SCALED = ("DECIMAL", "NUMERIC", "DEC")
_FEW_TABLES = 20
_UNBOUNDED = 2**31 - 1


def tables_by_driver(connection: JdbcConnection, dialect: Dialect, bounds: Bounds) -> list[Table]:
    """The tables and views within bounds.

    Raises:
        ConfigurationError: the database quotes names otherwise than its dialect does.
        SourceError: the database refused.
    """
    mark = connection.identifier_quote()
    if mark != dialect.quote_mark:
        # The wrong mark makes a string of a name, and every value the name of its column.
        raise ConfigurationError(f"this database quotes names with {mark!r}: no dialect of the tap knows it yet")
    found: dict[Name, bool] = {}
    for row in connection.metadata("getTables", None, None, "%", dialect.table_types):
        name = (row["TABLE_SCHEM"] if dialect.has_schemas else None, str(row["TABLE_NAME"]))
        if bounds.admit(*name, dialect.system_schemas):
            found[name] = "VIEW" in str(row["TABLE_TYPE"])
    columns = _columns(connection, dialect, list(found))
    return [
        Table(
            *name,
            columns=tuple(columns[name]),
            is_view=is_view,
            primary_key=() if is_view else _primary_key(connection, name),
            indexed=frozenset() if is_view else _indexed(connection, name),
        )
        for name, is_view in found.items()
        if columns[name]
    ]


def _columns(connection: JdbcConnection, dialect: Dialect, names: list[Name]) -> dict[Name, list[Column]]:
    """All tables' columns at once, or table by table where only a few are asked for."""
    rows: list[Described] = []
    if len(names) > _FEW_TABLES:
        rows = connection.metadata("getColumns", None, None, "%", "%")
    else:
        for schema, table in names:
            patterns = [None if schema is None else connection.search_pattern(schema), connection.search_pattern(table)]
            rows += connection.metadata("getColumns", None, *patterns, "%")
    found: dict[Name, list[Column]] = defaultdict(list)
    for row in sorted(rows, key=lambda each: int(each["ORDINAL_POSITION"] or 0)):
        schema = row["TABLE_SCHEM"] if dialect.has_schemas else None
        nullable = str(row["NULLABLE"]) != "0"
        column = dialect.column(str(row["COLUMN_NAME"]), native_type(row), nullable=nullable)
        found[(schema, str(row["TABLE_NAME"]))].append(column)
    return found


def native_type(row: Described) -> str:
    """The type with its parameters, which `getColumns` tells apart from its name."""
    name = str(row["TYPE_NAME"])
    if not 0 < int(row["COLUMN_SIZE"] or 0) < _UNBOUNDED:
        return name
    if name.upper() in _SCALED:
        return f"{name}({row['COLUMN_SIZE']},{row['DECIMAL_DIGITS'] or 0})"
    return f"{name}({row['COLUMN_SIZE']})" if name.upper() in _SIZED else name


def _primary_key(connection: JdbcConnection, name: Name) -> tuple[str, ...]:
    rows = connection.metadata("getPrimaryKeys", None, *name)
    return tuple(str(row["COLUMN_NAME"]) for row in sorted(rows, key=lambda row: int(row["KEY_SEQ"] or 0)))


def _indexed(connection: JdbcConnection, name: Name) -> frozenset[str]:
    rows = connection.metadata("getIndexInfo", None, *name, False, True)
    first = [row for row in rows if str(row["ORDINAL_POSITION"]) == "1" and row["COLUMN_NAME"]]
    return frozenset(str(row["COLUMN_NAME"]) for row in first)
