"""Processes that a test starts, found again by a mark in their environment, whatever parent they
have now.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "SPARK_LAKE_TEST_MARK"
SECONDS = 120
# By a program of its own: Python code between fork and exec can meet the threads of a library.
FROM_A_TERMINAL = ["env", "--default-signal=HUP,INT"]


def until(
    condition: Callable[[], Any],
    what: str,
    process: subprocess.Popen[bytes] | None = None,
    seconds: float = SECONDS,
) -> Any:
    """Waits for something true and gives it; fails where the process ends before."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        assert process is None or process.poll() is None, (
            f"ended with {process.returncode} before {what}"
        )
        time.sleep(0.03)
    return found


@dataclass(frozen=True)
class Marked:
    """Starts programs with a mark, and with a place of their own for temporary files.

    Attributes:
        temporary: That place.
    """

    temporary: Path
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a program with all of its pipes open; it gets signals as if the tests were not run
        by `nohup`.
        """
        self.temporary.mkdir(parents=True, exist_ok=True)
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        variables = {**os.environ, MARK: self._mark, "TMPDIR": str(self.temporary)}
        settings = {**pipes, "env": variables, **options}
        process = subprocess.Popen([*FROM_A_TERMINAL, *command], **settings)
        self._started.append(process)
        return process

    def run(self, command: list[str], data: bytes = b"", **options: Any) -> tuple[int, bytes, str]:
        """Runs a program to its end: exit code, standard output, standard error."""
        process = self.start(command, **options)
        output, errors = process.communicate(data, timeout=SECONDS)
        return process.returncode, output, errors.decode()

    def alive(self) -> list[int]:
        """Ids of all processes with the mark; a zombie has none."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(int(folder.name))
        return found

    def java(self) -> list[int]:
        """Those of them that run Java, be it Spark's launcher or Spark."""
        found = []
        for process in self.alive():
            with suppress(OSError):
                if Path(f"/proc/{process}/exe").readlink().name == "java":
                    found.append(process)
        return found

    def python_tasks(self) -> list[int]:
        """Those of them in which Spark runs Python for its tasks."""
        found = []
        for process in self.alive():
            with suppress(OSError):
                if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes():
                    found.append(process)
        return found

    def scratch(self, pattern: str) -> list[Path]:
        """Files and folders in the scratch folders, as far as they do not change."""
        with suppress(FileNotFoundError):
            return list(self.temporary.glob(f"singer-spark-scratch-*/{pattern}"))
        return []

    def have_ended(self) -> None:
        """All ended with the program; only Spark's Python ends a moment after its JVM."""
        tasks = self.python_tasks()
        assert set(self.alive()) <= set(tasks)
        self.leave_nothing()

    def leave_nothing(self) -> None:
        """Whatever was killed, its JVM goes by itself."""
        until(lambda: not self.alive(), "the end of all processes")

    def end_all(self) -> None:
        """Kills what a failed test left, and closes all pipes."""
        for number in self.alive():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for process in self._started:
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                with suppress(OSError):
                    stream.close()


def handles(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for this signal by now."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    return False


def said(errors: str, program: str) -> str:
    """The one line that a program said of its end; nothing else may look like a trace."""
    assert "Traceback" not in errors and "\n\tat " not in errors, errors
    lines = [line for line in errors.splitlines() if line.startswith(f"{program}:")]
    assert len(lines) == 1, errors
    return lines[0]
