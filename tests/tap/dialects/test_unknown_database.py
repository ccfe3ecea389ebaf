"""A database that the tap does not know: young rows are left by its clock, and keys may have a
zone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tap.in_process import run_tap
from tap.jdbc_files import HSQLDB, making

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_unknown_database_leaves_young_rows_by_its_clock_and_takes_keys_with_a_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
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
