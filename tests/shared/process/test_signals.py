"""Signals stop a program wherever they meet it."""

from __future__ import annotations

import subprocess
import sys

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


def run(word: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, word]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_signal_that_meets_a_destructor_stops_the_program_all_the_same() -> None:
    done = run("stop")
    assert (done.returncode, done.stdout) == (143, "cleaned up\n"), done.stderr
    assert done.stderr == "program: stopped by SIGTERM; nothing was done\n"


def test_any_other_failure_of_a_destructor_is_shown_as_ever() -> None:
    done = run("break")
    assert done.returncode == 0
    assert "ZeroDivisionError" in done.stderr
