"""Discovery of a database's tables, by a handful of queries whatever their number."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from singer_spark.errors import SourceError, one_line
from tap_spark_jdbc.dialects import CatalogQueries, Dialect
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.source.discovery_bounds import Bounds, Name
from tap_spark_jdbc.source.driver_metadata import tables_by_driver
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

Row = Sequence[Any]


def discover_tables(
    connection: JdbcConnection, dialect: Dialect, bounds: Bounds, *, defaults: bool = False
) -> list[Table]:
    """The tables and views within bounds, by schema and name, optionally with the defaults of their
    columns.
    """
    if bounds.only is not None and not bounds.only:
        return []
    if dialect.catalog is None:
        tables = tables_by_driver(connection, dialect, bounds)
    else:
        tables = _tables_by_catalog(connection, dialect, bounds)
    if defaults and dialect.catalog is not None:
        tables = _with_defaults(connection, dialect, bounds, tables)
    return sorted(tables, key=lambda table: (table.schema or "", table.name))


def _tables_by_catalog(connection: JdbcConnection, dialect: Dialect, bounds: Bounds) -> list[Table]:
    """The tables, from the database's own catalog."""
    assert dialect.catalog is not None
    condition = _condition(dialect, bounds)
    wanted = ("table_schema", "table_name", "column_name", "position")
    details = ("native_type", "nullable", "obstacle", "table_kind", "row_estimate")
    queries = {
        dialect.catalog.columns: (*wanted, *details),
        dialect.catalog.primary_keys: wanted,
        dialect.catalog.indexes: wanted,
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
        Table(*name, columns=(), is_view=True, obstacles={"": why}) for name, why in broken.items()
    ]
    return [
        *(_table(name, rows, keys, indexes, dialect) for name, rows in columns.items()),
        *(
            table
            for table in unseen
            if bounds.admit(table.schema, table.name, dialect.system_schemas)
        ),
    ]


def _with_defaults(
    connection: JdbcConnection, dialect: Dialect, bounds: Bounds, tables: Sequence[Table]
) -> list[Table]:
    """The tables with the defaults of their columns, as far as the database's catalog shows
    them.
    """
    assert dialect.catalog is not None
    if dialect.catalog.defaults is None:
        return list(tables)
    wanted = {
        dialect.catalog.defaults: (
            "table_schema",
            "table_name",
            "column_name",
            "position",
            "filled",
        )
    }
    (rows,) = _rows(connection, dialect.catalog, wanted, _condition(dialect, bounds))
    found: dict[Name, dict[str, str]] = defaultdict(dict)
    for schema, name, column, _, filled in rows:
        found[(schema, name)][column] = filled or ""
    return [replace(table, defaults=found.get((table.schema, table.name), {})) for table in tables]


def _broken_views(connection: JdbcConnection, dialect: Dialect) -> dict[Name, str]:
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
    connection: JdbcConnection,
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
