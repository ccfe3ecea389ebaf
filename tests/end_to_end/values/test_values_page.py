"""The docs say what becomes of each type: compared with what discovery and the lake make of real
columns.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from singer_spark.core.schema_mapping import lake_type
from singer_spark.core.sql_type import SqlType, property_schema
from tap.opened import discovered, login
from tap_spark_jdbc.dialects.type_rules import KNOWN_TYPES
from target_spark_lake.table.declared_columns import declared_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[3] / "docs"
Told = dict[str, tuple[str, str]]


def section(page: str, title: str) -> list[list[str]]:
    """The cells of a section's table, row by row."""
    text = (DOCS / page).read_text(encoding="utf-8")
    body = text.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def reported(page: str) -> Told:
    """SQL type and lake type of each native type that the page names."""
    return {
        native: (row[1], row[2].strip("`"))
        for row in section(page, "Types")
        for native in re.findall(r"`([^`]+)`", row[0])
    }


def made(spark: SparkSession, config: dict[str, Any], stream: str) -> list[tuple[str, str]]:
    """The same of the columns of a table, in their order."""
    columns = discovered(spark, config)[stream].columns
    lake = [
        str(lake_type(property_schema(each.sql_type, nullable=True), each.name)) for each in columns
    ]
    return [(str(each.sql_type), kind) for each, kind in zip(columns, lake, strict=True)]


def test_types_page_matches_postgresql_columns(spark: SparkSession, postgresql: Any) -> None:
    types = reported("postgresql.md")
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create extension vector")
        connection.execute(
            f"create table t ({', '.join(f'c{n} {kind}' for n, kind in enumerate(types))})"
        )
        # What the page does not name must be what it says of any other type.
        unnamed = connection.execute(
            "select array_agg(format_type(oid, null)) from pg_type where typtype in ('b', 'r', "
            "'m') and typnamespace in ('pg_catalog'::regnamespace, 'public'::regnamespace) and "
            "typcategory <> 'Z'"
        ).fetchone()[0]
        # A bare `character` is one of length 1.
        others = [
            kind
            for kind in unnamed
            if kind not in (*types, "character") and not kind.endswith("[]")
        ]
        connection.execute(
            f"create table others ({', '.join(f'c{n} {kind}' for n, kind in enumerate(others))})"
        )
    assert dict(zip(types, made(spark, login(database), "public-t"), strict=True)) == types
    named = dict(zip(others, made(spark, login(database), "public-others"), strict=True))
    spelled = {
        "character varying": "varchar",
        "timestamp without time zone": "timestamp",
        "vector": "vector(3)",
    }
    spelled |= {
        "timestamp with time zone": "timestamptz",
        "time without time zone": "time",
        "halfvec": "halfvec(3)",
    }
    spelled |= {"time with time zone": "timetz"}
    assert {kind: became for kind, became in named.items() if became != ("TEXT", "string")} == {
        kind: types[spelled[kind]] for kind in named if kind in spelled
    }


def test_types_page_matches_sqlite_columns(spark: SparkSession, tmp_path: Path) -> None:
    types = reported("sqlite.md")
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            f"create table t ({', '.join(f'c{n} {kind}' for n, kind in enumerate(types))})"
        )
    assert (
        dict(zip(types, made(spark, {"jdbc_url": f"jdbc:sqlite:{path}"}, "t"), strict=True))
        == types
    )


def test_types_page_lists_overrides_and_lake_types() -> None:
    """The page on types lists every override and the lake type of each type name."""
    rows = section("types.md", "Names of types")
    named = re.findall(r"`([A-Z][A-Z ]*)", " ".join(row[0] for row in rows))
    assert {SqlType.parse(name).name for name in named} == {*KNOWN_TYPES, "VARBINARY"}
    for names, others, lake, _ in rows:
        known = re.findall("`([^`]+)`", f"{names} {others}".replace("p,s", "12,2"))
        became = declared_types({name: name for name in known}).values()
        assert {str(kind) for kind in became} == set(
            re.findall("`([^`]+)`", lake.replace("p,s", "12,2"))
        )
