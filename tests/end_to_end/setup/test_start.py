"""What a start costs, by facts: which JVMs a run starts, and what is loaded in them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.pipe import BIN, Pipe

TABLE = """
create table t (id integer primary key, updated_at timestamp not null, v text);
create index on t (updated_at);
insert into t select n, timestamp '2025-01-01' + n / 3 * interval '1 minute', 'v' || n
  from generate_series(1, 500) n
"""
SUBMIT, CONTEXT = "org.apache.spark.deploy.SparkSubmit ", "org.apache.spark.scheduler.DAGScheduler "


@dataclass(frozen=True)
class Javas:
    """Every Java that is started keeps a log of the classes that it loads."""

    folder: Path

    def started(self) -> list[str]:
        """The logs of those that were started since this was last asked."""
        logs = [path.read_text(errors="replace") for path in self.folder.iterdir()]
        for path in self.folder.iterdir():
            path.unlink()
        return logs


@pytest.fixture
def javas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Javas:
    # As on a user's machine: without the suite's own options for short-lived JVMs.
    for name in [each for each in os.environ if each.startswith("SPARK_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "classes"
    folder.mkdir()
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS", f"-XX:TieredStopAtLevel=1 -Xlog:class+load:file={folder}/%p"
    )
    return Javas(folder)


def test_run_starts_one_jvm_at_most(javas: Javas, postgresql: Any, tmp_path: Path) -> None:
    """A run starts a JVM only where the JDBC driver reads, with a session in it only where Spark
    does.
    """
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(TABLE)
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    tap = {
        **login,
        "engine": "local",
        "incremental_tables": ["public.t:updated_at:timestamp"],
        "spark": {"master": "local[2]"},
    }
    target = {"engine": "local"}

    Pipe(tmp_path / "run", {**tap, "reader": "jdbc"}, target).run().succeeded()
    # The first time ever Spark's launcher is asked how a JVM is started.
    *_, classes = sorted(javas.started(), key=lambda log: SUBMIT in log)
    assert SUBMIT in classes and CONTEXT in classes

    pipe = Pipe(tmp_path / "run", tap, target)
    state = pipe.state
    # Nothing is new; then everything is read.
    for flags, rows in ((), 500), (("--full", "--append-again"), 1000):
        done = pipe.run(*flags).succeeded()
        assert done.states == [pipe.state]
        assert javas.started() == []
        assert len(pipe.rows("public-t", "id")) == rows
        assert flags or pipe.state == state

    # Nothing is new, and the JDBC driver would have read it.
    Pipe(tmp_path / "run", {**tap, "reader": "jdbc"}, target).run().succeeded()
    assert javas.started() == []


@pytest.mark.parametrize("program", ["tap-spark-jdbc", "target-spark-lake"])
def test_questions_and_config_errors_start_no_java(
    javas: Javas, tmp_path: Path, program: str
) -> None:
    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / program, *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    config = tmp_path / "config.json"
    config.write_text(json.dumps({"bucket": 1, "jdbc_url": 1}))
    good: list[Callable[[], Any]] = [
        lambda: run("--about"),
        lambda: run("--help"),
        lambda: run("--version"),
    ]
    assert [each().returncode for each in good] == [0, 0, 0]
    assert run("--config", str(config)).returncode == 1
    assert run("--config", str(tmp_path / "none.json")).returncode == 1
    assert javas.started() == []
