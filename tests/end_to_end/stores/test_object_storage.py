"""The lake and its state on S3: the tap reads the state by its URL.

On each store Spark's tasks write by themselves.
"""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from end_to_end.here import load_here, run_here
from end_to_end.pipe import TIMEOUT_SECONDS, Pipe
from servers.processes import command_lines
from singer_spark.engine.class_archive import archive_path
from singer_spark.engine.java import find_java_home
from singer_spark.store.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "label": {"type": ["string", "null"]}},
}


def test_pipe_keeps_lake_and_state_on_s3(spark: SparkSession, s3: Any, tmp_path: Path) -> None:
    """The second run continues incrementally from the state on S3."""
    bucket = s3.new_bucket()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table orders (id integer primary key, note text)")
        connection.executemany(
            "insert into orders values (?, ?)", [(n, f"note {n}") for n in range(50)]
        )
        connection.commit()
        options = {"storage_options": s3.storage_options}
        tap = {
            "jdbc_url": f"jdbc:sqlite:{tmp_path}/shop.db",
            "incremental_tables": ["orders:id:integer"],
            **options,
        }
        pipe = Pipe(tmp_path / "run", tap, {"bucket": f"{bucket}/lake", **options})
        assert run_here(pipe).start == "first"
        connection.execute("insert into orders values (50, 'later')")
        connection.commit()
        assert run_here(pipe).start == "saved"
    connection.close()
    files = s3.filesystem()
    tables = [
        pq.read_table(files.open(path))
        for path in files.glob(f"{bucket}/lake/raw/orders/*.parquet")
    ]
    assert sorted(each for table in tables for each in table["id"].to_pylist()) == list(range(51))
    state = json.loads(files.cat(f"{bucket}/lake/.dataspoc/state/test/state.json"))
    assert state["bookmarks"]["orders"]["replication_key_value"] == 50
    assert files.glob(f"{bucket}/lake/.dataspoc/staging/**/*.parquet") == []


LABELS = {n: f"é{n}" for n in range(500)}


def points() -> bytes:
    """A tap's lines, whose rows have a nested column."""
    properties = {"id": {"type": "integer"}, "at": POINT}
    schema = {"type": "object", "properties": properties}
    stream = {"stream": "my points"}
    rows = ({"id": n, "at": {"x": n, "label": label}} for n, label in LABELS.items())
    messages: list[dict[str, Any]] = [
        {"type": "SCHEMA", **stream, "schema": schema, "key_properties": ["id"]},
        *({"type": "RECORD", **stream, "record": row} for row in rows),
        {"type": "STATE", "value": {"done": 1}},
    ]
    return "\n".join(map(json.dumps, messages)).encode()


@pytest.fixture
def staging(store: Any, tmp_path: Path) -> Pipe:
    """A pipe whose target stages by Spark."""
    options, url = store.storage_options, f"{store.new_bucket()}/some lake"
    return Pipe(tmp_path, {}, {"bucket": url, "storage_options": options, "staging": "spark"})


def assert_points_arrived(store: Any, pipe: Pipe) -> None:
    """The rows are in the store, and nothing is staged any more."""
    lake = Storage(pipe.target["bucket"], store.storage_options)
    (file,) = lake.list("raw/my%20points")
    rows = pq.read_table(io.BytesIO(lake.read(file.path) or b"")).select(["id", "at"]).to_pylist()
    assert {row["id"]: row["at"] for row in rows} == {
        n: {"x": n, "label": label} for n, label in LABELS.items()
    }
    assert len(rows) == len(LABELS)
    assert [key for key in store.keys(lake.url) if "/staging/" in key] == []


@pytest.mark.usefixtures("with_pandas")
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_spark_stages_straight_to_bucket(store: Any, staging: Pipe, tmp_path: Path) -> None:
    """Tasks write without Hadoop's connectors; no secret is on a command line or in a log."""
    classes = tmp_path / "classes.log"
    with command_lines() as seen:
        done = subprocess.run(
            staging.target_command(),
            input=points(),
            capture_output=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={classes}"},
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert_points_arrived(store, staging)
    loaded = classes.read_text(errors="replace")
    assert ".S3AFileSystem source" not in loaded
    if archive_path(find_java_home()).exists():
        assert re.search(r"SparkContext source: shared objects file \(top\)", loaded)
    assert [line for line in seen if "SparkSubmit" in line]
    for secret in (store.secret, store.key):
        assert secret == "tester" or not [line for line in seen if secret in line]
        assert secret == "tester" or secret not in done.stderr.decode()


@pytest.mark.usefixtures("spark", "with_pandas")
@pytest.mark.parametrize("store", ["google", "azure"], indirect=True)
def test_spark_stages_on_other_stores(store: Any, staging: Pipe) -> None:
    """By a session of this process."""
    load_here(staging.target, points())
    assert_points_arrived(store, staging)
