"""Current rows by a spec from source to lake, and on S3, where Spark works by itself; all in one
Spark session.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from end_to_end.here import load_here
from end_to_end.round_trip import RoundTrip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINT = {"type": ["object", "null"], "properties": {"x": {"type": "integer"}}}


def test_upsert_spec_keeps_only_current_rows(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute(
            "create table orders (id integer primary key, note text, updated_at timestamp)"
        )
        rows = [(n, f"note {n}", f"2025-01-01 00:00:{n:02}") for n in range(40)]
        connection.executemany("insert into orders values (?, ?, ?)", rows)
        connection.commit()
        specs = ["orders:updated_at:timestamp!upsert"]
        trip = RoundTrip(
            tmp_path / "lake", {"jdbc_url": f"jdbc:sqlite:{database}", "incremental_tables": specs}
        )
        trip.run(with_state=True)
        connection.execute(
            "update orders set note = 'changed', updated_at = '2025-01-02 00:00:00' where id % 10 "
            "= 3"
        )
        connection.execute("insert into orders values (40, 'new', '2025-01-02 00:00:01')")
        connection.commit()
        trip.run(with_state=True)
        # Everything again, beside what is there: still one row for each key.
        lines = trip.run(full=True)
        wanted = connection.execute("select id, note from orders order by id").fetchall()
    connection.close()
    assert json.loads(lines.splitlines()[0])["start"] == "full"
    assert sorted((row["id"], row["note"]) for row in trip.table("orders").to_pylist()) == wanted


def test_s3_merge_leaves_one_row_per_key(spark: SparkSession, s3: Any) -> None:
    bucket = f"{s3.new_bucket()}/some lake"
    config = {
        "bucket": bucket,
        "pipeline": "test",
        "add_record_metadata": False,
        "load_method": "append-dedup",
    }
    config |= {"storage_options": s3.storage_options}
    properties = {"id": {"type": "integer"}, "at": POINT}
    schema = {
        "type": "SCHEMA",
        "stream": "my points",
        "schema": {"properties": properties},
        "key_properties": ["id"],
    }

    def load(*messages: dict[str, Any]) -> None:
        lines = "\n".join(map(json.dumps, messages)).encode()
        load_here(config, lines)

    def point(id: int, x: int) -> dict[str, Any]:
        return {"type": "RECORD", "stream": "my points", "record": {"id": id, "at": {"x": x}}}

    load(schema, *(point(n % 50, n) for n in range(100)))
    load(schema, point(7, 1), point(7, 2), point(99, 3))
    files = s3.filesystem()

    def rows(table: str) -> list[tuple[int, int]]:
        read = [
            pq.read_table(files.open(path))
            for path in files.glob(f"{bucket}/raw/{table}/*.parquet")
        ]
        return sorted((row["id"], row["at"]["x"]) for each in read for row in each.to_pylist())

    assert rows("my%20points") == [*((n, 2 if n == 7 else n + 50) for n in range(50)), (99, 3)]
    assert len(rows("my%20points__history")) == 103
    keys = [
        each["Key"]
        for each in files.call_s3("list_objects_v2", Bucket=bucket[5:].split("/")[0])["Contents"]
    ]
    assert not [key for key in keys if "/staging/" in key]
