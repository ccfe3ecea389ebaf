"""What people see of a run: two programs of one pipe on one terminal, log lines elsewhere, JSON for
programs.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest
from rich.cells import cell_len

from singer_spark.program import progress as shown
from singer_spark.program.amounts import size_text, span_text
from singer_spark.program.logs import LOG_CONFIG, logs_as_configured
from singer_spark.program.progress import Progress

ROUNDS, STREAMS = 40, 30
COLUMNS, LINES = 90, 12
# It prints two lines, passes a token on, and continues once the live lines are drawn again: the
# tap's part.
FEEDER = f"""
import sys
from singer_spark.core.stderr import claim_stderr
from singer_spark.program.progress import Progress
claim_stderr()
progress = Progress("sent")
progress.phase("reading")
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
from singer_spark.core import stderr
from singer_spark.core.stderr import claim_stderr
from singer_spark.program.progress import Progress
stderr.FRAME_SECONDS = 0.001
claim_stderr()
drawn = threading.Semaphore(0)
class Watched(Progress):
    def _lines(self, width, most):
        drawn.release()
        return super()._lines(width, most)
progress = Watched("loaded")
progress.phase("loading")
progress.expect("stream_0", 100)
reported = open(sys.argv[1], "w")
for number, _ in enumerate(sys.stdin.buffer):
    progress.advance(f"stream_{{number % {STREAMS}}}", 10, 1000)
    sys.stderr.write(f"shower says {{number}}\\n")
    # Of the frames that begin from here on the first one is drawn once the second one begins.
    while drawn.acquire(blocking=False): pass
    drawn.acquire(), drawn.acquire()
    print("drawn", file=reported, flush=True)
progress.finish_run("lake/raw", {{"stream_1": 7}})
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


@pytest.mark.slow
def test_piped_programs_tear_no_terminal_line(tmp_path: Path) -> None:
    """Two programs of a pipe share a terminal, and no line is torn."""
    (tmp_path / "feeder.py").write_text(FEEDER)
    (tmp_path / "shower.py").write_text(SHOWER)
    screen = pyte.HistoryScreen(COLUMNS, LINES, history=10_000)
    stream, live = pyte.ByteStream(screen), set[str]()
    os.mkfifo(tmp_path / "drawn")
    feeder, shower = (
        f'"$PYTHON" {tmp_path}/{name}.py {tmp_path}/drawn' for name in ("feeder", "shower")
    )
    command = f"set -o pipefail; {feeder} | {shower}"
    for piece in on_terminal(command):
        # One piece may hold several frames.
        for line_drawn in piece.splitlines(keepends=True):
            stream.feed(line_drawn)
            live.update(line.strip() for line in screen.display if " rows " in line)
    above = ["".join(row[column].data for column in range(COLUMNS)) for row in screen.history.top]
    lines = [line.rstrip() for line in (*above, *screen.display) if line.strip()]
    for program, said in (("feeder", 2 * ROUNDS), ("shower", ROUNDS)):
        assert [line for line in lines if line.startswith(program)] == [
            f"{program} says {n}" for n in range(said)
        ]
    rest = [line for line in lines if not line.startswith(("feeder says ", "shower says "))]
    assert re.fullmatch(
        rf"Done! {10 * ROUNDS} records in {STREAMS} stream\(s\), [\d.]+ s: lake/raw", rest[0]
    )
    assert len(rest) == 1 + STREAMS
    assert all(" records loaded, " in line for line in rest[1:])
    assert rest[2].endswith("; the next run starts at 7")
    # Meanwhile there were live lines: rows, rows a second, bytes, and the percentage where it is
    # estimated.
    assert any(
        all(part in line for part in ("stream_0 ", " ~10 % ", " 10 rows ", " 1.0 kB "))
        for line in live
    )
    assert any(line.startswith("stream_29 ") for line in live)


def test_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    (tmp_path / "shower.py").write_text(
        SHOWER.replace("    drawn.acquire(), drawn.acquire()\n", "")
    )
    said = b"".join(on_terminal(f'echo 1 | TERM=dumb "$PYTHON" {tmp_path}/shower.py /dev/null'))
    assert said.decode().splitlines()[0] == "shower says 0"
    assert said.decode().splitlines()[1].startswith("Done! 10 records in 1 stream(s), ")
    assert b"\x1b" not in said


def test_progress_line_shows_last_changed_stream() -> None:
    """The line has the stream's percentage if known; without recent changes, the phase."""
    progress = Progress("sent")
    progress.phase("connecting", logged=False)
    assert progress.line() == "connecting, 0.0 s"
    progress.expect("orders", 200)
    progress.expect("nothing-came", 100)
    progress.advance("orders", 100, 4_000)
    assert progress.line() == "orders: 100 records sent (~50 %), 4.0 kB"
    assert progress.line() == "connecting, 0.0 s"
    progress.advance("orders", 500, 0)
    assert progress.line().startswith("orders: 600 records sent (~99 %), ")


def live_lines(progress: Progress, width: int, most: int = 20) -> list[str]:
    return str(progress._lines(width, most)).splitlines()


def test_live_lines_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No number is cut short, a long name loses its middle, and what is done shows no estimate and
    a stopped clock.
    """
    now = [1_000.0]
    monkeypatch.setattr(shown.time, "monotonic", lambda: now[0])
    progress = Progress("loaded")
    progress.phase("reading")
    progress.stop()
    progress.expect_streams(12)
    names = [
        "public-orders",
        *(f"public-a_table_with_a_very_long_name_number_{n}" for n in range(3)),
        "表" * 40,
    ]
    for name in names:
        progress.expect(name, 40_000_000)
        progress.advance(name, 1_000_000, 200_000_000)
        now[0] += 100
        progress.advance(name, 11_345_678, 2_222_000_000)
    progress.done(*names[:3])
    progress.delete(names[0], 11)
    now[0] += 1_000
    for width in (40, 60, 79, 140):
        heading, *lines = live_lines(progress, width)
        assert [cell_len(line) for line in (heading, *lines)] == [width] * 6
        assert heading.startswith("reading, 3 of 12 tables  ")
        assert all(" 12,345,678 rows" in line for line in lines)
        assert [line[0] for line in lines] == ["✓", "✓", "✓", " ", " "]
        estimated = [("~30 %" in line, "━" in line) for line in lines]
        assert estimated == [(False, False)] * 3 + [(True, width > 80)] * 2
    wide = live_lines(progress, 140)
    assert "  11 deleted  " in wide[1]
    assert "GB" in wide[1] and wide[1].endswith("1 min 40 s")
    assert [line.split()[1][-3:] for line in live_lines(progress, 79)[2:4]] == ["r_0", "r_1"]
    assert live_lines(progress, 79, most=4)[1] == "  … and 3 more tables"


def test_progress_is_logged_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal, a phase that is logged has a line every few seconds."""
    ticks = threading.Semaphore(0)
    monkeypatch.setattr(shown, "LOG_SECONDS", 0.001)
    progress = Progress("sent")
    monkeypatch.setattr(progress, "line", lambda: ticks.release() or f"in {progress._phase}")
    progress.phase("waiting", logged=False)
    progress.phase("reading")
    assert ticks.acquire(timeout=60)
    progress.phase("done", logged=False)
    progress.stop()
    said = capsys.readouterr().err.splitlines()
    assert set(said) == {"in reading"}


def test_log_readers_get_progress_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A program that reads the log gets progress and summary as JSON."""
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
        assert logs_as_configured()
        progress = Progress("sent")
        progress.advance("orders", 340, 1_500)
        progress.advance("customers", 20, 1_000)
        progress.finish_run("./lake", {"orders": 7})
    finally:
        root.handlers[:], root.level = before, level
    reported = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [each["level"] for each in reported] == ["info"] * len(reported)
    *_, done, streams = (each["message"] for each in reported)
    assert done.startswith("Done! 360 records in 2 stream(s), ")
    assert re.fullmatch(
        r"orders: 340 records sent, 1.5 kB.*; the next run starts at 7 \| customers: 20 records "
        r"sent, 1.0 kB.*",
        streams,
    )


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
def test_time_spans_show_two_largest_units(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
    assert size_text(999.9e9) == "999.9 GB"
