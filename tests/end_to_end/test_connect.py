"""`tap | target` on a Spark Connect server; the lake is on S3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.cluster import CHANGE, assert_equal_to_source, new_source, pipe_on
from servers.child import started


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with new_source(postgresql) as connection:
        yield connection


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not os.environ.get("CI"):
        pytest.importorskip("grpc", reason="the packages of singer-spark[connect] are not installed: make setup")
    with started("servers.connect") as facts:
        yield facts["remote"]


def test_the_same_pipe_runs_on_a_spark_connect_server(
    server: str, connection: psycopg.Connection[Any], s3: Any, tmp_path: Path
) -> None:
    """No program has a JVM of its own."""
    pipe = pipe_on(tmp_path, connection, s3, {"remote": server})
    first = pipe.run().succeeded()
    assert "Done! 5500 records in 3 stream(s)" in first.target_errors
    assert_equal_to_source(pipe, connection)
    connection.execute(CHANGE)
    second = pipe.run().succeeded()
    assert "Done! 420 records in 3 stream(s)" in second.target_errors
    assert_equal_to_source(pipe, connection)
    assert pipe.staged() == []
