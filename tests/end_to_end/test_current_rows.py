"""Current rows as users get them: by a spec through the real pipe, and on S3, where Spark works by itself."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from end_to_end.pipe import TIMEOUT_SECONDS, Pipe

POINT = {"type": ["object", "null"], "properties": {"x": {"type": "integer"}}}


def test_a_table_whose_spec_says_upsert_holds_the_source_s_rows(tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table orders (id integer primary key, note text, updated_at timestamp)")
        rows = [(n, f"note {n}", f"2025-01-01 00:00:{n:02}") for n in range(40)]
        connection.executemany("insert into orders values (?, ?, ?)", rows)
        connection.commit()
        specs = ["orders:updated_at:timestamp!upsert"]
        pipe = Pipe(tmp_path / "run", {"jdbc_url": f"jdbc:sqlite:{database}", "incremental_tables": specs})
        pipe.run().succeeded()
        connection.execute("update orders set note = 'changed', updated_at = '2025-01-02 00:00:00' where id % 10 = 3")
        connection.execute("insert into orders values (40, 'new', '2025-01-02 00:00:01')")
        connection.commit()
        pipe.run().succeeded()
        # Everything again, beside what is there: still one row for each key.
        pipe.run("--full").succeeded()
        wanted = connection.execute("select id, note from orders order by id").fetchall()
    connection.close()
    assert pipe.rows("orders", "id, note") == wanted


def load(pipe: Pipe, messages: list[dict[str, Any]]) -> None:
    lines = "\n".join(map(json.dumps, messages)).encode()
    done = subprocess.run(pipe.target_command(), input=lines, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_merge_on_s3_leaves_one_row_for_each_key(s3: Any, tmp_path: Path) -> None:
    bucket = f"{s3.new_bucket()}/some lake"
    pipe = Pipe(tmp_path, {}, {"bucket": bucket, "storage_options": s3.storage_options, "load_method": "append-dedup"})
    properties = {"id": {"type": "integer"}, "at": POINT}
    schema = {"type": "SCHEMA", "stream": "my points", "schema": {"properties": properties}, "key_properties": ["id"]}

    def point(id: int, x: int) -> dict[str, Any]:
        return {"type": "RECORD", "stream": "my points", "record": {"id": id, "at": {"x": x}}}

    load(pipe, [schema, *(point(n % 50, n) for n in range(100))])
    load(pipe, [schema, point(7, 1), point(7, 2), point(99, 3)])
    files = s3.filesystem()

    def rows(table: str) -> list[tuple[int, int]]:
        read = [pq.read_table(files.open(path)) for path in files.glob(f"{bucket}/raw/{table}/*.parquet")]
        return sorted((row["id"], row["at"]["x"]) for each in read for row in each.to_pylist())

    assert rows("my%20points") == [*((n, 2 if n == 7 else n + 50) for n in range(50)), (99, 3)]
    assert len(rows("my%20points__history")) == 103
    keys = [each["Key"] for each in files.call_s3("list_objects_v2", Bucket=bucket[5:].split("/")[0])["Contents"]]
    assert not [key for key in keys if "/staging/" in key]
