"""Names and kinds of tables as users have them, through tap and target: nothing user-given is ever
read as SQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from end_to_end.round_trip import RoundTrip
from tap.opened import discovered, login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [
    'x"; DROP TABLE y; --',
    "x\\'; DROP TABLE y; --",
    "it's",
    "a.b",
    "Mixed Case",
    "select",
    "naïve 😀",
    "{c}{complaint}",
    "%s $1 ? :x",
    "`back` ${tick}",
    "${env:HOME}",
    "line\nfeed",
    "boundary",
    "c0",
]
VALUES = ["\\'; DROP TABLE y; --", "'; DROP TABLE y; --", "\\", "''", "${x}", "?", "{c}"]


@pytest.fixture
def database(postgresql: Any) -> Any:
    """A database in which a backslash is an escape in any literal, for users that rely on the
    default.
    """
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table y (id int primary key); insert into y values (1)")
        yield database, connection


def test_hostile_names_and_values_do_nothing(
    spark: SparkSession, database: Any, tmp_path: Path
) -> None:
    """Hostile names and values arrive as they are and do nothing."""
    place, connection = database
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(name)) for name in NAMES)
    # A column of dates under each name, too: its error text holds the name.
    days = sql.SQL(", ").join(
        sql.SQL("{} date").format(sql.Identifier(f"{name}.")) for name in NAMES
    )
    schema = sql.Identifier('s"; DROP TABLE y; --')
    connection.execute(sql.SQL("create schema {}").format(schema))
    for name in NAMES[:2]:
        table = sql.SQL("{}.{}").format(schema, sql.Identifier(name))
        connection.execute(sql.SQL("create table {} ({}, {})").format(table, columns, days))
        for value in VALUES:
            row = sql.SQL(", ").join(
                [sql.Literal(value)] * len(NAMES) + [sql.Literal("2025-01-01")] * len(NAMES)
            )
            connection.execute(sql.SQL("insert into {} values ({})").format(table, row))
    connection.execute(f"alter database {place.name} set standard_conforming_strings to off")
    options = {"*DROP*": {"replication_key": NAMES[1]}}
    trip = RoundTrip(
        tmp_path, login(place, schemas=['s"; DROP TABLE y; --'], stream_options=options)
    )
    trip.run(with_state=True)
    # The bookmark is a hostile value now.
    assert trip.run(with_state=True).count(b'"RECORD"') == 0
    for name in NAMES[:2]:
        found = trip.table(f's"; DROP TABLE y; ---{name}')
        assert found.column_names == [*NAMES, *(f"{each}." for each in NAMES)]
        for column in NAMES:
            assert sorted(found[column].to_pylist()) == sorted(VALUES)
    assert connection.execute("select * from y").fetchall() == [(1,)]


def test_every_kind_of_table_arrives_once(
    spark: SparkSession, database: Any, tmp_path: Path
) -> None:
    place, connection = database
    wide = ", ".join(f"c{number} int" for number in range(1, 1600))
    connection.execute(
        f"""
        drop table y;
        create table wide (id int primary key, {wide});
        insert into wide (id, c1, c1599) values (1, 2, 3);
        create table nothing (id int primary key, v text);
        create table keyless (v text);
        insert into keyless values ('twin'), ('twin'), (null);
        create table logs (id int, at date, primary key (id, at)) partition by range (at);
        create table logs_2025 partition of logs for values from ('2025-01-01') to ('2026-01-01');
        create table logs_other partition of logs default partition by list (id);
        create table logs_other_1 partition of logs_other default;
        insert into logs values (1, '2025-05-05'), (2, '2026-05-05');
        create table parent (id int); create table child (extra text) inherits (parent);
        insert into parent values (1); insert into child values (2, 'x');
        create view seen as select id, at, id * 1.5 as half, null as none from logs;
        create materialized view kept as select count(*) as n, 'a' as unknown from logs;
        create foreign data wrapper elsewhere; create server other foreign data wrapper elsewhere;
        create foreign table far (id int, v text) server other;
        create temporary table mine (id int);
        """
    )
    tables = discovered(spark, login(place))
    arriving = {"wide", "nothing", "keyless", "logs", "parent", "child", "seen", "kept"}
    assert set(tables) == {f"public-{name}" for name in (*arriving, "far")}
    assert len(tables["public-wide"].columns) == 1600

    trip = RoundTrip(tmp_path, login(place, tables=sorted(arriving)))
    lines = trip.run()
    assert lines.count(b'"SCHEMA"') == len(arriving)
    ((row,),) = (trip.table("public-wide").to_pylist(),)
    assert {name: value for name, value in row.items() if value is not None} == {
        "id": 1,
        "c1": 2,
        "c1599": 3,
    }
    assert trip.table("public-keyless")["v"].to_pylist() == ["twin", "twin", None]
    assert sorted(trip.table("public-logs")["id"].to_pylist()) == [1, 2]
    assert sorted(trip.table("public-parent")["id"].to_pylist()) == [1, 2]
    assert trip.table("public-child").to_pylist() == [{"id": 2, "extra": "x"}]
    seen = trip.table("public-seen").sort_by("id")
    assert (seen["half"].to_pylist(), seen["none"].to_pylist()) == (["1.5", "3.0"], [None, None])
    assert trip.table("public-kept").to_pylist() == [{"n": 2, "unknown": "a"}]


@pytest.mark.slow
def test_stream_maps_see_renamed_columns(sqlite):
    """Stream maps see the names that rename gives, with a catalog too."""
    options = {"t": {"rename": {"a": "b", "id": "key"}, "exclude_columns": ["b"]}}
    maps = {"t": {"__alias__": "s", "first": "b[0]"}}
    script = (
        "create table t (id integer primary key, a text, b text); insert into t values (1, "
        "'xyz', 'no')"
    )
    tap, _ = sqlite(script, stream_options=options, stream_maps=maps)
    path = tap.folder / "catalog.json"
    path.write_bytes(tap.run_here("--discover").output)
    for flags in ([], ["--catalog", str(path)]):
        run = tap.run_here(*flags).succeeded()
        assert list(run.schema("s")["schema"]["properties"]) == ["key", "b", "first"]
        assert run.schema("s")["key_properties"] == ["key"]
        assert run.records("s") == [{"key": 1, "b": "xyz", "first": "x"}]
