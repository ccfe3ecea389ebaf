"""Pipes and descriptors that are closed, or that nobody reads: reported clearly, and never as half
a success.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from end_to_end.marked import Marked, said
from end_to_end.pipe import Pipe

TARGET = "target-spark-lake"


def line(kind: str, **values: Any) -> bytes:
    return json.dumps({"type": kind, **values}).encode() + b"\n"


GOOD = (
    line(
        "SCHEMA",
        stream="s",
        schema={"properties": {"id": {"type": "integer"}}},
        key_properties=["id"],
    )
    + line("RECORD", stream="s", record={"id": 1})
    + line("STATE", value={"at": 1})
)


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    return Pipe(tmp_path / "run", {})


def by_shell(
    pipe: Pipe, marked: Marked, redirection: str, data: bytes = GOOD
) -> tuple[int, bytes, str]:
    return marked.run(
        ["bash", "-c", f'exec "$@" {redirection}', "bash", *pipe.target_command()], data
    )


@pytest.mark.parametrize("redirection", [">&-", "> >(exec >&- <&-)", "> /dev/full"])
def test_unread_final_state_is_committed_and_exits_1(
    pipe: Pipe, marked: Marked, redirection: str
) -> None:
    """If nobody reads the final state, the run is reported as committed and exits with 1."""
    code, _, errors = by_shell(pipe, marked, redirection)
    assert code == 1
    assert "the run is committed and its state is saved" in said(errors, TARGET)
    assert pipe.state == {"at": 1}
    assert pipe.rows("s", "id") == [(1,)]


def test_closed_stderr_pipe_fails_no_run(pipe: Pipe, marked: Marked) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = marked.start(pipe.target_command(), stderr=writer)
    os.close(writer)
    output, _ = process.communicate(GOOD, timeout=60)
    assert (process.returncode, output) == (0, b'{"at":1}\n')
    assert pipe.rows("s", "id") == [(1,)]


@pytest.mark.parametrize("redirection", ["2>&-", "<&- 2>&-"])
def test_closed_descriptors_do_no_harm(pipe: Pipe, marked: Marked, redirection: str) -> None:
    """With nothing to read and nowhere to complain, there is nothing to do; otherwise the run is
    like any other.
    """
    code, output, _ = by_shell(pipe, marked, redirection)
    assert (code, output) == ((0, b"") if "<" in redirection else (0, b'{"at":1}\n'))
    assert (pipe.bucket / "raw").exists() == ("<" not in redirection)


def test_idle_tap_detects_closed_target(pipe: Pipe, marked: Marked) -> None:
    """A tap with nothing to send yet still notices that its target is gone."""
    source = pipe.folder / "source.db"
    with sqlite3.connect(source) as connection:
        endless = (
            "with recursive n(i) as (select 1 union all select i + 1 from n) select i as id from n"
        )
        connection.execute(f"create view endless as {endless}")
    connection.close()
    pipe.tap = {"jdbc_url": f"jdbc:sqlite:{source}", "spark": {"master": "local[2]"}}
    tap = marked.start(pipe.tap_command())
    assert tap.stdout is not None
    assert b'"SCHEMA"' in tap.stdout.readline() + tap.stdout.readline()
    tap.stdout.close()
    tap.stdout = None
    _, errors = tap.communicate(timeout=60)
    assert tap.returncode == 1
    assert "the reader of standard output is gone" in said(errors.decode(), "tap-spark-jdbc")
    marked.have_ended()


@pytest.mark.parametrize("redirection", ["", "<&-"])
def test_empty_input_is_success_and_changes_nothing(
    pipe: Pipe, marked: Marked, redirection: str
) -> None:
    assert by_shell(pipe, marked, "")[:2] == (0, b'{"at":1}\n')
    before = {
        path: path.read_bytes()
        for path in pipe.bucket.rglob("*")
        if path.is_file() and "/raw/" in str(path)
    }
    state = pipe.state_path.read_bytes()
    code, output, errors = by_shell(pipe, marked, redirection, b"")
    assert (code, output) == (0, b""), errors
    after = {
        path: path.read_bytes()
        for path in pipe.bucket.rglob("*")
        if path.is_file() and "/raw/" in str(path)
    }
    assert (after, pipe.state_path.read_bytes()) == (before, state)
    assert not list(pipe.bucket.glob(".dataspoc/staging/**/*.*"))


def test_about_into_closed_pipe_is_one_line(pipe: Pipe, marked: Marked) -> None:
    """`--about` into a pipe whose reader has left reports one line without a traceback."""
    for program in (pipe.target_command()[0], pipe.tap_command()[0]):
        script = f"set -o pipefail; {program} --about --format json | head -c 0"
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        assert len(done.stderr.splitlines()) == 1
