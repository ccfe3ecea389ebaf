"""`spark-lake status --tap-config`: how far the lake is behind a real source."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

from end_to_end.pipe import BIN
from singer_spark.store.storage import Storage
from target_spark_lake.layout import Layout

TABLES = """
create table orders (id integer primary key, at datetime not null);
create table whole (id integer primary key);
create table later (id integer primary key, at datetime not null);
insert into orders values (1, '2025-01-01 10:00:00'), (2, '2025-01-01 11:00:00'), (3,
  '2025-01-01 12:30:00');
insert into whole values (1), (2);
"""


def test_source_lag_is_shown_per_stream(tmp_path: Path) -> None:
    source = sqlite3.connect(tmp_path / "shop.db")
    source.executescript(TABLES)
    source.close()
    specs = ["orders:at:datetime", "later:at:datetime"]
    tap = {
        "jdbc_url": f"jdbc:sqlite:{tmp_path}/shop.db",
        "incremental_tables": specs,
        "spark": {"master": "local[1]"},
    }
    (tmp_path / "tap.json").write_text(json.dumps(tap))
    (tmp_path / "target.json").write_text(
        json.dumps({"bucket": f"{tmp_path}/lake", "pipeline": "shop"})
    )
    at = {"replication_key": "at", "replication_key_value": "2025-01-01T11:00:00.000000"}
    saved = json.dumps({"bookmarks": {"orders": at, "later": at}})
    Storage(f"{tmp_path}/lake").replace(Layout("shop").state, saved.encode())
    Storage(f"{tmp_path}/lake").replace(Layout("other").state, b"{}")
    command = [
        str(BIN / "spark-lake"),
        "status",
        "--config",
        "target.json",
        "--tap-config",
        "tap.json",
        "--json",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    streams = {each["pipeline"]: each["streams"] for each in json.loads(done.stdout)}
    reported = {
        name: (each["rows_to_read"], each["lag_seconds"]) for name, each in streams["shop"].items()
    }
    assert reported == {"orders": (2, 5400), "later": (0, 0), "whole": (2, None)}
    assert streams["other"] == {}


def test_tap_error_is_quoted_by_status(tmp_path: Path) -> None:
    (tmp_path / "tap.json").write_text('{"jdbc_url": "nonsense"}')
    (tmp_path / "target.json").write_text(
        json.dumps({"bucket": f"{tmp_path}/lake", "pipeline": "shop"})
    )
    command = [
        str(BIN / "spark-lake"),
        "status",
        "--config",
        "target.json",
        "--tap-config",
        "tap.json",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (1, f"No pipeline has run in {tmp_path}/lake.")
    assert done.stderr.startswith(
        "spark-lake: pipeline shop: LAKE-095 the tap can't say what there is to read: "
        "tap-spark-jdbc: RUN-004 a setting is wrong: jdbc_url: "
    )
    assert done.stderr.count("\n") == 1
