"""Streams made of SQL: described without running, read exactly, bounded like tables."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.errors import ConfigurationError, SourceError
from tap.dying import Pipe
from tap.opened import connected, login, source_of
from tap_spark_jdbc.config.settings import QueryStream, TapSettings
from tap_spark_jdbc.config.stream_options import bare
from tap_spark_jdbc.plan.queries import described_queries
from tap_spark_jdbc.source.discovery import discover_tables
from tap_spark_jdbc.source.discovery_bounds import Bounds

# A comment that would swallow what follows it, quotes that contain its signs, a semicolon at the
# end.
HOSTILE = """
    select o.id, o.price, o.at, c.name as "the ""name"" -- so", '-- ;''' as mark,
           coalesce(o.at, o.made) as changed
    from orders o left join customers c on c.id = o.customer /* ; */
    where o.id > 0 or o.id < 0 ; -- the end;
"""
TYPES = {
    "small": "smallint",
    "big": "bigint",
    "id": "serial",
    "price": "numeric(12,2)",
    "wide": "numeric(38,10)",
    "whole": "numeric(5,-2)",
    "any number": "numeric",
    "ratio": "double precision",
    "flag": "boolean",
    "word": "varchar(20)",
    "words": "varchar",
    "code": "char(3)",
    "letter": '"char"',
    "body": "text",
    "day": "date",
    "clock": "time(3)",
    "at": "timestamp",
    "at3": "timestamp(3)",
    "seen": "timestamptz",
    "span": "interval",
    "doc": "jsonb",
    "uid": "uuid",
    "bytes": "bytea",
    "bits": "bit(8)",
    "mood": "mood",
    "Mood": '"My mood"',
    "other": '"Other"."Mood"',
    "amount": "amount",
    "prices": "numeric(12,2)[]",
    "tags": "varchar(5)[]",
    "days": "date[]",
}


def pipe_of(tmp_path, spark, config: dict[str, Any]) -> Pipe:
    del spark  # it runs already
    return Pipe(tmp_path, {**config, "spark": {"master": "local[2]"}})


@pytest.fixture
def shop(tmp_path, postgresql, spark):
    """A PostgreSQL with orders and customers, and a pipe on it: `shop(**settings)`."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("""
            create table customers (id integer primary key, name text not null);
            create table orders (id integer primary key, customer integer,
              price numeric(12,2) not null,
              made timestamp not null, at timestamptz);
            insert into customers values (1, 'Ada'), (2, 'Bob');
            insert into orders select i, i % 4, i + 0.10,
              timestamp '2025-01-01' + i * interval '1 day', null
              from generate_series(1, 8) i;
        """)

        def make(**settings: Any) -> tuple[Pipe, psycopg.Connection]:
            return pipe_of(tmp_path, spark, login(database, **settings)), connection

        yield make


def test_query_stream_joins_computes_and_remembers(shop) -> None:
    """A query is a stream that joins, computes and keeps a bookmark."""
    sql = HOSTILE.replace("coalesce(o.at, o.made)", "coalesce(o.at::timestamp, o.made)")
    query = {"name": "sales", "sql": sql, "key_properties": ["id"], "replication_key": "changed"}
    pipe, database = shop(
        tables=["none*"],
        queries=[query],
        stream_options={
            "sales": {"where": "id <> 3 or price > 100 -- not 3", "load_method": "upsert"}
        },
    )
    first = pipe.run()
    assert first.ids("sales") == Counter([1, 2, 4, 5, 6, 7, 8])
    (schema,) = [each for each in first.messages if each["type"] == "SCHEMA"]
    assert (schema["key_properties"], schema["bookmark_properties"]) == (["id"], ["changed"])
    types = {name: each["x-sql-datatype"] for name, each in schema["schema"]["properties"].items()}
    assert types == {
        "id": "INTEGER",
        "price": "DECIMAL(12,2)",
        "at": "TIMESTAMP WITH TIME ZONE",
        'the "name" -- so': "TEXT",
        "mark": "TEXT",
        "changed": "TIMESTAMP",
    }
    rows = {
        each["record"]["id"]: each["record"] for each in first.messages if each["type"] == "RECORD"
    }
    # A column that is NOT NULL in its table is NULL where an outer join finds no row.
    assert rows[4]['the "name" -- so'] is None
    assert rows[1] | {"at": None} == {
        "id": 1, "price": 1.10, "at": None, 'the "name" -- so': "Ada", "mark": "-- ;'",
        "changed": "2025-01-02T00:00:00.000000",
    }  # fmt: skip

    pipe.save(first.final)
    assert pipe.run().ids("sales") == Counter()
    database.execute("update orders set at = '2025-03-01Z', price = 7 where id = 2")
    second = pipe.run()
    assert second.ids("sales") == Counter([2])
    assert (
        second.final["bookmarks"]["sales"]["replication_key_value"] == "2025-03-01T00:00:00.000000"
    )
    assert second.extents == {"sales": "delta"}


def test_untyped_sqlite_query_key_needs_its_type(tmp_path, spark) -> None:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("""
            create table orders (id integer primary key, price decimal(10,2),
              made timestamp not null, at timestamp);
            insert into orders values (1, 1.5, '2025-01-01 00:00:00', null),
              (2, 2.25, '2025-01-01 00:00:00', '2025-01-03 00:00:00');
        """)
        sql = (
            "with o as (select * from orders) select *, coalesce(at, made) as changed, 2 * id as "
            "twice from o;"
        )
        query = {
            "name": "sales",
            "sql": sql,
            "key_properties": ["id"],
            "replication_key": "changed",
        }
        config = {"jdbc_url": f"jdbc:sqlite:{path}", "tables": ["none*"], "queries": [query]}
        pipe = pipe_of(tmp_path, spark, config)
        with pytest.raises(
            ConfigurationError,
            match=r"TAP-020 .*changed",
        ):
            pipe.run()

        options = {"replication_key_type": "timestamp", "type_overrides": {"twice": "bigint"}}
        pipe.config["stream_options"] = {"sales": options}
        first = pipe.run()
        records = [each["record"] for each in first.messages if each["type"] == "RECORD"]
        assert sorted(records, key=lambda each: each["id"]) == [
            {
                "id": 1,
                "price": 1.5,
                "made": "2025-01-01T00:00:00.000000",
                "at": None,
                "changed": "2025-01-01 00:00:00",
                "twice": 2,
            },
            {
                "id": 2,
                "price": 2.25,
                "made": "2025-01-01T00:00:00.000000",
                "at": "2025-01-03T00:00:00.000000",
                "changed": "2025-01-03 00:00:00",
                "twice": 4,
            },
        ]
        pipe.save(first.final)
        database.execute("update orders set at = '2025-01-03 00:00:00.5' where id = 1")
        assert pipe.run().ids("sales") == Counter([1])


def test_query_columns_have_table_types(postgresql, spark) -> None:
    """The columns of a query have the types of the table's columns."""
    database = postgresql.new_database()
    config = login(database)
    dialect = source_of(config).dialect
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        columns = ", ".join('"{}" {}'.format(*each) for each in TYPES.items())
        connection.execute(f"""
            create schema "Other";
            create type mood as enum ('good'); create type "My mood" as enum ('good');
            create type "Other"."Mood" as enum ('good'); create domain amount as numeric(9,3) check
              (value > 0);
            create table everything ({columns});
        """)
        before = connection.execute("select count(*) from pg_class").fetchone()
        with connected(spark, config) as opened:
            (table,) = discover_tables(opened, dialect, Bounds(tables=("everything",)))
            (query,) = described_queries(
                opened, dialect, [QueryStream("q", "select * from everything;")], []
            )
        # Nothing was made in the database to find out.
        assert connection.execute("select count(*) from pg_class").fetchone() == before
    of_table = {
        column.name: (column.native_type, column.sql_type, column.reading)
        for column in table.columns
    }
    assert {
        column.name: (column.native_type, column.sql_type, column.reading)
        for column in query.columns
    } == of_table


def test_query_is_discovered_selected_and_planned(shop) -> None:
    queries = [
        {
            "name": "totals",
            "sql": "select customer, sum(price) as total from orders group by 1 -- all",
        }
    ]
    pipe, _ = shop(tables=["customers"], queries=queries)
    tap = pipe.tap()
    catalog = tap.catalog_dict
    tap.database.close()
    assert [each["tap_stream_id"] for each in catalog["streams"]] == ["public-customers", "totals"]
    assert catalog["streams"][1]["schema"]["properties"]["total"]["x-sql-datatype"] == "NUMERIC"
    catalog["streams"][0]["metadata"][0]["metadata"]["selected"] = False

    planned = _planned(pipe, catalog)
    assert "SELECT" in planned
    assert "\nselect customer, sum(price) as total from orders group by 1 -- all\n) q\n" in planned
    assert "customers" not in planned


def _planned(pipe: Pipe, catalog: dict[str, Any]) -> str:
    from tap_spark_jdbc.dry_run import describe
    from tap_spark_jdbc.extract.run_state import OpeningState
    from tap_spark_jdbc.tap import TapSparkJdbc

    opening = OpeningState({}, "full")
    tap = TapSparkJdbc(
        config=pipe.config,
        catalog=catalog,
        opening=opening,
        parse_env_config=False,
        setup_mapper=False,
    )
    try:
        return describe(tap)
    finally:
        tap.database.close()


def test_impossible_queries_are_refused_by_name(shop) -> None:
    """A query that the database or a lake can't take is refused by name."""
    pipe, _ = shop(queries=[{"name": "broken", "sql": "select nothing from nowhere"}])
    with pytest.raises(SourceError, match=r"TAP-022 .*broken"):
        pipe.run()
    pipe.config["queries"] = [
        {"name": "twins", "sql": "select o.id, c.id from orders o, customers c"}
    ]
    with pytest.raises(ConfigurationError, match=r"TAP-022 .*twins.*id"):
        pipe.run()
    pipe.config["queries"] = [{"name": "public-orders", "sql": "select 1 as one"}]
    with pytest.raises(ConfigurationError, match=r"TAP-022 .*public-orders"):
        pipe.run()
    pipe.config["queries"] = [{"name": "half", "sql": "select 1 as one; drop table orders"}]
    with pytest.raises(SourceError, match=r"TAP-022 .*half"):
        pipe.run()


def test_names_are_given_once() -> None:
    query = {"name": "q", "sql": "select 1"}
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*q"):
        TapSettings.from_config({"jdbc_url": "jdbc:sqlite:x.db", "queries": [query, query]})


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        ("select 1", "select 1"),
        ("select 1 ;\n", "select 1"),
        ("select 1; ; -- end; \n/* ; */", "select 1"),
        ("select ';' -- end", "select ';' -- end"),
        ("select '; -- it'", "select '; -- it'"),
        ("select $a$; -- it$a$;", "select $a$; -- it$a$"),
        ('select 1 as "x;" ; ', 'select 1 as "x;"'),
        ("select 1; drop table x", "select 1; drop table x"),
    ],
)
def test_only_trailing_semicolon_is_removed(sql: str, left: str) -> None:
    assert bare(sql) == left


@given(st.text("';\"-/*$a \n"))
def test_only_semicolon_and_comments_are_stripped(sql: str) -> None:
    """At most a semicolon, blanks and comments are stripped from a query."""
    left = bare(sql)
    assert sql.strip().startswith(left)
    assert bare(left) == left
