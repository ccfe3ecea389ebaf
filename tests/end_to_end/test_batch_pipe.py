"""Batches from the tap's executors into the target's table: the whole pipe, run by run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from end_to_end.round_trip import RoundTrip

TABLE = """
    create table t (id integer primary key, k timestamptz not null, price numeric(12,2), v text);
    create index on t (k);
    insert into t select i, timestamptz '2025-01-01Z' + i * interval '1 second', i + 0.25, 'row ' || i
      from generate_series(1, 300) i;
"""


@pytest.mark.parametrize(("method", "format"), [("append", "jsonl"), ("append", "parquet"), ("upsert", "parquet")])
def test_batches_bring_each_run_what_is_new_and_their_files_are_the_tables(
    spark: Any, postgresql: Any, tmp_path: Path, method: str, format: str
) -> None:
    database, lake = postgresql.new_database(), tmp_path / "lake"
    tap = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        "incremental_tables": [f"public.t:k:timestamp!{method}"],
        "slice_rows": 100,
        "batch_config": {
            "encoding": {"format": format},
            "storage": {"root": str(lake / ".dataspoc" / "staging" / "batches")},
        },
        "spark": {"master": "local[2]"},
    }
    it = RoundTrip(lake, tap)

    def in_step(connection: psycopg.Connection) -> bytes:
        lines = it.run(with_state=True, add_record_metadata=True)
        source = connection.execute("select id, k, price, v from t order by id").fetchall()
        with duckdb.connect() as reader:
            reader.execute("set timezone = 'UTC'")
            files = f"{lake}/raw/public-t/*.parquet"
            found = reader.sql(f"select id, k, price, v from read_parquet('{files}', union_by_name=true) order by id")
            assert found.fetchall() == source
        assert not list((lake / ".dataspoc" / "staging").rglob("*.parquet"))
        return lines

    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        first = in_step(connection)
        named = [message for message in map(json.loads, first.splitlines()) if message["type"] == "BATCH"]
        assert sum(file["rows"] for message in named for file in message["files"]) == 300
        assert b'"RECORD"' not in first
        published = sorted((path.stat().st_size) for path in (lake / "raw" / "public-t").iterdir())
        sent = sorted(file["bytes"] for message in named for file in message["files"])
        assert (published == sent) is (format == "parquet")

        connection.execute("insert into t values (301, '2025-01-01T00:05:00Z', null, 'at the bookmark')")
        connection.execute("insert into t values (302, '2025-02-01Z', 0.01, 'new')")
        if method == "upsert":
            connection.execute("update t set k = '2025-02-02Z', v = 'changed' where id = 7")
        in_step(connection)
        assert b'"BATCH"' not in in_step(connection)
