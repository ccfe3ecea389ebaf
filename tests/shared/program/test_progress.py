"""What people see of a run: two programs of one pipe on one terminal, log lines elsewhere, JSON for programs."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from singer_spark.program import progress as shown
from singer_spark.program.amounts import size_text, span_text
from singer_spark.program.progress import Progress
from singer_spark.program.structured_logs import LOG_CONFIG, logs_as_told

ROUNDS, STREAMS = 40, 30
COLUMNS, LINES = 90, 12
# It says two lines, hands a token on, and goes on once the live lines stand again: the tap's part.
FEEDER = f"""
import sys
from singer_spark.process.stderr import claim_stderr
from singer_spark.program.progress import Progress
claim_stderr()
progress = Progress("sent")
drawn = open(sys.argv[1])
for number in range({ROUNDS}):
    progress.advance("orders", 10, 100)
    sys.stderr.write(f"feeder says {{2 * number}}\\n")
    sys.stderr.write(f"feeder says {{2 * number + 1}}\\n")
    print(number, flush=True)
    drawn.readline()
progress.stop()
"""
# For each token: some rows, a line, and a frame on the terminal; the target's part.
SHOWER = f"""
import sys, threading
from singer_spark.program import live_lines
from singer_spark.process.stderr import claim_stderr
from singer_spark.program.progress import Progress
live_lines.FRAME_SECONDS = 0.001
claim_stderr()
drawn = threading.Semaphore(0)
class Watched(Progress):
    def _lines(self, most):
        drawn.release()
        return super()._lines(most)
progress = Watched("loaded")
progress.expect("stream_0", 100)
told = open(sys.argv[1], "w")
for number, _ in enumerate(sys.stdin.buffer):
    progress.advance(f"stream_{{number % {STREAMS}}}", 10, 1000)
    sys.stderr.write(f"shower says {{number}}\\n")
    drawn.acquire(), drawn.acquire()
    print("drawn", file=told, flush=True)
progress.finish()
"""


def on_terminal(command: str) -> Iterator[bytes]:
    """What comes to a terminal from a shell command, in pieces."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHON": sys.executable}
    for size in ("COLUMNS", "LINES"):
        environment.pop(size, None)
    with subprocess.Popen(["/bin/bash", "-c", command], stderr=theirs, env=environment) as child:
        os.close(theirs)
        while True:
            try:
                yield os.read(ours, 65_536)
            except OSError:  # the other end is closed by all
                break
        assert child.wait() == 0
    os.close(ours)


def test_two_programs_of_a_pipe_share_a_terminal_and_no_line_is_torn(tmp_path: Path) -> None:
    (tmp_path / "feeder.py").write_text(FEEDER)
    (tmp_path / "shower.py").write_text(SHOWER)
    screen = pyte.HistoryScreen(COLUMNS, LINES, history=10_000)
    stream, live = pyte.ByteStream(screen), set[str]()
    os.mkfifo(tmp_path / "drawn")
    feeder, shower = (f'"$PYTHON" {tmp_path}/{name}.py {tmp_path}/drawn' for name in ("feeder", "shower"))
    command = f"set -o pipefail; {feeder} | {shower}"
    for piece in on_terminal(command):
        stream.feed(piece)
        live.update(line.strip() for line in screen.display if "rows/s" in line)
    above = ["".join(row[column].data for column in range(COLUMNS)) for row in screen.history.top]
    lines = [line.rstrip() for line in (*above, *screen.display) if line.strip()]
    for program, said in (("feeder", 2 * ROUNDS), ("shower", ROUNDS)):
        assert [line for line in lines if line.startswith(program)] == [f"{program} says {n}" for n in range(said)]
    rest = [line for line in lines if not line.startswith(("feeder says ", "shower says "))]
    assert rest[0] == f"Done! {10 * ROUNDS} records in {STREAMS} stream(s)"
    assert len(rest) == 1 + STREAMS
    assert all(" records loaded, " in line for line in rest[1:])
    # Meanwhile there were live lines: rows, rows a second, bytes, and the percentage where it is known.
    assert any(all(part in line for part in ("stream_0 ", " 10 % ", " 10 rows ", " 1.0 kB ")) for line in live)
    assert any(line.startswith("stream_29 ") for line in live)


def test_a_terminal_that_cant_move_its_cursor_gets_plain_lines(tmp_path: Path) -> None:
    (tmp_path / "shower.py").write_text(SHOWER.replace("    drawn.acquire(), drawn.acquire()\n", ""))
    said = b"".join(on_terminal(f'echo 1 | TERM=dumb "$PYTHON" {tmp_path}/shower.py /dev/null'))
    assert said.decode().splitlines()[:2] == ["shower says 0", "Done! 10 records in 1 stream(s)"]
    assert b"\x1b" not in said


def test_elsewhere_a_line_comes_every_few_seconds_with_the_percentage_where_it_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress("sent")
    progress.expect("orders", 200)
    progress.expect("nothing-came", 100)
    progress.advance("orders", 50, 2_000)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(shown, "LOG_SECONDS", 0.0)
    progress.advance("orders", 50, 2_000)
    told = capsys.readouterr().err
    assert told.startswith("orders: 100 records sent (50 %), ")
    assert told.endswith(" rows/s, 4.0 kB\n")
    progress.advance("orders", 500, 0)
    assert "600 records sent (99 %)" in capsys.readouterr().err
    progress.finish()
    assert capsys.readouterr().err.splitlines()[0] == "Done! 600 records in 1 stream(s)"


def test_a_program_that_reads_the_log_gets_progress_and_summary_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "singer_sdk.logging.StructuredFormatter"}},
        "handlers": {"all": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["all"], "level": "INFO"},
    }
    (tmp_path / "log.json").write_text(json.dumps(config))
    monkeypatch.setenv(LOG_CONFIG, str(tmp_path / "log.json"))
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        assert logs_as_told()
        progress = Progress("sent")
        progress.advance("orders", 340, 1_500)
        progress.finish()
    finally:
        root.handlers[:], root.level = before, level
    told = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [each["level"] for each in told] == ["info"] * len(told)
    assert "Done! 340 records in 1 stream(s)" in [each["message"] for each in told]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.9, "9.9 s"),
        (9.96, "10 s"),
        (60, "1 min"),
        (3_725, "1 h 2 min"),
        (86_400, "1 d"),
        (-90, "-1 min 30 s"),
    ],
)
def test_spans_are_told_by_their_two_greatest_units(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
    assert size_text(999.9e9) == "999.9 GB"
