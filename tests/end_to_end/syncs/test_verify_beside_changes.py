"""What merely is newer at the source, or goes with the bookmark, is no difference to `spark-lake
verify`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.verifying import AGREE, differences, postgresql_trip, report, sqlite_trip, verified
from target_spark_lake.ops import comparison

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_newer_source_rows_are_no_difference(
    spark: SparkSession, postgresql: Any, tmp_path: Path
) -> None:
    trip, source = postgresql_trip(
        postgresql,
        tmp_path,
        "public.t:k:integer!upsert",
        "public.log:k:integer",
        stream_options={"public-t": {"where": "v <> 'left'"}},
    )
    with source, psycopg.connect(source.info.dsn, password=source.info.password) as slow:
        source.execute("create table t (id integer primary key, k integer, v text)")
        source.execute("create table log (id integer primary key, k integer, v text)")
        source.execute("create index on t (k)")
        for table in ("t", "log"):
            source.execute(
                f"insert into {table} select n, least(n, 30), 'v' from generate_series(1, 40) n"
            )
            source.execute(f"insert into {table} values (50, null, 'null')")
        slow.execute("update t set k = 25, v = 'late' where id = 1")
        trip.run(with_state=True)

        slow.commit()
        for table in ("t", "log"):
            source.execute(
                f"insert into {table} values (60, 31, 'new'), (61, 30, 'new at the bookmark')"
            )
            source.execute(f"update {table} set k = 32, v = 'left' where id in (2, 31)")
            source.execute(f"update {table} set v = 'changed at the bookmark' where id = 32")
            source.execute(f"update {table} set v = 'changed' where k is null")
        both = report(trip)
        assert both.agrees
        # Late: 1; above: 2, 31, 60; at the bookmark: 32, 61; without key: 50.
        found = both.to_json()["streams"]["public-t"]
        assert (found["source_rows"], found["lake_rows"], found["not_compared"]) == (36, 36, 7)

        # What no run repairs is still seen among them.
        for table in ("t", "log"):
            source.execute(f"delete from {table} where id = 5")
        both = report(trip)
        assert [each.keys["extra"] for each in both.streams] == [(5,), (5,)]
        assert not both.agrees

        trip.run(with_state=True)
        found = verified(trip, "public-log")
        assert differences(found) == ([], [5], [])
        assert (found["source_rows"], found["lake_rows"], found["not_compared"]) == (42, 43, 0)


def test_large_boundary_group_is_compared_as_sent(
    spark: SparkSession,
    database: sqlite3.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large group of rows at the bookmark is compared with what was sent."""
    database.execute("create table t (id integer primary key, k integer, v text)")
    rows = (
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1500) select "
        "i, 7, 'v' from n"
    )
    database.execute(f"insert into t {rows}")
    trip = sqlite_trip(tmp_path, "t:k:integer!upsert")
    trip.run(with_state=True)
    whole = verified(trip, "t")
    assert (whole["source_rows"], whole["not_compared"]) == (1500, 0)

    database.execute("insert into t values (2000, 7, 'new')")
    found = verified(trip, "t")
    assert differences(found) == AGREE
    assert 1480 < found["source_rows"] <= 1500

    database.execute("delete from t where id between 1 and 150")
    monkeypatch.setattr(comparison, "NAMED_KEYS", 5)
    found = verified(trip, "t")
    assert found["extra"] == [1, 2, 3, 4, 5]
    assert found["counts"] == {"missing": 0, "extra": 150, "different": 0}


def test_marked_rows_wider_columns_and_lag_are_equal(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
    """Rows marked as deleted, wider columns and the safety lag cause no false difference."""
    database.execute(
        "create table t (id integer primary key, k integer, n decimal(6,2), b blob, at timestamp)"
    )
    rows = (
        "(1, 1, 1.5, x'00ff', '2025-01-01 00:00:00.000001'), (2, 8, 2.25, null, null), (3, 9, "
        "null, null, null)"
    )
    database.execute(f"insert into t values {rows}")
    trip = sqlite_trip(
        tmp_path,
        "t:k:integer!upsert",
        stream_options={"t": {"detect_deletes": True}},
        safety_lag_seconds=2,
    )
    target = {
        "max_deletes_percent": 100,
        "stream_options": {"t": {"columns": {"n": "decimal(20,4)", "b": "string", "at": "string"}}},
    }
    trip.run(with_state=True, **target)
    database.execute("delete from t where id = 2")
    trip.run(with_state=True, **target)
    database.execute("alter table t add column later text default 'x'")
    found = verified(trip, "t", **target)
    assert (differences(found), found["source_rows"]) == (AGREE, 2)

    # Within the lag the next run would send it, below nobody would.
    database.execute("insert into t (id, k) values (4, 8)")
    assert differences(verified(trip, "t", **target)) == AGREE
    database.execute("update t set n = 1.51 where id = 1")
    database.execute("insert into t (id, k) values (5, 6)")
    assert differences(verified(trip, "t", **target)) == ([5], [], [1])
