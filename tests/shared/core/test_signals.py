"""Signals stop a program wherever they meet it."""

from __future__ import annotations

import signal
import subprocess
import sys
from subprocess import PIPE

PROGRAM = """
import os, signal, sys, time
from singer_spark.program.frame import run_program

class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)  # the handler runs here, where no exception gets out

def main():
    if sys.argv[1] == "stop":
        Destroyed()
    else:
        type("Broken", (), {"__del__": lambda self: 1 / 0})()
        return 0
    try:
        time.sleep(60)
    finally:
        print("cleaned up", flush=True)

run_program(main, "program", if_stopped="nothing was done")
"""


HANGS = """
import sys, threading
from singer_spark.error_codes import RunCode
from singer_spark.errors import LockedError
from singer_spark.core.signals import stop_by_error
from singer_spark.program.frame import run_program

def main():
    never = threading.Event()
    try:
        print("ready", flush=True)
        if sys.argv[1] == "error":
            taken_over = LockedError(RunCode.STORAGE_FAILED, "another run holds it")
            threading.Thread(target=stop_by_error, args=(taken_over,)).start()
        never.wait()
    finally:
        never.wait()

run_program(main, "program", if_stopped="nothing was done", grace_seconds=0.2)
"""
RELEASED = """
import threading
from singer_spark.program import frame

closed = threading.Event()

def end_java():
    closed.set()  # as a connection does that the JVM held
    threading.Event().wait(1)

def main():
    try:
        print("ready", flush=True)
        threading.Event().wait()
    finally:
        closed.wait()

frame.kill_jvm = end_java
frame.run_program(main, "program", if_stopped="nothing was done", grace_seconds=0.2)
"""
SECONDS = 30


def run(word: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, word]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_signal_in_a_destructor_still_stops() -> None:
    """A signal that arrives in a destructor still stops the program."""
    done = run("stop")
    assert (done.returncode, done.stdout) == (143, "cleaned up\n"), done.stderr
    assert done.stderr == "program: stopped by SIGTERM; nothing was done\n"


def test_other_destructor_failure_is_still_shown() -> None:
    done = run("break")
    assert done.returncode == 0
    assert "ZeroDivisionError" in done.stderr


def test_silent_cleanup_has_a_limit() -> None:
    """A program whose clean-up waits for what never comes ends soon after the signal, with its exit
    code.
    """
    _ends_at_the_limit(HANGS)


def test_cleanup_released_by_limit_reports_once() -> None:
    _ends_at_the_limit(RELEASED)


def _ends_at_the_limit(program: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program, "signal"], stdout=PIPE, stderr=PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert (
        errors
        == "program: stopped by SIGTERM; nothing was done; what was open did not close in 0.2 s\n"
    )


def test_thread_error_stops_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS, "error"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("program: RUN-052 another run holds it; ")
