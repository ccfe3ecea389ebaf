"""Rows whose key goes back: written late by a transaction that had taken its key early (PostgreSQL)."""

from __future__ import annotations

import duckdb
import psycopg

from end_to_end.round_trip import RoundTrip

TABLE = """
    create table t (id integer primary key, k integer not null, v text not null);
    create index on t (k);
    insert into t values (1, 10, 'first'), (2, 20, 'first'), (3, 100, 'first');
"""


def test_a_late_update_whose_key_went_back_is_what_an_upsert_holds(spark, postgresql, tmp_path):
    """As `updated_at = now()` writes it, which is the moment at which its transaction began."""
    database = postgresql.new_database()
    tap = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        "incremental_tables": ["public.t:k:integer!upsert"],
        "spark": {"master": "local[2]"},
    }
    it = RoundTrip(tmp_path / "lake", tap)
    with psycopg.connect(database.dsn, autocommit=True) as quick, psycopg.connect(database.dsn) as slow:
        quick.execute(TABLE)
        slow.execute("select 1")
        quick.execute("update t set k = 110, v = 'quick' where id in (1, 2)")

        def in_step() -> bool:
            it.run(with_state=True)
            source = quick.execute("select id, k, v from t order by id").fetchall()
            files = (it.folder / "raw" / "public-t" / "*.parquet").as_posix()
            with duckdb.connect() as lake:
                found = lake.sql(f"select id, k, v from read_parquet('{files}') order by id").fetchall()
            return found == source

        assert in_step()
        slow.execute("update t set k = 50, v = 'slow' where id = 1")
        slow.commit()
        quick.execute("update t set k = 120, v = 'next' where id = 3")
        assert in_step()
        quick.execute("update t set k = 130, v = 'last' where id = 1")
        assert in_step()
