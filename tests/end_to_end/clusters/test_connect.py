"""`tap | target` on a Spark Connect server; the lake is on S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.cluster import CHANGE, assert_equal_to_source, first_run_here, new_source, pipe_on
from servers.child import started
from servers.postgresql import free_port

# PySpark's client asks for pandas.
pytestmark = pytest.mark.usefixtures("with_pandas")


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with new_source(postgresql) as connection:
        yield connection


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not os.environ.get("CI"):
        pytest.importorskip(
            "grpc", reason="the packages of singer-spark[connect] are not installed: make setup"
        )
    with started("servers.clusters.connect") as facts:
        yield facts["remote"]


def test_pipe_runs_on_spark_connect(
    server: str, connection: psycopg.Connection[Any], s3: Any, tmp_path: Path
) -> None:
    """No program has a JVM of its own.

    Without news the tap has eight questions, nine where it looks at open transactions again; each
    takes Spark three connections. The target does not attach to the server at all.
    """
    pipe = pipe_on(tmp_path, connection, s3, {"remote": server})
    first_run_here(pipe)
    connection.execute(CHANGE)
    second = pipe.run().succeeded()
    assert "Done! 2611 records in 4 stream(s)" in second.target_errors
    assert "the database refused" not in second.tap_errors
    assert_equal_to_source(pipe, connection)
    assert pipe.staged() == []

    pipe.tap |= {
        "tables": ["public.orders"],
        "incremental_tables": ["public.orders:changed_at:datetime!upsert"],
    }
    sessions = (
        "select pg_stat_clear_snapshot(), sessions from pg_stat_database where datname = "
        "current_database()"
    )
    before = connection.execute(sessions).fetchall()[0][1]
    pipe.target["spark"] = {"remote": f"sc://127.0.0.1:{free_port()}"}
    idle = pipe.run().succeeded()
    assert "Done! 0 records in 0 stream(s)" in idle.target_errors
    assert 0 < connection.execute(sessions).fetchall()[0][1] - before <= 9 * 3


ASKING = """
import json, sys
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.config.settings import TapSettings
database = Database(TapSettings.from_config(json.loads(sys.argv[1])))
for sql in sys.argv[2:]:
    print(json.dumps(database.connection.rows(sql)))
"""
ANSWERS = {
    "SELECT COUNT(*) AS n, 'é' AS a, NULL AS b FROM events": [["3000", "é", None]],
    "SELECT CAST(1.5 AS numeric(6, 3)) AS a, true AS b, CAST('x' AS char(3)) AS c": [
        ["1.500", "t", "x  "]
    ],
    "SELECT CAST('1e50' AS numeric) AS a": [["1" + 50 * "0"]],
    "SELECT code AS a FROM places WHERE 1=0": [],
}


def test_connect_queries_match_driver_text(
    server: str, connection: psycopg.Connection[Any], s3: Any, tmp_path: Path
) -> None:
    """Also where Spark's text would be another one, or where it has no type for the value."""
    tap = pipe_on(tmp_path, connection, s3, {"remote": server}).tap
    command = [sys.executable, "-c", ASKING, json.dumps(tap), *ANSWERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(ANSWERS.values()), (
        done.stderr
    )
