"""Quarantine as users meet it: rows of a real table that their target can't take."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

from end_to_end.pipe import BIN, Pipe


def test_rows_without_the_key_of_a_merge_are_kept_apart_and_told(tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table orders (id integer primary key, code text, note text)")
        rows = [(n, None if n % 10 == 3 else f"c{n}", f"note {n}") for n in range(40)]
        connection.executemany("insert into orders values (?, ?, ?)", rows)
        connection.commit()
        tap = {"jdbc_url": f"jdbc:sqlite:{database}", "incremental_tables": ["orders:id:integer!upsert"]}
        target = {"on_invalid_record": "quarantine", "stream_options": {"orders": {"key_properties": ["code"]}}}
        pipe = Pipe(tmp_path / "run", tap, {**target, "max_invalid_records": 4})
        told = pipe.run().succeeded().target_errors
        wanted = [(note, code) for _, code, note in rows if code is not None]
        assert pipe.rows("orders", "note, code") == sorted(wanted)
    connection.close()
    assert "Done! 36 records in 1 stream(s)" in told
    (path,) = pipe.bucket.glob(".dataspoc/rejected/test/*/orders.jsonl")
    assert f"stream orders: 4 invalid record(s) rejected, kept with the reason in {path}" in told
    kept = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [each["record"] for each in kept] == [{"id": n, "code": None, "note": f"note {n}"} for n in (3, 13, 23, 33)]
    assert all(each["path"] == "/code" and "NULL in its key code" in each["error"] for each in kept)
    command = [str(BIN / "spark-lake"), "runs", "--config", str(pipe.folder / "target.json"), "--json"]
    (report,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (report["streams"]["orders"]["records"], report["streams"]["orders"]["rejected"]) == (36, 4)
