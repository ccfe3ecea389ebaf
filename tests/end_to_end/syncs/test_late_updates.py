"""Rows whose key goes back, because they were written late by a transaction that had taken its key
early (PostgreSQL).

Also rows whose key goes forward as the database orders it, but back as bytes.
"""

from __future__ import annotations

import duckdb
import psycopg
import pytest

from end_to_end.round_trip import RoundTrip

TABLE = """
    create table t (id integer primary key, k integer not null, v text not null);
    create index on t (k);
    insert into t values (1, 10, 'first'), (2, 20, 'first'), (3, 100, 'first');
"""


def test_upsert_keeps_late_update_with_older_key(spark, postgresql, tmp_path):
    """`updated_at = now()` is the moment at which its transaction began."""
    database = postgresql.new_database()
    tap = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        "incremental_tables": ["public.t:k:integer!upsert"],
        "spark": {"master": "local[2]"},
    }
    it = RoundTrip(tmp_path / "lake", tap)
    with (
        psycopg.connect(database.dsn, autocommit=True) as quick,
        psycopg.connect(database.dsn) as slow,
    ):
        quick.execute(TABLE)
        slow.execute("select 1")
        quick.execute("update t set k = 110, v = 'quick' where id in (1, 2)")

        def in_step() -> bool:
            it.run(with_state=True)
            source = quick.execute("select id, k, v from t order by id").fetchall()
            files = (it.folder / "raw" / "public-t" / "*.parquet").as_posix()
            with duckdb.connect() as lake:
                found = lake.sql(
                    f"select id, k, v from read_parquet('{files}') order by id"
                ).fetchall()
            return found == source

        assert in_step()
        slow.execute("update t set k = 50, v = 'slow' where id = 1")
        slow.commit()
        quick.execute("update t set k = 120, v = 'next' where id = 3")
        assert in_step()
        quick.execute("update t set k = 130, v = 'last' where id = 1")
        assert in_step()


CHANGES = {
    "postgresql": [
        "create type prio as enum ('low', 'normal', 'high')",
        "create table {s}.t (id integer primary key, k prio not null, v text not null)",
        "create table {s}.log (name varchar(9) not null, k prio, v text not null)",
        "create index on {s}.t (k)",
        "insert into {s}.t values (1, 'low', 'old'), (2, 'normal', 'old')",
        "insert into {s}.log values ('a', 'high', 'new'), ('a', 'low', 'old'), ('b', 'low', "
        "'new'), ('b', null, 'x')",
        "update {s}.t set k = 'high', v = 'new' where id = 1",
    ],
    "mariadb": [
        "create table {s}.t (id integer primary key, k varchar(9) not null, v text not null, key "
        "(k))",
        "create table {s}.log (name varchar(9) not null, k varchar(9), v text not null)",
        "insert into {s}.t values (1, 'apple', 'old'), (2, 'aaa', 'old')",
        "insert into {s}.log values ('a', 'Banana', 'new'), ('a', 'apple', 'old'), ('b', 'c', "
        "'new'), ('b', null, 'x')",
        "update {s}.t set k = 'Banana', v = 'new' where id = 1",
    ],
}


@pytest.mark.parametrize("server", CHANGES)
def test_newest_row_follows_database_order(spark, request, tmp_path, server):
    """The row ordered last by the database wins, also among rows of one slice."""
    database = request.getfixturevalue(server).new_database()
    space = "public" if server == "postgresql" else database.name
    tap = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        "schemas": [space],
        "default_replication_key": "k",
        "stream_options": {"*": {"load_method": "upsert"}, "*-log": {"key_properties": ["name"]}},
        "spark": {"master": "local[2]"},
    }
    it = RoundTrip(tmp_path / "lake", tap)
    *before, change = (each.format(s=space) for each in CHANGES[server])

    def do(*statements: str) -> None:
        connected = psycopg.connect(database.dsn) if server == "postgresql" else database.connect()
        with connected as connection:
            for each in statements:
                connection.cursor().execute(each)
            connection.commit()

    def rows(table: str, columns: str) -> list[tuple]:
        files = (it.folder / "raw" / f"{space}-{table}" / "*.parquet").as_posix()
        with duckdb.connect() as lake:
            return lake.sql(
                f"select {columns} from read_parquet('{files}') order by all"
            ).fetchall()

    do(*before)
    it.run(with_state=True)
    assert rows("log", "name, v") == [("a", "new"), ("b", "new")]
    do(change)
    it.run(with_state=True)
    assert rows("t", "id, v") == [(1, "new"), (2, "old")]
