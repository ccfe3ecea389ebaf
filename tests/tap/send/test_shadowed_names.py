"""Statements over tables and columns that are named as what the statements themselves are made
of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import tap_spark_jdbc
from servers.postgresql import PostgreSQL
from tap.batch_output import JSON, batch_config, unbatched
from tap.in_process import Sent, run_tap
from tap.opened import filled, login
from tap.wal.piped import committed, piped, records

pytestmark = pytest.mark.usefixtures("spark")
SOURCES = Path(tap_spark_jdbc.__file__).parent
OURS = (
    "dialects/postgresql.py",
    "log",
    "snapshot",
    "plan",
    "extraction",
    "reading",
    "verify",
    "columnar",
)
SYSTEM = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "oid"}
MORE = [
    "n",
    "t0",
    "t1",
    "c0",
    "c1",
    "boundary",
    "q",
    "s",
    "u",
    "t",
    "w",
    "old",
    "new",
    "value",
    "row",
    "k",
    "one",
    "few",
]
TABLES = ["n", "t", "u", "q", "few", "boundary", "select", "pg_class"]


def words() -> list[str]:
    """The words of all literals of the sources that hold SQL: at most so many as a table has
    columns.
    """
    found = set(MORE)
    for place in OURS:
        path = SOURCES / place
        for file in [path] if path.is_file() else sorted(path.glob("*.py")):
            for text in re.findall(r'"""(?!\w).*?"""|f?"[^"\n]*"', file.read_text(), re.DOTALL):
                if re.search(r"SELECT|FROM|CASE|JOIN|CAST", text):
                    found |= {word.lower() for word in re.findall(r"[A-Za-z_]\w*", text)}
    return sorted(found - SYSTEM - {"id", "at", "big"})[:1000]


def table_of(name: str, columns: list[str]) -> sql.Composed:
    made = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(each), sql.SQL("text" if each in MORE else "int"))
        for each in columns
    )
    return sql.SQL("create table {} (id int primary key, at timestamp, big text, {})").format(
        sql.Identifier("public", name), made
    )


def value(number: int, column: str) -> str | int:
    """In another order than the numbers."""
    return f"{9 - number} {column}" if column in MORE else -number


def row(name: str, number: int, columns: list[str]) -> sql.Composed:
    values = sql.SQL(", ").join(sql.Literal(value(number, each)) for each in columns)
    return sql.SQL(
        "insert into {} values ({}, timestamp '2026-01-01' + {} * interval '1 s', {}, {})"
    ).format(
        sql.Identifier("public", name), number, number // 2, sql.SQL("repeat('x', 5000)"), values
    )


def expected(number: int, columns: list[str]) -> JSON:
    return {"id": number, "big": "x" * 5000, **{each: value(number, each) for each in columns}}


@pytest.fixture(scope="module")
def named(postgresql: PostgreSQL) -> Iterator[tuple[Any, list[str]]]:
    """Tables named so, with such columns: one that has all of them, and others with some."""
    with filled(postgresql, "select 1") as (database, connection):
        columns = words()
        assert len(columns) > 300
        for place, table in enumerate(TABLES):
            some = columns if place == 0 else MORE
            connection.execute(table_of(table, some))
            for number in range(1, 9):
                connection.execute(row(table, number, some))
        yield database, columns


def rows(sent: Sent) -> dict[str, list[JSON]]:
    found: dict[str, list[JSON]] = {}
    for each in unbatched(sent.succeeded().messages):
        if each["type"] == "RECORD":
            record = {name: value for name, value in each["record"].items() if name != "at"}
            found.setdefault(each["stream"], []).append(record)
    return {stream: sorted(each, key=lambda record: record["id"]) for stream, each in found.items()}


@pytest.mark.parametrize(("reader", "kind"), [("arrow", "lines"), ("jdbc", "batches")])
def test_source_names_shadow_no_statement_parts(
    named: tuple[Any, list[str]], tmp_path: Path, reader: str, kind: str
) -> None:
    """Full tables and sliced incremental tables are read unchanged."""
    database, columns = named
    settings: JSON = {"schemas": ["public"], "reader": reader, "slice_rows": 3}
    if kind == "batches":
        settings["batch_config"] = batch_config(tmp_path)
    whole = rows(run_tap(login(database, **settings)))
    by_key = {
        **settings,
        "incremental_tables": [f"public.{table}:at:timestamp" for table in TABLES],
    }
    first = run_tap(login(database, **by_key))
    for found in (whole, rows(first)):
        assert found == {
            f"public-{table}": [
                expected(number, columns if place == 0 else MORE) for number in range(1, 9)
            ]
            for place, table in enumerate(TABLES)
        }
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("update public.q set n = 'changed' where id = 8")
        second = rows(run_tap(login(database, **by_key), first.final["value"]))
        connection.execute("update public.q set n = '1 n' where id = 8")
    assert second == {"public-q": [{**expected(8, MORE), "n": "changed"}]}


@pytest.mark.parametrize("key", ["c0", "boundary", "n"])
def test_rows_are_ordered_by_key_not_alias(named: tuple[Any, list[str]], key: str) -> None:
    """The order of a replication key is the column's, not that of an alias of the same name."""
    database, _ = named
    options = {"public-few": {"replication_key": key, "key_properties": ["at"]}}
    sent = run_tap(login(database, tables=["few"], stream_options=options)).succeeded()
    keys = [each["record"][key] for each in sent.messages if each["type"] == "RECORD"]
    assert keys == sorted(keys)
    assert len(keys) == 8


def test_log_changes_are_read_with_any_column_name(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A row with a changed key and an unchanged large value is looked up in any table."""
    with piped(postgresql, tmp_path, "select 1") as (pipe, connection):
        columns = words()
        for table, some in (("t", columns), ("u", MORE), ("n", MORE)):
            connection.execute(table_of(table, some))
            connection.execute(
                sql.SQL("alter table {} alter big set storage external").format(
                    sql.Identifier("public", table)
                )
            )
            connection.execute(
                sql.SQL("alter table {} add moods text[]").format(sql.Identifier("public", table))
            )
            connection.execute(row(table, 1, some))
        committed(pipe)
        for table in ("t", "u", "n"):
            connection.execute(
                sql.SQL("update {} set id = 2, moods = array['a'], {} = 'moved'").format(
                    sql.Identifier("public", table), sql.Identifier("n")
                )
            )
        changed = {}
        for each in records(committed(pipe)):
            if not each.get("deleted"):
                changed[len(each)] = each
        for some in (columns, MORE):
            moved = {
                **expected(1, some),
                "id": 2,
                "n": "moved",
                "moods": ["a"],
                "at": "2026-01-01T00:00:00.000000",
            }
            assert changed[len(moved)] == moved
