"""The frame around both programs, with small programs in their place: signals, closed descriptors,
shortages.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from singer_spark.error_codes import RunCode
from singer_spark.errors import limit_reached

SECONDS = 30
WAITS = """
import sys, time
from singer_spark.core import signals
from singer_spark.program import frame
def say(what):
    print(what, file=sys.stderr, flush=True)
def wait():
    # Python sees a signal that comes right before a sleep only once that is over.
    while True:
        time.sleep(0.01)
def main():
    {body}
frame.run_program(main, "tap-x", if_stopped="nothing happened")
"""


def start(body: str, *, hangup: str = "default", **options: Any) -> subprocess.Popen[str]:
    """Runs a program that has this body, and waits until it says that it has begun."""
    process = subprocess.Popen(
        ["env", f"--{hangup}-signal=HUP", sys.executable, "-c", WAITS.format(body=body)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    assert next_line(process) == "begun\n"
    return process


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line of the standard error, and no byte more: `communicate` passes buffers by."""
    assert process.stderr is not None
    read = b""
    while not read.endswith(b"\n") and (byte := os.read(process.stderr.fileno(), 1)):
        read += byte
    return read.decode()


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_signal_is_one_line_and_exit_code(name: str, code: int) -> None:
    process = start("say('begun'); wait()")
    process.send_signal(getattr(signal, name))
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (code, "")
    assert errors == f"tap-x: stopped by {name}; nothing happened\n"


def test_cleanup_error_does_not_hide_signal() -> None:
    body = """
    try:
        say('begun'); wait()
    finally:
        raise ValueError('the JVM is gone')"""
    process = start(body)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (143, "tap-x: stopped by SIGTERM; nothing happened\n")


def test_signal_raises_nothing_during_imports() -> None:
    """A compiled module that meets an exception while it starts may crash the interpreter."""
    body = """
    with signals.loading():
        try:
            say("begun")
            wait()
        except BaseException:
            say("raised")
    """
    process = start(body)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (143, "")
    assert errors == "tap-x: stopped by SIGTERM; nothing happened\n"


def test_signal_during_jvm_wait_leaves_no_lock() -> None:
    """Raised right after the process's lock is taken, it would let the end of the JVM wait
    forever.
    """
    body = """
    import os, signal, subprocess
    from singer_spark.engine import gateway
    from singer_spark.engine.spark_jvm import start_jvm
    class Lock:
        def __init__(self, lock):
            self.lock, self.release, self.signalled = lock, lock.release, False
        def acquire(self, *options):
            taken = self.lock.acquire(*options)
            if not self.signalled:
                self.signalled = True
                os.kill(os.getpid(), signal.SIGTERM)
            return taken
        def __enter__(self):
            return self.lock.__enter__()
        def __exit__(self, *raised):
            return self.lock.__exit__(*raised)
    class Jvm(subprocess.Popen):
        def __init__(self, *options, **more):
            super().__init__(*options, **more)
            self._waitpid_lock = Lock(self._waitpid_lock)
    subprocess.Popen = Jvm
    say("begun")
    # Like a JVM that never answers: it lives until its standard input ends.
    gateway.begin(lambda: start_jvm(["cat"], grace_seconds=0), ())
    gateway.gateway()
    """
    process = start(body)
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output) == (143, "")
    assert errors == "tap-x: stopped by SIGTERM; nothing happened\n"


def test_cleanup_ignores_immediate_extra_signals() -> None:
    """Signals that arrive right after the first one do not interrupt the clean-up."""
    body = """
    try:
        say("begun")
        wait()
    finally:
        say("cleaning")
        sys.stdin.readline()
        say("clean")
    """
    process = start(body)
    process.send_signal(signal.SIGINT)
    assert next_line(process) == "cleaning\n"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    _, errors = process.communicate("\n", timeout=SECONDS)
    assert process.returncode == 130
    assert errors == "clean\ntap-x: stopped by SIGINT; nothing happened\n"


def test_later_signal_ends_hanging_cleanup() -> None:
    body = """
    signals.SAME_BREATH_SECONDS = -1
    try:
        say("begun")
        wait()
    finally:
        say("cleaning")
        wait()
    """
    process = start(body)
    process.send_signal(signal.SIGTERM)
    assert next_line(process) == "cleaning\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert errors.startswith("tap-x: ended by a second SIGINT")


@pytest.mark.parametrize("later_signal", [False, True])
def test_protected_work_ends_unless_signal_repeats(
    later_signal: bool,
) -> None:
    """Work that must not be stopped is finished unless a later signal insists."""
    body = f"""
    signals.too_late_to_stop()
    signals.SAME_BREATH_SECONDS = {-1 if later_signal else 60}
    say("begun")
    sys.stdin.readline()
    print("committed")
    """
    process = start(body)
    process.send_signal(signal.SIGTERM)
    assert "SIGTERM came too late to stop the commit" in next_line(process)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate("\n", timeout=SECONDS)
    assert (process.returncode, output) == ((143, "") if later_signal else (0, "committed\n"))
    assert ("ended by a second SIGTERM" in errors) == later_signal


def test_signal_does_not_wait_for_threads() -> None:
    """A thread may hang in a request without a response."""
    body = (
        "__import__('threading').Thread(target=lambda: time.sleep(60)).start(); say('begun'); "
        "wait()"
    )
    process = start(body)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 143


def test_nohup_is_respected() -> None:
    process = start("say('begun'); sys.stdin.readline()", hangup="ignore")
    process.send_signal(signal.SIGHUP)
    process.communicate("\n", timeout=SECONDS)
    assert process.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_not_taken_by_files(tmp_path: Path, closed: str) -> None:
    """Else a database or a journal that is opened first would get what is printed."""
    code = WAITS.format(
        body="""
    file = open(sys.argv[1], "w")
    assert file.fileno() > 2
    assert sys.stdin.read() == ""
    print("to standard error", file=sys.stderr)
    __import__("subprocess").run(["echo", "noise of a child"])
    file.write("mine")
    file.close()
    print("to standard output")
    """
    )
    script = f'exec "$@" {closed}'
    command = ["bash", "-c", script, "bash", sys.executable, "-c", code, str(tmp_path / "file")]
    done = subprocess.run(
        command, input="", capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (tmp_path / "file").read_text() == "mine"
    assert "Traceback" not in done.stderr
    if ">&-" not in closed.replace("2>&-", ""):
        assert (done.returncode, done.stdout) == (0, "to standard output\n")
    else:
        assert done.returncode == 1  # what had to be said could not be


@pytest.mark.parametrize("full", [False, True])
def test_unwritable_stderr_stops_no_run(full: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = WAITS.format(body='__import__("logging").error("nobody hears"); print("sent")')
    with Path("/dev/full" if full else os.devnull).open("wb") as device:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=device if full else writer,
            timeout=SECONDS,
            check=False,
        )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"sent\n")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("raise MemoryError", "RUN-013"),
        ("__import__('pyarrow').allocate_buffer(1 << 60)", "RUN-013"),
        ("__import__('pathlib').Path('/dev/full').write_text('x')", "RUN-015"),
    ],
)
def test_shortage_is_one_clear_line(body: str, code: str) -> None:
    process = start("say('begun'); sys.stdin.readline(); " + body)
    output, errors = process.communicate("\n", timeout=SECONDS)
    (line,) = errors.splitlines()
    assert (process.returncode, output) == (1, "")
    assert line.startswith(f"tap-x: {code} ")


def test_closed_stdout_reader_is_one_clear_line() -> None:
    process = start("say('begun'); sys.stdin.readline(); print('x')")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate("\n", timeout=SECONDS)
    (line,) = errors.splitlines()
    assert process.returncode == 1
    assert "the reader of standard output is gone" in line


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("can't start new thread", True),
        ("java.io.FileNotFoundException: /spark.jar (Too many open files)", True),
        (
            "org.postgresql.util.PSQLException: ERROR: could not open file: Too many open files in "
            "system",
            False,
        ),
    ],
)
def test_server_limits_are_not_local_limits(text: str, ours: bool) -> None:
    found = limit_reached(text)
    assert (found and found.code) is (RunCode.LIMIT_REACHED if ours else None)
