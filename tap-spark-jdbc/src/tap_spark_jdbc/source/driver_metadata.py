"""Discovery by the driver's `DatabaseMetaData`, for databases whose dialect has no queries of the
catalog.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping
from glob import escape

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.dialects import Dialect
from tap_spark_jdbc.dialects.tables import Column, Table
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.discovery_bounds import Bounds, Name
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

Described = dict[str, str | None]

_SIZED = (
    "CHAR",
    "VARCHAR",
    "CHARACTER",
    "CHARACTER VARYING",
    "NCHAR",
    "NVARCHAR",
    "VARCHAR2",
    "NVARCHAR2",
)
_SCALED = ("DECIMAL", "NUMERIC", "DEC", "NUMBER")
_FEW_TABLES = 20
_UNBOUNDED = 2**30 - 1
logger = logging.getLogger("tap-spark-jdbc")


def tables_by_driver(connection: JdbcConnection, dialect: Dialect, bounds: Bounds) -> list[Table]:
    """The tables and views within bounds.

    Raises:
        ConfigurationError: the database quotes names differently from its dialect.
    """
    mark = connection.identifier_quote()
    if mark != dialect.quote_mark:
        # The wrong mark turns a name into a string, and every value into its column's name.
        raise ConfigurationError(
            TapCode.DRIVER_UNKNOWN,
            f"this database quotes names with {mark!r}: no dialect of the tap knows it yet",
        )
    own = (
        []
        if dialect.system_schemas_query is None
        else connection.rows(dialect.system_schemas_query)
    )
    # Exact names, while those of the dialect are globs.
    system = [*dialect.system_schemas, *(escape(name) for (name,) in own if name is not None)]
    found: dict[Name, bool] = {}
    for row in _tables(connection, dialect):
        name = (row["TABLE_SCHEM"] if dialect.has_schemas else None, str(row["TABLE_NAME"]))
        if bounds.admit(*name, system):
            found[name] = "VIEW" in str(row["TABLE_TYPE"])
    columns, defaults = _columns(connection, dialect, found)
    _report_undescribed([name for name in found if not columns[name]], bounds)
    return [
        Table(
            *name,
            columns=tuple(columns[name]),
            defaults=defaults[name],
            is_view=is_view,
            primary_key=() if is_view else _primary_key(connection, name),
            indexed=frozenset() if is_view else _indexed(connection, name),
        )
        for name, is_view in found.items()
        if columns[name]
    ]


def _tables(connection: JdbcConnection, dialect: Dialect) -> list[Described]:
    """All tables and views; schema by schema if the driver truncates the list of all."""
    rows = connection.metadata("getTables", None, None, "%", dialect.table_types)
    limit = dialect.described_at_most
    if limit is None or len(rows) < limit:
        return rows
    rows = []
    for schema in [str(row["TABLE_SCHEM"]) for row in connection.metadata("getSchemas")]:
        found = connection.metadata(
            "getTables", None, connection.search_pattern(schema), "%", dialect.table_types
        )
        if len(found) >= limit:
            logger.warning(
                "schema %s: the driver lists %s tables at most; further ones are not found",
                schema,
                limit,
            )
        rows += found
    return rows


def _report_undescribed(names: list[Name], bounds: Bounds) -> None:
    """Warn of tables without columns, which can't be read.

    Raises:
        SourceError: the user names one of them.
    """
    shown = {name: name[1] if name[0] is None else f"{name[0]}.{name[1]}" for name in names}
    why = "the driver describes no column of {}; look at what the user may read there"
    if named := [shown[name] for name in names if bounds.is_named(*name)]:
        raise SourceError(TapCode.STATEMENT_REFUSED, why.format(", ".join(named)))
    if names:
        logger.warning("left out: %s", why.format(", ".join(shown.values())))


def _columns(
    connection: JdbcConnection, dialect: Dialect, names: Mapping[Name, bool]
) -> tuple[dict[Name, list[Column]], dict[Name, dict[str, str]]]:
    """The columns of each schema's tables, and their defaults: all at once, or table by table if
    only a few are needed.

    `names` maps each table to whether it is a view.
    """
    rows: list[Described] = []
    schemas = {name[0] for name in names}
    if (
        len(names) > _FEW_TABLES
        and len(schemas) > _FEW_TABLES
        and dialect.described_at_most is None
    ):
        rows = connection.metadata("getColumns", None, None, "%", "%")
    else:
        for schema in sorted(schemas, key=str):
            rows += _columns_of(
                connection, dialect, schema, [table for other, table in names if other == schema]
            )
    found: dict[Name, list[Column]] = defaultdict(list)
    defaults: dict[Name, dict[str, str]] = defaultdict(dict)
    for row in sorted(rows, key=lambda each: int(each["ORDINAL_POSITION"] or 0)):
        schema = row["TABLE_SCHEM"] if dialect.has_schemas else None
        name = (schema, str(row["TABLE_NAME"]))
        if filled := row.get("COLUMN_DEF"):
            defaults[name][str(row["COLUMN_NAME"])] = filled
        nullable = names.get(name, False) or str(row["NULLABLE"]) != "0"
        found[name].append(
            dialect.column(str(row["COLUMN_NAME"]), native_type(row), nullable=nullable)
        )
    return found, defaults


def _columns_of(
    connection: JdbcConnection, dialect: Dialect, schema: str | None, tables: list[str]
) -> list[Described]:
    """The driver's descriptions of the columns of these tables, and possibly of others."""
    pattern = None if schema is None else connection.search_pattern(schema)
    if len(tables) > _FEW_TABLES:
        # Not of all schemas, as the database's own schemas have thousands.
        found = connection.metadata("getColumns", None, pattern, "%", "%")
        if dialect.described_at_most is None or len(found) < dialect.described_at_most:
            return found
    rows = []
    for table in tables:
        described = connection.metadata(
            "getColumns", None, pattern, connection.search_pattern(table), "%"
        )
        if not described and not re.search("[%_]", f"{schema or ''}{table}"):
            # HSQLDB takes a name without wildcards literally, including escapes.
            described = connection.metadata("getColumns", None, schema, table, "%")
        rows += described
    return rows


def native_type(row: Described) -> str:
    """The type with its parameters, which `getColumns` reports separately from its name."""
    # SQL Server's names for identity columns: `int identity`, `decimal() identity`.
    name = re.sub(r"(?i)(\(\))? identity$", "", str(row["TYPE_NAME"]))
    if not 0 < int(row["COLUMN_SIZE"] or 0) < _UNBOUNDED:
        return name
    if name.upper() in _SCALED:
        return f"{name}({row['COLUMN_SIZE']},{row['DECIMAL_DIGITS'] or 0})"
    return f"{name}({row['COLUMN_SIZE']})" if name.upper() in _SIZED else name


def _primary_key(connection: JdbcConnection, name: Name) -> tuple[str, ...]:
    rows = connection.metadata("getPrimaryKeys", None, *name)
    return tuple(
        str(row["COLUMN_NAME"]) for row in sorted(rows, key=lambda row: int(row["KEY_SEQ"] or 0))
    )


def _indexed(connection: JdbcConnection, name: Name) -> frozenset[str]:
    rows = connection.metadata("getIndexInfo", None, *name, False, True)
    first = [row for row in rows if str(row["ORDINAL_POSITION"]) == "1" and row["COLUMN_NAME"]]
    return frozenset(str(row["COLUMN_NAME"]) for row in first)
