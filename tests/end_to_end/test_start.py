"""What a start costs, by facts: which JVMs a run starts, and what is loaded in them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.pipe import BIN, Pipe
from singer_spark.java import find_java_home

TABLE = """
create table t (id integer primary key, updated_at timestamp not null, v text);
create index on t (updated_at);
insert into t select n, timestamp '2025-01-01' + n / 3 * interval '1 minute', 'v' || n from generate_series(1, 500) n
"""
JOBS = "org.apache.spark.scheduler.DAGScheduler "
MAIN = re.compile(r" (org\.apache\.spark\.\S+|-version)(?: |$)")


@dataclass(frozen=True)
class Java:
    """A Java that keeps a log of its starts, and of the classes of the last one."""

    home: Path

    @property
    def _log(self) -> Path:
        return self.home / "starts"

    def starts(self) -> list[str]:
        """What has been started since this was last asked, by main class."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return [match[1] if (match := MAIN.search(line)) else line for line in lines]

    def has_scheduled(self) -> bool:
        """Whether the last JVM has made a SparkContext."""
        return JOBS in (self.home / "classes").read_text(errors="replace")


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Java:
    real, home = find_java_home(), tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    logged = f"-Xlog:class+load:file='{home}/classes'"
    (home / "bin/java").write_text(
        f"#!/bin/sh\necho \"$*\" >> '{home}/starts'\nexec '{real}/bin/java' {logged} \"$@\"\n"
    )
    (home / "bin/java").chmod(0o755)
    (home / "release").write_text((real / "release").read_text())
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_LAKE_CLASS_ARCHIVE", "off")
    return Java(home)


def test_a_run_starts_one_jvm_and_one_without_news_no_session_in_it(
    java: Java, postgresql: Any, tmp_path: Path
) -> None:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
        tap = {**login, "incremental_tables": ["public.t:updated_at:timestamp"], "spark": {"master": "local[2]"}}
        pipe = Pipe(tmp_path / "run", tap)
        pipe.run("--dry-run", with_state=False)
        # Of Spark's launcher this Java was asked once.
        assert java.starts() == ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
        assert not java.has_scheduled()

        pipe.run().succeeded()
        assert java.starts() == ["org.apache.spark.deploy.SparkSubmit"]
        assert java.has_scheduled()
        state = pipe.state

        pipe.run().succeeded()
        assert java.starts() == ["org.apache.spark.deploy.SparkSubmit"]
        assert not java.has_scheduled()
        assert pipe.state == state

        connection.execute("update t set v = 'changed' where id = 500")
        pipe.run().succeeded()
        assert java.has_scheduled()
    assert pipe.rows("public-t", "v", "v")[0] == ("changed",)
    assert len(pipe.rows("public-t", "id")) == 501


@pytest.mark.parametrize("program", ["tap-spark-jdbc", "target-spark-lake"])
def test_questions_and_config_errors_start_no_java(java: Java, tmp_path: Path, program: str) -> None:
    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BIN / program, *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    config = tmp_path / "config.json"
    config.write_text(json.dumps({"bucket": 1, "jdbc_url": 1}))
    good: list[Callable[[], Any]] = [lambda: run("--about"), lambda: run("--help"), lambda: run("--version")]
    assert [each().returncode for each in good] == [0, 0, 0]
    assert run("--config", str(config)).returncode == 1
    assert run("--config", str(tmp_path / "none.json")).returncode == 1
    assert java.starts() == []
