"""The tap as a user runs it: a process of its own, its standard output read with plain json."""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from singer_spark.errors import SingerSparkError, one_line
from tap_spark_jdbc.command_line import command
from tap_spark_jdbc.source import connection_errors, open_connections

COMMAND = str(Path(sys.executable).parent / "tap-spark-jdbc")
TIMEOUT_SECONDS = 200


@dataclass(frozen=True)
class TapRun:
    """What a run sent, and how it ended."""

    code: int
    output: bytes
    errors: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        # Every line of standard output must be a Singer message: anything else fails here.
        return [json.loads(line) for line in self.output.splitlines()]

    @property
    def final_state(self) -> dict[str, Any]:
        last = self.messages[-1]
        assert (last["type"], last["final"]) == ("STATE", True)
        return last["value"]

    @property
    def states(self) -> list[dict[str, Any]]:
        return [message["value"] for message in self.messages if message["type"] == "STATE"]

    @property
    def start(self) -> str:
        first = self.messages[0]
        assert (first["type"], first["final"]) == ("STATE", False)
        return first["start"]

    def records(self, stream: str) -> list[dict[str, Any]]:
        return [
            each["record"]
            for each in self.messages
            if each["type"] == "RECORD" and each["stream"] == stream
        ]

    def values(self, stream: str, column: str) -> Counter:
        return Counter(record[column] for record in self.records(stream))

    def schema(self, stream: str) -> dict[str, Any]:
        (found,) = [
            each for each in self.messages if each["type"] == "SCHEMA" and each["stream"] == stream
        ]
        return found

    def succeeded(self) -> TapRun:
        assert self.code == 0, self.errors
        return self

    def failed(self) -> str:
        """The one line that says why; no last STATE was sent."""
        assert self.code == 1, self.errors
        assert not [each for each in self.messages if each.get("final") is True]
        assert "Traceback" not in self.errors
        *_, last = self.errors.strip().splitlines()
        assert last.startswith("tap-spark-jdbc: ")
        return last


@dataclass
class Tap:
    """A tap with its config, in a folder of its own."""

    folder: Path
    config: dict[str, Any]

    def command(self, *flags: str) -> list[str]:
        path = self.folder / "config.json"
        path.write_text(json.dumps(self.config))
        return [COMMAND, "--config", str(path), *flags]

    def run(self, *flags: str, state: dict[str, Any] | None = None) -> TapRun:
        program = self.command(*self._start(state), *flags)
        done = subprocess.run(
            program,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return TapRun(done.returncode, done.stdout, done.stderr.decode())

    def run_here(self, *flags: str, state: dict[str, Any] | None = None) -> TapRun:
        """The same command in this process, by the session of the fixture `spark`: ten seconds of
        CPU less.
        """
        arguments = self.command(*self._start(state), *flags)[1:]
        output, errors, code = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO(), 0
        with (
            warnings.catch_warnings(),
            redirect_stdout(output),
            redirect_stderr(errors),
            own_logging(),
        ):
            # PySpark leaves the socket of a `collect` to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                command.main(arguments, standalone_mode=False)
            except SingerSparkError as error:
                code = error.exit_code
                print(f"tap-spark-jdbc: {one_line(error)}", file=errors)
        return TapRun(code, output.buffer.getvalue(), errors.getvalue())

    def _start(self, state: dict[str, Any] | None) -> list[str]:
        if state is None:
            return []
        path = self.folder / "state.json"
        path.write_text(json.dumps(state))
        return ["--state", str(path)]


@contextmanager
def own_logging() -> Iterator[None]:
    """The root logger is the command's to set up; afterwards it is the tests' again."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost connection is retried sooner, as often as by default."""
    monkeypatch.setattr(connection_errors, "PAUSES", (0.1, 0.2, 0.5, 1.0, 2.0, 5.0))


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent server is noticed within a second."""
    for name, seconds in {"LOOK_SECONDS": 0.1, "QUIET_SECONDS": 0.4, "DEAD_SECONDS": 0.5}.items():
        monkeypatch.setattr(open_connections, name, seconds)


@pytest.fixture
def sqlite(tmp_path):
    """A SQLite database and a tap on it: `sqlite(script, **settings)`."""

    def make(script: str, **settings: Any) -> tuple[Tap, sqlite3.Connection]:
        path = tmp_path / "source.db"
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(script)
        return Tap(
            tmp_path,
            {"jdbc_url": f"jdbc:sqlite:{path}", "spark": {"master": "local[2]"}, **settings},
        ), connection

    return make


@pytest.fixture
def postgres(tmp_path, postgresql):
    """A PostgreSQL database and a tap on it: `postgres(script, **settings)`."""
    opened = []

    def make(script: str, **settings: Any) -> tuple[Tap, psycopg.Connection]:
        database = postgresql.new_database()
        connection = psycopg.connect(database.dsn, autocommit=True)
        opened.append(connection)
        connection.execute(script)
        login = {
            "jdbc_url": database.jdbc_url,
            "user": database.user,
            "password": database.password,
        }
        return Tap(tmp_path, {**login, "spark": {"master": "local[2]"}, **settings}), connection

    yield make
    for connection in opened:
        connection.close()
