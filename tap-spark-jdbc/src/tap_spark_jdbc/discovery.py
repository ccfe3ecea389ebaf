"""Which tables a database has, asked in a handful of queries whatever their number."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tap_spark_jdbc.tables import Table

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects import CatalogQueries, Dialect
    from tap_spark_jdbc.jdbc_connection import JdbcConnection

Name = tuple[str | None, str]
Row = Sequence[Any]


@dataclass(frozen=True)
class Bounds:
    """What discovery is limited to; patterns fit names in any case.

    Attributes:
        schemas: Glob patterns; empty: all but the system's.
        tables: Glob patterns `schema.table` or `table`; empty: all.
        only: Exact (schema, table) pairs, of a catalog's selected streams; None: no such limit.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    only: Collection[Name] | None = None

    def admit(self, schema: str | None, table: str, system_schemas: Iterable[str]) -> bool:
        """Whether this table is asked for."""
        if self.only is not None:
            return (schema, table) in self.only
        if schema is not None and not self._admit_schema(schema, system_schemas):
            return False
        full = table if schema is None else f"{schema}.{table}"
        return not self.tables or any(fits(full, each) or fits(table, each) for each in self.tables)

    def _admit_schema(self, schema: str, system_schemas: Iterable[str]) -> bool:
        if self.schemas:
            return any(fits(schema, pattern) for pattern in self.schemas)
        return not any(fnmatchcase(schema, pattern) for pattern in system_schemas)

    def is_named(self, schema: str | None, table: str) -> bool:
        """Whether the user asks for this very table."""
        full = table if schema is None else f"{schema}.{table}"
        plain = [each for each in self.tables if not is_pattern(each)]
        return self.only is not None or any(fits(full, each) or fits(table, each) for each in plain)

    def table_names(self) -> list[str] | None:
        """The bare names to ask for, where nothing else can be meant; None where all must be looked at."""
        if self.only is not None:
            return sorted({table for _, table in self.only})
        if not self.tables or any(is_pattern(each) for each in self.tables):
            return None
        # A dot may part schema and table, or stand in the table's name: both are asked for.
        parts = [each.split(".") for each in self.tables]
        return sorted({".".join(part[start:]) for part in parts for start in range(len(part))})

    def schema_names(self) -> list[str] | None:
        """The schemas to ask for, where they are named; None where all must be looked at."""
        if self.only is not None:
            return sorted({schema for schema, _ in self.only if schema is not None})
        return None if not self.schemas or any(is_pattern(each) for each in self.schemas) else sorted(self.schemas)


def discover_tables(connection: JdbcConnection, dialect: Dialect, bounds: Bounds) -> list[Table]:
    """The tables and views within bounds, by schema and name.

    Raises:
        SourceError: the database refused.
    """
    from tap_spark_jdbc.driver_metadata import tables_by_driver

    if bounds.only is not None and not bounds.only:
        return []
    if dialect.catalog is None:
        tables = tables_by_driver(connection, dialect, bounds)
    else:
        tables = _tables_by_catalog(connection, dialect, bounds)
    return sorted(tables, key=lambda table: (table.schema or "", table.name))


def _tables_by_catalog(connection: JdbcConnection, dialect: Dialect, bounds: Bounds) -> list[Table]:
    """By the database's own catalog."""
    assert dialect.catalog is not None
    condition = _condition(dialect, bounds)
    wanted = ("table_schema", "table_name", "column_name", "position")
    details = ("native_type", "nullable", "table_kind", "row_estimate")
    asked = {
        dialect.catalog.columns: (*wanted, *details),
        dialect.catalog.primary_keys: wanted,
        dialect.catalog.indexes: wanted,
    }
    described, *names = _rows(connection, dialect.catalog, asked, condition)
    columns: dict[Name, list[Row]] = defaultdict(list)
    for row in described:
        name = (row[0], row[1])
        if bounds.admit(*name, dialect.system_schemas):
            columns[name].append(row)
    keys, indexes = map(_names_by_table, names)
    return [_table(name, rows, keys, indexes, dialect) for name, rows in columns.items()]


def _rows(
    connection: JdbcConnection, catalog: CatalogQueries, asked: Mapping[str, Sequence[str]], condition: str
) -> list[list[Row]]:
    """All rows of some queries, whose columns are given.

    They come in a few values: a round trip to the JVM for each row would take minutes on a big catalog.
    """
    questions = []
    for query, columns in asked.items():
        bounded = f"SELECT * FROM ({query}) every {condition}"
        questions.append(catalog.as_json.replace("{columns}", ", ".join(columns)).replace("{query}", bounded))
    if connection.holds:
        return [[row for (text,) in connection.rows(each) for row in json.loads(text or "[]")] for each in questions]
    # Each question has connections of its own, which cost more than the answer.
    parts = [f"SELECT '{n}' AS part, part{n}.* FROM ({each}) part{n}" for n, each in enumerate(questions)]
    rows: list[list[Row]] = [[] for _ in questions]
    for part, text in connection.rows(" UNION ALL ".join(parts)):
        rows[int(part or 0)] += json.loads(text or "[]")
    return rows


def _table(
    name: Name, rows: list[Row], keys: Mapping[Name, list[str]], indexes: Mapping[Name, list[str]], dialect: Dialect
) -> Table:
    ordered = sorted(rows, key=_position)
    *_, kind, row_estimate = ordered[0]
    return Table(
        schema=name[0],
        name=name[1],
        columns=tuple(dialect.column(row[2], row[4] or "", nullable=row[5] != "0") for row in ordered),
        is_view=kind == "view",
        primary_key=tuple(keys.get(name, ())),
        indexed=frozenset(indexes.get(name, ())),
        row_estimate=None if row_estimate is None else int(row_estimate),
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
    """Keeps a database from describing what nobody asked for."""
    terms = []
    if (names := bounds.table_names()) is not None:
        terms.append(_among(dialect, "table_name", names))
    if dialect.has_schemas and (schemas := bounds.schema_names()) is not None:
        terms.append(_among(dialect, "table_schema", schemas))
    elif dialect.has_schemas and bounds.only is None and not bounds.schemas:
        terms += [f"NOT table_schema LIKE {dialect.string(_like(each))} ESCAPE '!'" for each in dialect.system_schemas]
    return f"WHERE {' AND '.join(terms)}" if terms else ""


def _among(dialect: Dialect, column: str, names: Sequence[str]) -> str:
    exact = ", ".join(dialect.string(name) for name in names)
    lowered = ", ".join(dialect.string(name.lower()) for name in names)
    return f"({column} IN ({exact}) OR lower({column}) IN ({lowered}))"


def _like(pattern: str) -> str:
    """A glob of nothing but stars, as a LIKE pattern."""
    return re.sub("[!%_]", r"!\g<0>", pattern).replace("*", "%")


def is_pattern(text: str) -> bool:
    """Whether it is a glob and no plain name."""
    return any(sign in text for sign in "*?[")


def fits(name: str, pattern: str) -> bool:
    """Whether a name is spelled so, or meant by a glob, in any case."""
    return name == pattern or fnmatchcase(name.lower(), pattern.lower())
