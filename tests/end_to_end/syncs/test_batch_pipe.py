"""Batches from the tap's executors into the target's table: the whole pipe, run by run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from end_to_end.round_trip import RoundTrip
from singer_spark.errors import SingerSparkError

TABLE = """
    create table t (id integer primary key, k timestamptz not null, price numeric(12,2), v text);
    create index on t (k);
    insert into t select i, timestamptz '2025-01-01Z' + i * interval '1 second', i + 0.25, 'row '
      || i
      from generate_series(1, 300) i;
"""


@dataclass
class BatchTrip(RoundTrip):
    """A pipe whose runs go by batches or by records, on one state."""

    format: str = "parquet"

    def run_by(self, way: str, **options: Any) -> bytes:
        root = str(self.folder / ".dataspoc" / "staging" / "batches")
        self.config.pop("batch_config", None)
        if way == "batches":
            self.config["batch_config"] = {
                "encoding": {"format": self.format},
                "storage": {"root": root},
            }
        untaken = self.staged()
        lines = self.run(with_state=True, add_record_metadata=True, **options)
        kinds = {"batches": b'"type":"RECORD"', "records": b'"type":"BATCH"'}
        assert kinds[way] not in lines
        assert self.staged() == untaken
        return lines

    def staged(self) -> set[Path]:
        return {
            path for path in (self.folder / ".dataspoc" / "staging").rglob("*") if path.is_file()
        }

    def rows(self) -> list[tuple[Any, ...]]:
        with duckdb.connect() as reader:
            reader.execute("set timezone = 'UTC'")
            files = f"{self.folder}/raw/public-t/*.parquet"
            found = reader.sql(
                f"select id, k, price, v from read_parquet('{files}', union_by_name=true)"
            )
            return found.fetchall()


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgresql.new_database().dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


def trip_of(
    connection: psycopg.Connection[Any], lake: Path, method: str, format: str = "parquet"
) -> BatchTrip:
    facts = connection.info
    tap = {
        "jdbc_url": f"jdbc:postgresql://{facts.host}:{facts.port}/{facts.dbname}",
        "user": facts.user,
        "password": facts.password,
        "incremental_tables": [f"public.t:k:timestamp!{method}"],
        "slice_rows": 100,
        "spark": {"master": "local[2]"},
    }
    return BatchTrip(lake, tap, format)


def source(connection: psycopg.Connection[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(connection.execute("select id, k, price, v from t").fetchall())


def batches(lines: bytes) -> list[dict[str, Any]]:
    return [
        message for message in map(json.loads, lines.splitlines()) if message["type"] == "BATCH"
    ]


@pytest.mark.parametrize(
    ("method", "format"), [("append", "jsonl"), ("append", "parquet"), ("upsert", "parquet")]
)
def test_batch_runs_are_incremental(
    spark: Any, connection: psycopg.Connection[Any], tmp_path: Path, method: str, format: str
) -> None:
    """Runs by batches and by records take turns on one state, with rows that come at the bookmark
    before each.
    """
    trip = trip_of(connection, tmp_path / "lake", method, format)
    first = trip.run_by("batches")
    files = [file for message in batches(first) for file in message["files"]]
    assert sum(file["rows"] for file in files) == 300
    published = sorted(
        (path.stat().st_size) for path in (trip.folder / "raw" / "public-t").iterdir()
    )
    assert (published == sorted(file["bytes"] for file in files)) is (format == "parquet")

    for number, way in ((310, "records"), (320, "batches"), (330, "records"))[
        : 2 if method == "upsert" else 3
    ]:
        connection.execute(
            f"insert into t select {number}, max(k), null, 'at the bookmark' from t;"
            f"insert into t select {number + 1}, max(k) + interval '1 day', 0.01, 'new' from t"
        )
        if method == "upsert":
            connection.execute(
                "update t set k = (select max(k) from t), v = v || ' changed' where id = 7"
            )
        trip.run_by(way)
        assert Counter(trip.rows()) == source(connection)
    idle = trip.run_by("batches")
    assert not batches(idle)
    assert Counter(trip.rows()) == source(connection)


def test_full_batch_run_replaces_state_only_on_success(
    spark: Any, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """A full run by batches replaces the state only after it has succeeded."""
    trip = trip_of(connection, tmp_path / "lake", "append")
    trip.run_by("batches")
    saved, rows = trip.state_path.read_bytes(), Counter(trip.rows())
    connection.execute("insert into t values (301, '2026-01-01Z', 1, 'new')")

    # The tap dies behind its last BATCH, and then behind that one's STATE.
    for left_out in (2, 1):
        sent = trip.tap_lines(full=True).splitlines(keepends=True)
        assert json.loads(sent[0])["start"] == "full"
        assert [json.loads(line)["type"] for line in sent[-3:]] == ["BATCH", "STATE", "STATE"]
        with pytest.raises(SingerSparkError, match="LAKE-005"):
            trip.load(b"".join(sent[:-left_out]), add_record_metadata=True)
        assert (trip.state_path.read_bytes(), Counter(trip.rows())) == (saved, rows)
        assert [path.name for path in trip.state_path.parent.iterdir()] == ["state.json"]

    full = trip.run_by("batches", full=True)
    assert sum(file["rows"] for message in batches(full) for file in message["files"]) == 301
    assert Counter(trip.rows()) == rows + source(connection)
    bookmark = json.loads(trip.state_path.read_bytes())["bookmarks"]["public-t"]
    assert bookmark["replication_key_value"].startswith("2026-01-01")
    assert not batches(trip.run_by("batches"))
