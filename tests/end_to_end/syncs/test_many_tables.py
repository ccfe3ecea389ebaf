"""Many small tables from a database to the lake, compared by DuckDB; then a few new rows."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg

from end_to_end.round_trip import RoundTrip
from tap.opened import login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = 14  # seven sizes, each with an index and without one


def rows_of(number: int) -> int:
    return number % 7 * 9


def script(schema: str) -> str:
    lines = []
    for number in range(TABLES):
        name = f"{schema}t{number:02d}"
        lines.append(
            f"create table {name} (id integer primary key, k integer not null, v varchar(20));"
        )
        if number % 2:
            lines.append(f"create index t{number:02d}_k on {name} (k);")
        values = ", ".join(
            f"({n}, {n // 3}, 'row {n} of {number}')" for n in range(rows_of(number))
        )
        lines.append(f"insert into {name} values {values};" if values else "")
    return "\n".join(lines)


def trip_of(folder: Path, config: dict[str, Any]) -> RoundTrip:
    by_key = {"default_replication_method": "INCREMENTAL", "default_replication_key": "k"}
    return RoundTrip(folder, {**config, **by_key, "slice_rows": 40, "n_jobs": 2})


def tables_of(prefix: str) -> dict[str, list[Any]]:
    """What the tables of the script hold, but for the empty ones."""
    return {
        f"{prefix}t{number:02d}": [
            (n, n // 3, f"row {n} of {number}") for n in range(rows_of(number))
        ]
        for number in range(TABLES)
        if rows_of(number)
    }


def test_many_postgresql_tables_load_unchanged(
    spark: SparkSession, postgresql: Any, tmp_path: Path
) -> None:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(script("public."))
    trip, in_steps = (
        trip_of(tmp_path / "once", login(database)),
        trip_of(tmp_path / "steps", login(database)),
    )

    trip.run()
    assert found(trip) == tables_of("public-")

    in_steps.config["max_run_rows"], runs = 100, 0
    while not in_steps.state_path.exists() or "currently_syncing" in json.loads(
        in_steps.state_path.read_text()
    ):
        assert runs < TABLES
        in_steps.run(with_state=True)
        runs += 1
    assert runs > 2
    assert found(in_steps) == tables_of("public-")


def test_many_sqlite_tables_and_their_increment(spark: SparkSession, tmp_path: Path) -> None:
    """Many SQLite tables arrive intact, and an incremental run adds only the new rows."""
    path = tmp_path / "source.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(script(""))
    trip, wanted = trip_of(tmp_path / "lake", {"jdbc_url": f"jdbc:sqlite:{path}"}), tables_of("")

    trip.run()
    assert found(trip) == wanted

    connection.executescript(
        "insert into t08 values (1000, 500, 'new'); insert into t00 values (1, 1, 'new')"
    )
    connection.close()
    trip.run(with_state=True)
    wanted["t08"].append((1000, 500, "new"))
    wanted["t00"] = [(1, 1, "new")]
    assert found(trip) == wanted


def found(trip: RoundTrip) -> dict[str, list[Any]]:
    """The tables of the lake that hold rows, as DuckDB reads them."""
    with duckdb.connect() as connection:
        tables = sorted({path.parent for path in (trip.folder / "raw").rglob("*.parquet")})
        return {
            table.name: connection.sql(
                f"select id, k, v from '{table}/*.parquet' order by id"
            ).fetchall()
            for table in tables
        }
