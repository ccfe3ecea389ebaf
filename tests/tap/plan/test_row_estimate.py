"""How many rows are to come, for the percentage that people see: where the database knows, and all
of them come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from tap.in_process import Sent, run_tap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import PostgreSQL


def estimates(sent: Sent) -> dict[str, int | None]:
    messages = sent.succeeded().messages
    return {
        each["stream"]: each.get("row_estimate") for each in messages if each["type"] == "SCHEMA"
    }


def test_only_whole_tables_have_a_row_estimate(postgresql: PostgreSQL, spark: SparkSession) -> None:
    """A whole table comes with the database's row estimate, and a part of one without."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for table, rows in (("counted", 120), ("whole", 50), ("never_counted", 5)):
            connection.execute(f"create table {table} (id bigint primary key)")
            connection.execute(f"insert into {table} select generate_series(1, {rows})")
        connection.execute("analyze counted, whole")
    config = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        "incremental_tables": ["public.counted:id:integer"],
    }
    first = run_tap(config)
    assert estimates(first) == {
        "public-counted": 120,
        "public-whole": 50,
        "public-never_counted": None,
    }
    assert estimates(run_tap(config, first.final["value"]))["public-counted"] is None
