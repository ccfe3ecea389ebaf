"""A database that the tap does not know: young rows are left by its clock, and keys may have a
zone.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tap.in_process import run_tap
from tap.jdbc_files import HSQLDB, making
from tap_spark_jdbc.dialects import known_dialects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_unknown_database_lag_and_zoned_keys(spark: SparkSession, tmp_path: Path) -> None:
    """An unknown database holds back young rows by its clock and takes keys with a zone."""
    url = f"jdbc:hsqldb:file:{tmp_path / 'source.db'}"
    rows = [
        "(1, timestamp '2025-03-30 02:30:00+8:00', timestamp '2025-03-30 02:30:00')",
        "(2, current_timestamp, cast(current_timestamp at time zone interval '0:00' hour to minute "
        "as timestamp))",
    ]
    try:
        with making(spark, url, **HSQLDB) as connection:
            for name in ("aware", "naive"):
                connection.execute(
                    f"create table {name} (id int primary key, a timestamp with time zone, n "
                    "timestamp)"
                )
                for row in rows:
                    connection.execute(f"insert into {name} values {row}")
        specs = ["public.aware:a:timestamp", "public.naive:n:datetime"]
        config = {
            "jdbc_url": url,
            **HSQLDB,
            "schemas": ["public"],
            "incremental_tables": specs,
            "settle_seconds": 3600,
        }
        sent = run_tap(config).succeeded()
        for name in ("PUBLIC-AWARE", "PUBLIC-NAIVE"):
            assert sent.values(name, "ID") == {1: 1}
    finally:
        with making(spark, url, **HSQLDB) as connection:
            connection.execute("shutdown")


def test_clock_without_a_zone_leaves_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """By a clock that may be in any zone no row has an age: the run is refused."""
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "create table t (id integer primary key, k timestamp);"
            "insert into t values (1, '2025-01-01 10:00:00')"
        )
    config = {
        # Known to its own driver, and to the tap by lower case alone.
        "jdbc_url": f"jdbc:SQLITE:{path}",
        "driver": "org.sqlite.JDBC",
        "driver_package": known_dialects()["sqlite"].driver_package,
        "incremental_tables": ["t:k:datetime"],
        "settle_seconds": 60,
    }
    assert run_tap(config).failed().startswith("TAP-027 stream t: ")
