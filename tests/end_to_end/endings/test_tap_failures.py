"""A run that failed because of the tap says so in the tap's own words, wherever runs are looked
at.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from end_to_end.here import run_here
from end_to_end.pipe import Pipe
from servers.webhook import Webhook, listening
from singer_spark.core.signals import Stopped
from singer_spark.state.handover import (
    FAILURE_VARIABLE,
    failure_path,
    leave_failure,
    take_failure,
)
from singer_spark.store.storage import Storage
from tap_spark_jdbc import command_line
from target_spark_lake.commit.run_reports import runs
from target_spark_lake.layout import Layout

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening() as hook:
        yield hook


@pytest.fixture
def pipe(tmp_path: Path, hook: Webhook) -> Pipe:
    """Two tables, of which the second holds a value that is no integer."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("create table a (id integer primary key)")
        database.execute("insert into a values (1)")
        database.execute("create table b (id integer primary key, v integer)")
        database.execute("insert into b values (1, 'planted')")
    config = {"jdbc_url": f"jdbc:sqlite:{tmp_path / 'shop.db'}", "tables": ["a", "b"]}
    return Pipe(tmp_path / "run", config, {"notify": [{"url": hook.url}]})


def newest(pipe: Pipe) -> dict[str, Any]:
    return runs(Storage(str(pipe.bucket)), Layout("test"))[0]


def test_spark_lake_run_reports_tap_error(pipe: Pipe, hook: Webhook) -> None:
    """Even an unreadable tap config, which hides the state's location, is reported."""
    pipe.tap["tables"] = ["ordres"]
    pipe.tap_command(), pipe.target_command()
    words = [SPARK_LAKE, "run", "--tap-config", "tap.json", "--config", "target.json"]
    done = subprocess.run(words, cwd=pipe.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert newest(pipe)["outcome"] == "failed"
    assert "there is no table 'ordres'" in newest(pipe)["error"]
    (notice,) = hook.notices
    assert (
        "there is no table 'ordres'" in notice["text"] and notice["error"] == newest(pipe)["error"]
    )
    assert not (pipe.bucket / failure_path("test")).exists()

    (pipe.folder / "tap.json").write_text("{")
    subprocess.run(words, cwd=pipe.folder, capture_output=True, check=False)
    assert "tap.json" in newest(pipe)["error"]


@pytest.mark.usefixtures("spark")
def test_piped_tap_leaves_its_error_beside_its_state(pipe: Pipe, hook: Webhook) -> None:
    """The report has it whole; the receiver of a notification sees no value of a record.

    The next run knows nothing of it.
    """
    failed = pipe.run()
    assert (failed.tap_code, failed.target_code) == (1, 1), failed.tap_errors
    error = newest(pipe)["error"]
    assert "stream b: " in error and "planted" in error
    (notice,) = hook.notices
    assert "stream b: " in notice["error"] and "column v" in notice["error"]
    assert "planted" not in json.dumps(notice)
    assert not (pipe.bucket / failure_path("test")).exists()

    with closing(sqlite3.connect(pipe.folder.parent / "shop.db")) as database, database:
        database.execute("update b set v = 1")
    run_here(pipe)
    assert newest(pipe)["error"] is None
    assert "planted" not in json.dumps(hook.notices)


def test_failure_of_earlier_tap_is_ignored(tmp_path: Path) -> None:
    lake, now = Storage(str(tmp_path)), datetime.now(UTC)
    leave_failure("the password is wrong", lake, "shop", {})
    assert json.loads((tmp_path / failure_path("shop")).read_text())["format_version"] == 1
    assert take_failure(lake, "shop", {}, now + timedelta(hours=1)) is None
    assert take_failure(lake, "shop", {}, now) is None
    leave_failure("the password is wrong", lake, "shop", {})
    assert take_failure(lake, "shop", {}, now) == "the password is wrong"
    (tmp_path / failure_path("shop")).write_text("{")
    assert take_failure(lake, "shop", {}, now) is None


def test_signal_is_no_failure_of_the_tap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that follows a signal, as files are closed, is not left for the target."""

    def ends(_: dict[str, Any]) -> None:
        try:
            raise Stopped(signal.SIGTERM)
        finally:
            os.fstat(1_000_000)

    reason = tmp_path / "reason.json"
    monkeypatch.setenv(FAILURE_VARIABLE, str(reason))
    monkeypatch.setattr(command_line, "_run", ends)
    config = tmp_path / "tap.json"
    config.write_text('{"jdbc_url": "jdbc:sqlite:shop.db"}')
    with pytest.raises(OSError, match="Bad file descriptor"):
        command_line.command.main(["--config", str(config)], standalone_mode=False)
    assert not reason.exists()
    monkeypatch.setattr(command_line, "_run", lambda _: os.fstat(1_000_000))
    with pytest.raises(OSError, match="Bad file descriptor"):
        command_line.command.main(["--config", str(config)], standalone_mode=False)
    assert "Bad file descriptor" in reason.read_text()
