"""Discovery of a database's tables, by a handful of queries whatever their number.

Where a database's dialect has no queries of the catalog, the driver's `DatabaseMetaData` is asked.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from glob import escape
from typing import Any

from singer_spark.errors import ConfigurationError, SourceError, one_line
from tap_spark_jdbc.dialects import Dialect
from tap_spark_jdbc.dialects.tables import Column, Table, qualified
from tap_spark_jdbc.dialects.templates import CatalogQueries
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection import Connection
from tap_spark_jdbc.source.discovery_bounds import Bounds, Name

Row = Sequence[Any]
Described = dict[str, str | None]
_SIZED = {*"CHAR VARCHAR CHARACTER NCHAR NVARCHAR VARCHAR2 NVARCHAR2".split(), "CHARACTER VARYING"}
_SCALED = ("DECIMAL", "NUMERIC", "DEC", "NUMBER")
# What each query of a catalog says of a column, first.
_OF_COLUMN = ("table_schema", "table_name", "column_name", "position")
_FEW_TABLES = 20
_UNBOUNDED = 2**30 - 1
logger = logging.getLogger("tap-spark-jdbc")


def discover_tables(
    connection: Connection, dialect: Dialect, bounds: Bounds, *, defaults: bool = False
) -> list[Table]:
    """The tables and views within bounds, by schema and name, with `defaults` if wanted."""
    if bounds.only is not None and not bounds.only:
        return []
    if dialect.catalog is None:
        tables = tables_by_driver(connection, dialect, bounds)
    else:
        tables = _tables_by_catalog(connection, dialect, bounds)
    if defaults and dialect.catalog is not None:
        tables = _with_defaults(connection, dialect, bounds, tables)
    return sorted(tables, key=lambda table: (table.schema or "", table.name))


def _tables_by_catalog(connection: Connection, dialect: Dialect, bounds: Bounds) -> list[Table]:
    """The tables, from the database's own catalog."""
    assert dialect.catalog is not None
    condition = _condition(dialect, bounds)
    details = ("native_type", "nullable", "obstacle", "table_kind", "row_estimate")
    queries = {
        dialect.catalog.columns: (*_OF_COLUMN, *details),
        dialect.catalog.primary_keys: _OF_COLUMN,
        dialect.catalog.indexes: _OF_COLUMN,
    }
    broken: dict[Name, str] = {}
    try:
        described, *names = _rows(connection, dialect.catalog, queries, condition)
    except SourceError:
        broken = _broken_views(connection, dialect)
        if not broken:
            raise
        condition = _without(dialect, condition, [name for _, name in broken])
        described, *names = _rows(connection, dialect.catalog, queries, condition)
    columns: dict[Name, list[Row]] = defaultdict(list)
    for row in described:
        name = (row[0], row[1])
        if bounds.admit(*name, dialect.system_schemas):
            columns[name].append(row)
    keys, indexes = map(_names_by_table, names)
    unseen = [
        Table(*name, columns=(), is_view=True, obstacles={"": why})
        for name, why in broken.items()
        if bounds.admit(*name, dialect.system_schemas)
    ]
    return [
        *(_table(name, rows, keys, indexes, dialect) for name, rows in columns.items()),
        *unseen,
    ]


def _with_defaults(
    connection: Connection, dialect: Dialect, bounds: Bounds, tables: Sequence[Table]
) -> list[Table]:
    """The tables with the defaults of their columns, as far as the catalog shows them."""
    assert dialect.catalog is not None
    if dialect.catalog.defaults is None:
        return list(tables)
    wanted = {dialect.catalog.defaults: (*_OF_COLUMN, "filled")}
    (rows,) = _rows(connection, dialect.catalog, wanted, _condition(dialect, bounds))
    found: dict[Name, dict[str, str]] = defaultdict(dict)
    for schema, name, column, _, filled in rows:
        found[(schema, name)][column] = filled or ""
    return [replace(table, defaults=found.get((table.schema, table.name), {})) for table in tables]


def _broken_views(connection: Connection, dialect: Dialect) -> dict[Name, str]:
    """The views that the database can't read, each with its message about what is wrong."""
    found: dict[Name, str] = {}
    query = dialect.catalog.views if dialect.catalog is not None else None
    for schema, name in connection.rows(query) if query is not None else ():
        view = Table(schema, str(name), ())
        try:
            connection.describe(f"SELECT * FROM {dialect.table(view)}")
        except SourceError as error:
            found[(schema, view.name)] = f"{one_line(error)}; fix or drop the view"
    return found


def _without(dialect: Dialect, condition: str, names: Sequence[str]) -> str:
    """The condition, also for tables of other names."""
    others = f"NOT table_name IN ({', '.join(dialect.string(name) for name in names)})"
    return f"{condition} AND {others}" if condition else f"WHERE {others}"


def _rows(
    connection: Connection,
    catalog: CatalogQueries,
    queries: Mapping[str, Sequence[str]],
    condition: str,
) -> list[list[Row]]:
    """All rows of some queries with the given columns.

    They are packed into a few values, because a round trip to the JVM for each row would take
    minutes on a big catalog.
    """
    questions = []
    for query, columns in queries.items():
        bounded = f"SELECT * FROM ({query}) every {condition}"
        questions.append(
            catalog.as_json.replace("{columns}", ", ".join(columns)).replace("{query}", bounded)
        )
    if connection.holds:
        return [
            [row for (text,) in connection.rows(each) for row in json.loads(text or "[]")]
            for each in questions
        ]
    # Each query would need connections of its own, which cost more than the answer.
    parts = [
        f"SELECT '{n}' AS part, part{n}.* FROM ({each}) part{n}" for n, each in enumerate(questions)
    ]
    rows: list[list[Row]] = [[] for _ in questions]
    for part, text in connection.rows(" UNION ALL ".join(parts)):
        rows[int(part or 0)] += json.loads(text or "[]")
    return rows


def _table(
    name: Name,
    rows: list[Row],
    keys: Mapping[Name, list[str]],
    indexes: Mapping[Name, list[str]],
    dialect: Dialect,
) -> Table:
    ordered = sorted(rows, key=_position)
    *_, kind, row_estimate = ordered[0]
    # A database's claim that a view's column has no NULLs may be outdated, or ignore an outer join.
    words = (kind or "").split()
    is_view, is_parent, key = "view" in words, "parent" in words, tuple(keys.get(name, ()))
    # A row without a column only matters if there is no other.
    columns = [row for row in ordered if row[2]]
    return Table(
        schema=name[0],
        name=name[1],
        columns=tuple(
            dialect.column(row[2], row[4] or "", nullable=row[5] != "0" or is_view or is_parent)
            for row in columns
        ),
        obstacles={row[2] or "": row[6] for row in columns or ordered if row[6] is not None},
        is_view=is_view,
        filtered="filtered" in words,
        primary_key=() if is_parent else key,
        indexed=frozenset(indexes.get(name, ())),
        row_estimate=None if row_estimate is None else int(row_estimate),
        parent_key=key if is_parent else (),
    )


def _names_by_table(rows: Iterable[Row]) -> dict[Name, list[str]]:
    """Column names of each table, by position."""
    found: dict[Name, list[str]] = defaultdict(list)
    for row in sorted(rows, key=_position):
        found[(row[0], row[1])].append(row[2])
    return found


def _position(row: Row) -> int:
    return int(row[3])


def _condition(dialect: Dialect, bounds: Bounds) -> str:
    """The condition that limits the catalog's output to what is needed."""
    terms = []
    if (names := bounds.table_names()) is not None:
        terms.append(_among(dialect, "table_name", names))
    if dialect.has_schemas and (schemas := bounds.schema_names()) is not None:
        terms.append(_among(dialect, "table_schema", schemas))
    elif dialect.has_schemas and bounds.only is None and not bounds.names_system_schemas:
        terms += [
            f"NOT table_schema LIKE {dialect.string(_like(each))} ESCAPE '!'"
            for each in dialect.system_schemas
        ]
    return f"WHERE {' AND '.join(terms)}" if terms else ""


def _among(dialect: Dialect, column: str, names: Sequence[str]) -> str:
    exact = ", ".join(dialect.string(name) for name in names)
    lowered = ", ".join(dialect.string(name.lower()) for name in names)
    return f"({column} IN ({exact}) OR lower({column}) IN ({lowered}))"


def _like(pattern: str) -> str:
    """A glob without wildcards other than stars, as a LIKE pattern."""
    return re.sub("[!%_]", r"!\g<0>", pattern).replace("*", "%")


def tables_by_driver(connection: Connection, dialect: Dialect, bounds: Bounds) -> list[Table]:
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
    system = [*dialect.system_schemas]
    if dialect.system_schemas_query is not None:
        own = connection.rows(dialect.system_schemas_query)
        # Exact names, while those of the dialect are globs.
        system += [escape(name) for (name,) in own if name is not None]
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


def _tables(connection: Connection, dialect: Dialect) -> list[Described]:
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
            why = "schema %s: the driver lists %s tables at most; further ones are not found"
            logger.warning(why, schema, limit)
        rows += found
    return rows


def _report_undescribed(names: list[Name], bounds: Bounds) -> None:
    """Warn of tables without columns, which can't be read.

    Raises:
        SourceError: the user names one of them.
    """
    shown = {name: qualified(*name) for name in names}
    why = "the driver describes no column of {}; check what the user may read there"
    if named := [shown[name] for name in names if bounds.is_named(*name)]:
        raise SourceError(TapCode.STATEMENT_REFUSED, why.format(", ".join(named)))
    if names:
        logger.warning("left out: %s", why.format(", ".join(shown.values())))


def _columns(
    connection: Connection, dialect: Dialect, names: Mapping[Name, bool]
) -> tuple[dict[Name, list[Column]], dict[Name, dict[str, str]]]:
    """The columns of each schema's tables, and their defaults: all at once, or table by table if
    only a few are needed.

    `names` maps each table to whether it is a view.
    """
    rows: list[Described] = []
    schemas = {name[0] for name in names}
    are_many = len(names) > _FEW_TABLES and len(schemas) > _FEW_TABLES
    if are_many and dialect.described_at_most is None:
        rows = connection.metadata("getColumns", None, None, "%", "%")
    else:
        for schema in sorted(schemas, key=str):
            tables = [table for other, table in names if other == schema]
            rows += _columns_of(connection, dialect, schema, tables)
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
    connection: Connection, dialect: Dialect, schema: str | None, tables: list[str]
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
        only = connection.search_pattern(table)
        described = connection.metadata("getColumns", None, pattern, only, "%")
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


def _primary_key(connection: Connection, name: Name) -> tuple[str, ...]:
    rows = connection.metadata("getPrimaryKeys", None, *name)
    return tuple(
        str(row["COLUMN_NAME"]) for row in sorted(rows, key=lambda row: int(row["KEY_SEQ"] or 0))
    )


def _indexed(connection: Connection, name: Name) -> frozenset[str]:
    rows = connection.metadata("getIndexInfo", None, *name, False, True)
    first = [row for row in rows if str(row["ORDINAL_POSITION"]) == "1" and row["COLUMN_NAME"]]
    return frozenset(str(row["COLUMN_NAME"]) for row in first)
