"""Deletes and changes from the log through the whole pipe: batches first, lines later, until the
pipeline goes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from end_to_end.here import run_here
from end_to_end.pipe import Pipe
from servers.postgresql import PostgreSQL
from tap.opened import filled, login
from target_spark_lake.ops.spark_lake import command

BIN = Path(sys.executable).parent
SECONDS = 240
SCRIPT = """
create table orders (id int primary key, note text, body text, amount numeric(12, 2),
  at timestamptz);
alter table orders alter body set storage external;
insert into orders select i, 'old', repeat('x', 5000), i / 4.0, '2025-01-20 15:30:00.123456+00'
  from generate_series(1, 200) i;
"""


def sync(folder: Path) -> None:
    words = [BIN / "spark-lake", "run", "--tap-config", "tap.json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]


def living(folder: Path) -> list[tuple[Any, ...]]:
    columns = "id, note, length(body), amount"
    source = f"read_parquet('{folder}/lake/raw/public-orders/*.parquet', union_by_name=true)"
    return duckdb.sql(
        f"SELECT {columns} FROM {source} WHERE _sdc_deleted_at IS NULL ORDER BY id"
    ).fetchall()


def in_source(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(
        "select id, note, length(body), amount from orders order by id"
    ).fetchall()


def test_lake_follows_log_until_log_is_dropped(
    postgresql: PostgreSQL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first run is `spark-lake run`; what follows is done in this process."""
    monkeypatch.chdir(tmp_path)

    def answer(*words: str, exit_code: int = 0, says: str = "") -> Any:
        capsys.readouterr()
        assert command([*words, "--tap-config", "tap.json", "--json"]) == exit_code
        output, errors = capsys.readouterr()
        assert says in errors
        return json.loads(output)

    with filled(postgresql, SCRIPT) as (database, connection):
        batches = {
            "encoding": {"format": "parquet"},
            "storage": {"root": str(tmp_path / "lake/.dataspoc/staging/batches")},
        }
        tap = login(
            database, tables=["public.orders"], batch_config=batches, spark={"master": "local[2]"}
        )
        tap["stream_options"] = {"public-orders": {"replication_method": "LOG_BASED"}}
        pipeline = f"logged_{database.name}"
        target = {
            "bucket": str(tmp_path / "lake"),
            "pipeline": pipeline,
            "spark": {"master": "local[2]"},
        }
        pipe = Pipe(tmp_path, tap, target)
        pipe.tap_command(), pipe.target_command()  # writes the configs
        sync(tmp_path)
        assert living(tmp_path) == in_source(connection)

        connection.execute("update orders set note = 'new', amount = amount + 1 where id % 3 = 0")
        connection.execute("delete from orders where id > 150")
        connection.execute("insert into orders values (500, 'more', null, -1, now())")
        run_here(pipe)
        assert living(tmp_path) == in_source(connection)
        bookmark = pipe.state["bookmarks"]["public-orders"]
        assert (bookmark["replication_method"], bookmark["slot"]) == (
            "LOG_BASED",
            f"spark_tap_{pipeline}",
        )
        (status,) = answer("status")
        assert status["streams"]["public-orders"]["log_bytes_held_back"] > 0

        connection.execute("select pg_drop_replication_slot(%s)", (f"spark_tap_{pipeline}",))
        why = (
            f"TAP-053 stream public-orders: slot spark_tap_{pipeline} is gone (dropped, or lost "
            "with a failover); run the tap"
        )
        (lost,) = answer("status", exit_code=1, says=why)
        assert lost["streams"]["public-orders"]["log_lost"].startswith(why)
        again = "select pg_create_logical_replication_slot(%s, 'pgoutput')"
        connection.execute(again, (f"spark_tap_{pipeline}",))

        removed = answer("log", "drop")
        assert removed == {
            "removed": [f"slot spark_tap_{pipeline}", f"publication spark_tap_{pipeline}"]
        }
        left = "select slot_name from pg_replication_slots where slot_name = %s"
        assert not connection.execute(left, (f"spark_tap_{pipeline}",)).fetchall()
        assert pipe.state["bookmarks"] == {}
        assert living(tmp_path) == in_source(connection)
