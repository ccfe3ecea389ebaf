"""What reaches the user: one line without secrets; what reaches the pipe: Singer lines alone."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from singer_spark import errors
from singer_spark.core import messages
from singer_spark.program.progress import Progress


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_error_is_one_line_without_the_secret() -> None:
    """An error is one line without the secret, and the exit code is not zero."""
    done = _run(
        "from singer_spark import errors\n"
        "def main():\n"
        "    errors.register_secret('p@ss word')\n"
        "    text = 'can not log in\\nwith p@ss word at host?pw=p%40ss%20word'\n"
        "    raise errors.SourceError(errors.RunCode.STORAGE_FAILED, text)\n"
        "errors.run_command_line(main, 'tap-x')"
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "tap-x: RUN-052 can not log in with ***** at host?pw=*****\n"


def test_debug_trace_hides_secrets() -> None:
    code = (
        "from singer_spark import errors\n"
        "def main():\n"
        "    errors.register_secret('hunter2')\n"
        "    raise ValueError('hunter2')\n"
        "errors.run_command_line(main, 'tap-x')"
    )
    done = _run(code, "--log-level", "debug")
    assert "Traceback" in done.stderr
    assert "hunter2" not in done.stderr.replace("errors.register_secret('hunter2')", "")
    (line,) = _run(code).stderr.splitlines()
    assert line.startswith("tap-x: RUN-099 ")


def test_claimed_stdout_has_only_written_output(tmp_path: Path) -> None:
    """Other output of the process and its children goes to standard error."""
    spool = tmp_path / "spool"
    spool.write_bytes(b"from the spool\n" * 100_000)
    done = _run(
        "import os, subprocess, sys, pathlib\n"
        "from singer_spark.core import stdout\n"
        "stdout.claim_stdout()\n"
        "os.write(1, b'noise of the process\\n')\n"
        "subprocess.run(['echo', 'noise of a child'])\n"
        "stdout.write(b'first\\n')\n"
        "stdout.send_file(pathlib.Path(sys.argv[1]))\n"
        "print('last')",
        str(spool),
    )
    assert done.stdout == "first\n" + "from the spool\n" * 100_000 + "last\n"
    assert "noise of the process" in done.stderr
    assert "noise of a child" in done.stderr


def test_singer_lines_support_any_stream_name() -> None:
    name = 'a"b\\c\nü 😀'
    moment = datetime(1, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
    line = messages.record_prefix(name) + b'{"id":1}' + messages.record_suffix(moment)
    assert b"\n" not in line
    assert json.loads(line) == {
        "type": "RECORD",
        "stream": name,
        "record": {"id": 1},
        "time_extracted": "0001-02-03T04:05:06.000007Z",
    }


def test_state_lines_carry_start_and_final_flags() -> None:
    line = json.loads(messages.state_message({"bookmarks": {}}, final=False, start="first"))
    assert line == {"type": "STATE", "value": {"bookmarks": {}}, "final": False, "start": "first"}
    assert json.loads(messages.bare_state({"bookmarks": {}})) == {"bookmarks": {}}


def test_summary_counts_records_and_streams(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("sent")
    progress.advance("public-orders", 300, 1_000)
    progress.advance("public-orders", 40, 500)
    progress.finish()
    written = capsys.readouterr()
    assert written.out == ""
    assert "sent 340 records in 1 stream(s), 0.0 s" in written.err
    assert "public-orders: 340 records sent, 1.5 kB" in written.err


def test_every_error_has_one_base_class() -> None:
    ours = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]
    assert all(issubclass(each, errors.SingerSparkError) for each in ours)
    assert len(ours) == 15
