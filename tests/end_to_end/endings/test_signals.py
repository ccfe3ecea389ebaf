"""SIGTERM, SIGINT, SIGHUP and SIGKILL in every phase: exit codes, nothing published, no process
left, no trace.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.marked import SECONDS, Marked, handles, said, until
from end_to_end.pipe import Pipe
from servers.mariadb import MariaDB
from servers.postgresql import PostgreSQL
from servers.wire import relayed
from singer_spark.store.storage import Storage
from target_spark_lake.commit.lock import newest_entry, take_lock
from target_spark_lake.layout import Layout

TAP, TARGET = "tap-spark-jdbc", "target-spark-lake"
LOCAL = {"spark": {"master": "local[2]"}}
NUMBERS = (
    "with recursive n(i) as (select 1 union all select i + 1 from n{limit}) "
    "select i as id, printf('%0100d', i) as v from n"
)
PLAIN = {"id": {"type": "integer"}, "v": {"type": "string"}}


def line(kind: str, **values: Any) -> bytes:
    return json.dumps({"type": kind, **values}).encode() + b"\n"


def schema(properties: dict[str, Any]) -> bytes:
    return line(
        "SCHEMA",
        stream="s",
        schema={"type": "object", "properties": properties},
        key_properties=["id"],
    )


def records(size: int) -> bytes:
    """So many bytes of RECORD lines, and a few more."""
    record = line("RECORD", stream="s", record={"id": 1, "v": "x" * 500})
    return record * (size // len(record) + 1)


GOOD = schema(PLAIN) + records(1000) + line("STATE", value={"at": 1})
# More than the target keeps before it begins to stage, where files have a megabyte.
FIRST_BATCH = 5_000_000


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    """A pipe from SQLite: `rows` is a table, `endless` a view that never comes to its end."""
    path = tmp_path / "source.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table rows (id integer primary key, v text)")
        connection.execute(f"insert into rows {NUMBERS.format(limit=' limit 60000')}")
        connection.execute(f"create view endless as {NUMBERS.format(limit='')}")
    connection.close()
    tap = {"jdbc_url": f"jdbc:sqlite:{path}", "tables": ["rows"], "slice_rows": 5000, **LOCAL}
    return Pipe(tmp_path / "run", tap, LOCAL)


def published(pipe: Pipe) -> list[str]:
    """What a reader of the lake, or the next run, would find."""
    found = (
        path.relative_to(pipe.bucket).as_posix()
        for path in pipe.bucket.rglob("*")
        if path.is_file()
    )
    return [path for path in found if path.startswith("raw/") or "/state/" in path]


def staged(pipe: Pipe) -> list[Path]:
    return [path for path in pipe.bucket.glob(".dataspoc/staging/**/*") if path.is_file()]


def next_run_is_good(pipe: Pipe, marked: Marked) -> None:
    """The next run of the target succeeds, and leaves neither staged nor temporary files, of
    whomever they were.
    """
    code, output, errors = marked.run(pipe.target_command(), GOOD)
    assert (code, output) == (0, b'{"at":1}\n'), errors
    assert pipe.state == {"at": 1}
    assert staged(pipe) == []
    assert list(marked.temporary.iterdir()) == []


def stop(process: subprocess.Popen[bytes], number: signal.Signals, program: str) -> str:
    """Sends the signal.

    The exit code, one line, and the end of all that the program had started must follow.
    """
    process.send_signal(number)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + number, errors.decode()
    reported = said(errors.decode(), program)
    assert f"stopped by {number.name}" in reported
    return reported


def reads(marked: Marked) -> bool:
    """Whether the tap has read rows of a table that it can't cut: here, or by a task of Spark's."""
    return bool(marked.scratch("spool-*/slice-*/piece-*") or marked.python_tasks())


@pytest.mark.parametrize(("program", "number"), [(TAP, signal.SIGINT), (TARGET, signal.SIGTERM)])
def test_signal_during_import_stops_program(
    pipe: Pipe, marked: Marked, program: str, number: signal.Signals
) -> None:
    process = marked.start(pipe.tap_command() if program == TAP else pipe.target_command())
    # The last handler that is installed; Python has one of its own for SIGINT from the beginning.
    until(lambda: handles(process.pid, signal.SIGHUP), "the handlers", process)
    stop(process, number, program)
    marked.have_ended()
    assert published(pipe) == []


def test_ctrl_c_leaves_no_starting_jvm(pipe: Pipe, marked: Marked) -> None:
    tap = marked.start(pipe.tap_command())
    until(marked.java, "a JVM", tap)
    stop(tap, signal.SIGINT, TAP)
    assert marked.java() == []
    assert list(marked.temporary.iterdir()) == []


def test_sighup_stops_tap_on_silent_database(pipe: Pipe, marked: Marked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        pipe.tap = {
            "jdbc_url": f"jdbc:postgresql://127.0.0.1:{server.getsockname()[1]}/x",
            "user": "u",
            **LOCAL,
        }
        tap = marked.start(pipe.tap_command())
        server.settimeout(SECONDS)
        connection, _ = server.accept()
        with connection:
            stop(tap, signal.SIGHUP, TAP)
    marked.have_ended()


def test_sigterm_on_silent_connections(postgresql: PostgreSQL, pipe: Pipe, marked: Marked) -> None:
    """A server that has fallen silent while rows are read by ADBC keeps nothing from ending."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn) as connection:
        connection.execute("create table numbers as select generate_series(1, 3000) as n")
        connection.execute(
            "create view slow as select n, repeat('x', 20000) v, pg_sleep(0.003)::text p from "
            "numbers"
        )
    with relayed(database.host, database.port) as wire:
        pipe.tap = {
            "jdbc_url": f"jdbc:postgresql://127.0.0.1:{wire.port}/{database.name}",
            "user": database.user,
            "password": database.password,
            "reader": "arrow",
            "engine": "local",  # Spark's tasks have this reader for batches only
            "tables": ["slow"],
            **LOCAL,
        }
        tap = marked.start(pipe.tap_command())
        assert tap.stdout is not None
        until(lambda: wire.bytes > 2_000_000, "rows", tap)
        wire.silence()
        until(lambda: wire.unanswered, "a question without an answer", tap)
        assert "what was sent is not a complete run" in stop(tap, signal.SIGTERM, TAP)
    marked.leave_nothing()
    assert list(marked.temporary.iterdir()) == []


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_sigterm_on_silent_connections_of_mariadb(
    mariadb: MariaDB, pipe: Pipe, marked: Marked, reader: str
) -> None:
    """Nor does a silent MariaDB, whichever process waits for it: one of ConnectorX, or a JVM."""
    database = mariadb.new_database()
    with database.connect() as connection, connection.cursor() as cursor:
        texts = ", ".join(f"cast(repeat('x', 250) as char(250)) v{each}" for each in range(8))
        cursor.execute(
            f"create view slow as select seq n, {texts}, sleep(0.005) p from seq_1_to_3000"
        )
    with relayed(database.host, database.port) as wire:
        login = {
            "user": database.user,
            "password": database.password,
            "reader": reader,
            "engine": "local",  # Spark's tasks read MariaDB by JDBC alone
            "tables": ["slow"],
        }
        url = f"jdbc:mariadb://127.0.0.1:{wire.port}/{database.name}"
        pipe.tap = {"jdbc_url": url, "schemas": [database.name], **login, **LOCAL}
        tap = marked.start(pipe.tap_command())
        until(lambda: wire.bytes > 300_000, "rows", tap)
        assert bool(children(marked)) == (reader == "arrow")
        wire.silence()
        assert "what was sent is not a complete run" in stop(tap, signal.SIGTERM, TAP)
        marked.leave_nothing()  # the kernel ends ConnectorX's process a moment after the tap
    assert list(marked.temporary.iterdir()) == []


def children(marked: Marked) -> list[int]:
    """The processes that read by ConnectorX."""
    found = [(each, Path(f"/proc/{each}/cmdline").read_bytes()) for each in marked.alive()]
    return [each for each, line in found if b"connectorx_child" in line]


def test_sigterm_on_full_pipe_sends_no_final_state(pipe: Pipe, marked: Marked) -> None:
    """The target sleeps: the tap hangs in a write, with slices being rendered ahead."""
    tap = marked.start(pipe.tap_command())
    assert tap.stdout is not None
    begun = tap.stdout.readline() + tap.stdout.readline() + tap.stdout.readline()
    until(lambda: marked.scratch("spool-*/slice-000003/lines.txt"), "a slice ahead", tap)
    tap.send_signal(signal.SIGTERM)
    tap.wait(SECONDS)  # without reading on: what it still holds must not keep it
    rest, errors = tap.communicate(timeout=SECONDS)
    assert tap.returncode == 143
    assert "stopped by SIGTERM" in said(errors.decode(), TAP)
    assert b'"RECORD"' in begun
    assert b'"final":true' not in begun + rest
    marked.have_ended()
    assert list(marked.temporary.iterdir()) == []


def test_sigint_stops_target_waiting_for_input(pipe: Pipe, marked: Marked) -> None:
    target = marked.start(pipe.target_command())
    assert target.stdin is not None
    target.stdin.write(schema(PLAIN) + records(1000))
    target.stdin.flush()
    until(lambda: marked.scratch("spool-*/*.jsonl"), "the records' spool", target)
    assert "nothing was published" in stop(target, signal.SIGINT, TARGET)
    assert published(pipe) == []
    next_run_is_good(pipe, marked)


@pytest.mark.parametrize("variable", ["4.5", "2"])
def test_taken_over_run_stops_at_once(pipe: Pipe, marked: Marked, variable: str) -> None:
    """The first sign of life after another run took the pipeline ends the run, and names that other
    run.
    """
    environment = {**os.environ, "TARGET_SPARK_LAKE_LOCK_TTL_SECONDS": variable}
    process = marked.start([*pipe.target_command(), "--config", "ENV"], env=environment)
    assert process.stdin is not None
    process.stdin.write(GOOD)
    process.stdin.flush()
    storage, layout = Storage(str(pipe.bucket)), Layout("test")
    until(lambda: newest_entry(storage, layout), "the lock", process)
    other = take_lock(storage, layout, 60, force=True)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert f"run {other.entry.run_id} (" in errors.decode()
    assert published(pipe) == []
    other.release()


@pytest.mark.usefixtures("with_pandas")
@pytest.mark.parametrize(
    ("number", "staging"), [(signal.SIGTERM, "local"), (signal.SIGHUP, "spark")]
)
def test_signal_during_staging_publishes_nothing(
    pipe: Pipe, marked: Marked, number: signal.Signals, staging: str
) -> None:
    """Batches are staged by Arrow, or by Spark in the middle of a job."""
    pipe.target |= {"staging": staging, "target_file_mb": 1}
    target = marked.start(pipe.target_command())
    assert target.stdin is not None
    target.stdin.write(schema(PLAIN) + records(FIRST_BATCH))
    target.stdin.flush()
    until(lambda: staged(pipe), "a staged file", target)
    stop(target, number, TARGET)
    marked.leave_nothing()  # Spark's Python workers notice the end of their JVM, a moment after it.
    assert published(pipe) == []
    pipe.target["staging"] = "local"
    next_run_is_good(pipe, marked)


def test_ctrl_c_ends_both_programs_cleanly(pipe: Pipe, marked: Marked) -> None:
    """SIGINT to the process group of `tap | target` leaves no traceback, process or file."""
    pipe.tap["tables"] = ["endless"]
    script = f"set -o pipefail; {' '.join(pipe.tap_command())} | {' '.join(pipe.target_command())}"
    shell = marked.start(["bash", "-c", script], start_new_session=True)
    until(lambda: reads(marked), "rows", shell)
    os.killpg(shell.pid, signal.SIGINT)
    output, errors = shell.communicate(timeout=SECONDS)
    assert (shell.returncode, output) in ((130, b""), (-signal.SIGINT, b"")), errors.decode()
    text = errors.decode()
    assert "Traceback" not in text and "\n\tat " not in text, text
    assert f"{TAP}: stopped by SIGINT" in text
    assert f"{TARGET}: stopped by SIGINT" in text
    marked.leave_nothing()
    assert published(pipe) == []
    assert list(marked.temporary.iterdir()) == []


@pytest.mark.usefixtures("with_pandas")
def test_kill_9_of_both_programs_leaves_no_jvm(pipe: Pipe, marked: Marked) -> None:
    """After kill -9 of both programs no JVM is left, and the next start cleans up."""
    pipe.tap |= {"tables": ["endless"], "engine": "local"}
    pipe.target |= {"staging": "spark", "target_file_mb": 1}
    tap = marked.start(pipe.tap_command())
    target = marked.start(pipe.target_command())
    assert target.stdin is not None
    target.stdin.write(schema(PLAIN) + records(FIRST_BATCH))
    target.stdin.flush()
    until(lambda: marked.scratch("spool-*/slice-*/piece-*"), "the first piece", tap)
    until(lambda: staged(pipe), "a staged file", target)
    assert (
        len(marked.scratch("blockmgr-*")) == 1
    )  # what the target's Spark itself writes is there, too
    assert marked.scratch("rows-*")  # and the pipe of the tap's JVM
    for process in (tap, target):
        process.kill()
        process.communicate()
    assert len(list(marked.temporary.iterdir())) == 2
    marked.leave_nothing()
    assert published(pipe) == []
    # Also where no batch of it is staged by Spark.
    pipe.target["staging"] = "local"
    next_run_is_good(pipe, marked)


def test_killed_jvm_fails_run_with_one_line(pipe: Pipe, marked: Marked) -> None:
    pipe.tap["tables"] = ["endless"]
    tap = marked.start(pipe.tap_command())
    target = marked.start(pipe.target_command(), stdin=tap.stdout)
    assert tap.stdout is not None
    tap.stdout.close()
    tap.stdout = None
    until(lambda: reads(marked), "rows", tap)
    # Spark's own; what it forks to change a file's mode looks like Java for a moment.
    os.kill(min(marked.java()), signal.SIGKILL)
    _, tap_errors = tap.communicate(timeout=SECONDS)
    output, target_errors = target.communicate(timeout=SECONDS)
    assert (tap.returncode, target.returncode, output) == (1, 1, b""), tap_errors.decode()
    reported = said(tap_errors.decode(), TAP)
    assert "RUN-012 " in reported
    assert "SIGKILL" in reported
    assert "spark.driver.memory" in reported
    assert "the tap died" in said(target_errors.decode(), TARGET)
    assert published(pipe) == []
    next_run_is_good(pipe, marked)
