"""Discovery on real databases: every name as it is spelled, every key, in three queries whatever
the size.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from singer_spark.errors import ConfigurationError, SourceError
from tap.opened import connected, discovered, login, source_of
from tap_spark_jdbc.source.discovery import discover_tables
from tap_spark_jdbc.source.discovery_bounds import Bounds
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import Database

HOSTILE = [
    'say "hi"',
    "a.b",
    "it's",
    "select",
    "Mixed Case",
    "naïve 😀",
    "semi;colon--",
    "back\\slash",
    "per%cent_",
    "{c}",
]


@pytest.fixture
def database(postgresql) -> Database:
    return postgresql.new_database()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def run(database: Database, script: str) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(script)


def test_hostile_names_come_back_as_they_are_spelled(
    spark: SparkSession, database: Database
) -> None:
    columns = ", ".join(f"{quoted(name)} int" for name in HOSTILE)
    tables = [
        f"create table {quoted('s.' + HOSTILE[0])}.{quoted(name)} ({columns})" for name in HOSTILE
    ]
    run(database, f"create schema {quoted('s.' + HOSTILE[0])}; {'; '.join(tables)}")
    found = discovered(spark, login(database))
    assert set(found) == {f"s.{HOSTILE[0]}-{name}" for name in HOSTILE}
    for table in found.values():
        assert [column.name for column in table.columns] == HOSTILE


def test_postgresql_objects_are_discovered(spark: SparkSession, database: Database) -> None:
    """Discovery finds keys, indexes, views, partitions and domains of PostgreSQL."""
    run(
        database,
        """
        create domain price as numeric(10, 3) not null; create domain net_price as price;
        create table orders (line int, id bigint, at timestamp, done timestamptz, cost net_price,
          note text,
                             gone int, primary key (id, line));
        alter table orders drop column gone;
        create index on orders (at, note); create index on orders (done) where id > 5;
        create index on orders (lower(note)); create index on orders using hash (note);
        alter table orders add constraint from_now_on not null at not valid;
        create view open_orders as select id, cost from orders;
        create materialized view total as select count(*) as n from orders;
        create table logs (id int, at date) partition by range (at);
        create table logs_2025 partition of logs for values from ('2025-01-01') to ('2026-01-01');
        create table empty_handed ();
        """,
    )
    found = discovered(spark, login(database))
    assert set(found) == {"public-orders", "public-open_orders", "public-total", "public-logs"}
    orders = found["public-orders"]
    assert orders.primary_key == ("id", "line")
    assert orders.indexed == {"id", "at"}
    assert [(column.name, str(column.sql_type), column.nullable) for column in orders.columns] == [
        ("line", "INTEGER", False),
        ("id", "BIGINT", False),
        ("at", "TIMESTAMP", True),
        ("done", "TIMESTAMP WITH TIME ZONE", True),
        # Neither a domain's NOT NULL nor one that is NOT VALID keeps every NULL out.
        ("cost", "DECIMAL(10,3)", True),
        ("note", "TEXT", True),
    ]
    assert [stream for stream, table in found.items() if table.is_view] == [
        "public-open_orders",
        "public-total",
    ]


def test_sqlite_keys_indexes_and_views(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            create table orders (id integer primary key, at datetime, cost decimal(10, 2), note,
              "a.b" int);
            create index by_day on orders (at, note); create index some on orders (cost)
              where id > 5;
            create view open_orders as select id, cost from orders;
            create table pairs (b text, a int, primary key (a, b)) without rowid;
            create table loose (a int, b int, primary key (a, b));
            create table falling (id integer primary key desc);
            create table tidy (id integer primary key) without rowid;
            """
        )
    found = discovered(spark, {"jdbc_url": f"jdbc:sqlite:{path}"})
    assert set(found) == {"orders", "open_orders", "pairs", "loose", "falling", "tidy"}
    orders = found["orders"]
    assert (orders.primary_key, orders.indexed) == (("id",), {"id", "at"})
    assert [(column.name, str(column.sql_type), column.nullable) for column in orders.columns] == [
        ("id", "BIGINT", False),
        ("at", "TIMESTAMP", True),
        ("cost", "DECIMAL(10,2)", True),
        ("note", "TEXT", True),
        ("a.b", "BIGINT", True),
    ]
    assert found["pairs"].primary_key == ("a", "b")
    assert [column.nullable for column in found["pairs"].columns] == [False, False]
    # A primary key of a plain SQLite table may hold NULL.
    assert [column.nullable for column in found["loose"].columns] == [True, True]
    assert [
        (found[name].indexed, found[name].columns[0].nullable) for name in ("falling", "tidy")
    ] == [
        ({"id"}, True),
        ({"id"}, False),
    ]
    assert found["open_orders"].is_view


def test_derby_is_discovered_by_driver_metadata(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path / 'shop'}"
    with connected(spark, {"jdbc_url": f"{url};create=true"}) as connection:
        for statement in (
            'create schema "My S"',
            "create table orders (line int not null, id bigint not null, moment timestamp, cost "
            "decimal(12, 2), "
            "note varchar(20), raw varchar(20) for bit data, primary key (id, line))",
            "create index by_day on orders (moment)",
            "create view open_orders as select id from orders",
            'create table "My S"."per%cent_" ("say ""hi""" int)',
            'create table "My S"."perXcentX" ("other" int)',
        ):
            connection.execute(statement)
    found = discovered(spark, {"jdbc_url": url})
    assert set(found) == {"APP-ORDERS", "APP-OPEN_ORDERS", "My S-per%cent_", "My S-perXcentX"}
    orders = found["APP-ORDERS"]
    assert (orders.primary_key, orders.indexed) == (("ID", "LINE"), {"ID", "MOMENT"})
    assert [(column.name, str(column.sql_type), column.nullable) for column in orders.columns] == [
        ("LINE", "INTEGER", False),
        ("ID", "BIGINT", False),
        ("MOMENT", "TIMESTAMP", True),
        ("COST", "DECIMAL(12,2)", True),
        ("NOTE", "VARCHAR(20)", True),
        ("RAW", "VARBINARY", True),
    ]
    # A view's NOT NULL is what its tables said when it was made.
    assert [(column.name, column.nullable) for column in found["APP-OPEN_ORDERS"].columns] == [
        ("ID", True)
    ]
    assert found["APP-OPEN_ORDERS"].is_view
    assert [column.name for column in found["My S-per%cent_"].columns] == ['say "hi"']


def test_bounds_take_globs_and_names_in_any_case(spark: SparkSession, database: Database) -> None:
    run(
        database,
        "create schema sales; create schema stock; create table sales.orders (id int); "
        "create table sales.clients (id int);"
        'create table stock.orders (id int); create table stock."Bins" (id int); create table '
        'public."a.b" (id int)',
    )

    def streams(**bounds: list[str]) -> set[str]:
        return set(discovered(spark, login(database, **bounds)))

    assert streams(schemas=["sales"]) == {"sales-orders", "sales-clients"}
    assert streams(schemas=["s*"], tables=["ord*"]) == {"sales-orders", "stock-orders"}
    assert streams(tables=["stock.*"]) == {"stock-orders", "stock-Bins"}
    assert streams(tables=["SALES.Orders", "bins"]) == {"sales-orders", "stock-Bins"}
    assert streams(tables=["a.b"]) == {"public-a.b"}
    assert streams(tables=["nothing"]) == set()
    assert "pg_catalog-pg_class" in streams(schemas=["pg_catalog"], tables=["pg_class"])


class Recorded(JdbcConnection):
    """Keeps what was asked."""

    asked: list[str]

    def rows(self, sql: str):
        self.asked.append(sql)
        return super().rows(sql)


def test_three_queries_discover_many_tables(spark: SparkSession, database: Database) -> None:
    """Three queries find two hundred tables, and only named tables are queried."""
    run(
        database,
        "do $$ begin for i in 1..200 loop execute format('create table t%s (id int primary key, a "
        "text)', i); end loop; end $$",
    )
    source = source_of(login(database))
    with closing(Recorded.open(spark.sparkContext._gateway, source)) as connection:
        connection.asked = []
        assert len(discover_tables(connection, source.dialect, Bounds())) == 200
        assert len(connection.asked) == 3
        found = discover_tables(connection, source.dialect, Bounds(tables=("t200", "public.t7")))
        assert [table.name for table in found] == ["t200", "t7"]
        only = Bounds(only=[("public", "t42")])
        assert [table.name for table in discover_tables(connection, source.dialect, only)] == [
            "t42"
        ]
        assert all("'t200'" in sql for sql in connection.asked[3:6])
        assert all("'t42'" in sql for sql in connection.asked[6:9])
        assert discover_tables(connection, source.dialect, Bounds(only=[])) == []
        assert len(connection.asked) == 9


def test_three_queries_discover_a_large_sqlite_file(spark: SparkSession, tmp_path: Path) -> None:
    """On SQLite, too, hundreds of tables and one of many columns take three queries."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("pragma synchronous = off")
        connection.executescript(
            "begin;"
            + "".join(f"create table t{n} (id integer primary key, a text);" for n in range(500))
            + f"create table wide ({', '.join(f'c{n} text' for n in range(1600))}); commit;"
        )
    connection.close()
    source = source_of({"jdbc_url": f"jdbc:sqlite:{path}"})
    with closing(Recorded.open(spark.sparkContext._gateway, source)) as connection:
        connection.asked = []
        found = discover_tables(connection, source.dialect, Bounds())
        assert (len(found), len(connection.asked)) == (501, 3)
        assert [column.name for column in found[-1].columns] == [f"c{n}" for n in range(1600)]
        (named,) = discover_tables(connection, source.dialect, Bounds(only=[(None, "t42")]))
        assert named.name == "t42"
        assert all("'t42'" in sql for sql in connection.asked[3:])
        assert len(connection.asked) == 6


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"password": "wrong-secret"}, SourceError, "check user and password"),
        (
            {"jdbc_url": "jdbc:postgresql://127.0.0.1:1/shop?password=url-secret"},
            SourceError,
            "check host and port",
        ),
        ({"jdbc_url": "jdbc:sqlite:/nowhere/shop.db"}, SourceError, "check the path"),
        ({"jdbc_url": "jdbc:derby:/nowhere/shop"}, SourceError, "check the path"),
        ({"driver": "org.acme.Driver"}, ConfigurationError, "org.acme.Driver can't be loaded"),
        (
            {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"},
            ConfigurationError,
            "does not accept",
        ),
    ],
)
def test_unreachable_database_is_one_clear_line(
    spark: SparkSession, database: Database, change: dict, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught, connected(spark, login(database, **change)):
        pass
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_unknown_database_is_named(spark: SparkSession, database: Database) -> None:
    unknown = login(database, jdbc_url=f"{database.jdbc_url}_gone")
    with (
        pytest.raises(SourceError, match="TAP-001"),
        connected(spark, unknown),
    ):
        pass


def test_refused_statement_is_shown(spark: SparkSession, database: Database) -> None:
    with connected(spark, login(database)) as connection, pytest.raises(SourceError) as caught:
        connection.rows("SELECT * FROM nowhere")
    assert "refused `SELECT * FROM nowhere`" in str(caught.value)
    assert 'relation "nowhere" does not exist' in str(caught.value)


def test_missing_sqlite_file_is_not_created(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pytest.raises(SourceError),
        connected(spark, {"jdbc_url": f"jdbc:sqlite:{tmp_path / 'new.db'}"}),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_database_with_other_quoting_is_refused(spark: SparkSession, database: Database) -> None:
    from dataclasses import replace

    from tap_spark_jdbc.dialects import dialect_of

    backticks = replace(dialect_of("jdbc:other:x"), quote_mark="`")
    with (
        connected(spark, login(database)) as connection,
        pytest.raises(ConfigurationError, match="TAP-005"),
    ):
        discover_tables(connection, backticks, Bounds())


def test_standard_sql_discovers_an_unknown_database(
    spark: SparkSession, database: Database
) -> None:
    """Standard SQL discovers a database without a dialect of its own."""
    from tap_spark_jdbc.dialects import dialect_of

    run(database, "create table orders (id int primary key, at date); create index on orders (at)")
    with connected(spark, login(database)) as connection:
        (orders,) = discover_tables(connection, dialect_of("jdbc:other:x"), Bounds())
    assert (orders.stream, orders.primary_key, orders.indexed) == (
        "public-orders",
        ("id",),
        {"id", "at"},
    )
