"""The lake and its state on S3: the same pipe, with the tap reading the state by its URL."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from end_to_end.pipe import TIMEOUT_SECONDS, Pipe


def run(pipe: Pipe, *flags: str) -> str:
    state = f"{pipe.target['bucket']}/.dataspoc/state/test/state.json"
    tap = subprocess.Popen(pipe.tap_command("--state", state, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    target = subprocess.run(
        pipe.target_command(), stdin=tap.stdout, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    _, errors = tap.communicate(timeout=TIMEOUT_SECONDS)
    assert (tap.returncode, target.returncode) == (0, 0), errors.decode() + target.stderr
    return errors.decode()


def test_an_incremental_pipe_keeps_lake_and_state_on_s3(s3: Any, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table orders (id integer primary key, note text)")
        connection.executemany("insert into orders values (?, ?)", [(n, f"note {n}") for n in range(50)])
        connection.commit()
        options = {"storage_options": s3.storage_options}
        tap = {"jdbc_url": f"jdbc:sqlite:{tmp_path}/shop.db", "incremental_tables": ["orders:id:integer"], **options}
        pipe = Pipe(tmp_path / "run", tap, {"bucket": f"{bucket}/lake", **options})
        assert "first run" in run(pipe)
        connection.execute("insert into orders values (50, 'later')")
        connection.commit()
        assert "first run" not in run(pipe)
        run(pipe)
    connection.close()
    files = s3.filesystem()
    tables = [pq.read_table(files.open(path)) for path in files.glob(f"{bucket}/lake/raw/orders/*.parquet")]
    assert sorted(each for table in tables for each in table["id"].to_pylist()) == list(range(51))
    state = json.loads(files.cat(f"{bucket}/lake/.dataspoc/state/test/state.json"))
    assert state["bookmarks"]["orders"]["replication_key_value"] == 50
    assert files.glob(f"{bucket}/lake/.dataspoc/staging/**/*.parquet") == []
