"""The JVM behind this process's Spark session: started, watched and ended here, so that it never
outlives the process.

PySpark could start it too, but only reveals the process once Spark is ready: if this process were
stopped before that, the JVM would be left behind. If this process is killed, the JVM sees the end
of its standard input, and exits.
"""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import IO, Any

from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import stop_by_error
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, ResourceError, cut, limit_reached

LINES_KEPT = 200
JOIN_SECONDS = 2.0
_PACKAGES = re.compile(
    r"^(?:Exception in thread \S+ )?(?:Caused by: )?(?:[\w$]+\.)+(\w+(?:Exception|Error))\b:? ?"
)
_TRACE = re.compile(r"^\s+at |^\s*\.\.\. \d+ more|^Exception in thread ")
# What the log says about itself.
_OF_LOG = re.compile(r"^SLF4J")


class JvmOutput:
    """The standard error of one JVM, read by a thread."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._passing = False
        self._guard = Lock()
        self._ended = Event()

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The file for the JVM to write to, which is read from then on.

        Raises:
            ResourceError: no thread can be started.
        """
        read, write = os.pipe()
        with os.fdopen(write, "wb") as file:
            reader = os.fdopen(read, errors="replace")
            try:
                Thread(target=self._read, args=(reader,), name="jvm-output", daemon=True).start()
            except RuntimeError as error:
                reader.close()
                raise limit_reached(str(error)) or error from error
            yield file

    def _read(self, reader: IO[str]) -> None:
        with reader:
            for line in reader:
                with self._guard:
                    self._lines.append(line)
                    limit = limit_reached(line)
                    # The error says it in one line.
                    self._passing = self._passing and limit is None
                    if self._passing:
                        _write(line)
                if limit is not None:
                    # A JVM that can't start a thread may wait for it forever.
                    stop_by_error(limit)
        self._ended.set()

    def release(self) -> None:
        """Pass on what was written so far, and from now on."""
        with self._guard:
            self._passing = True
            for line in self._lines:
                _write(line)

    def join(self) -> None:
        """Wait for the end of what a JVM that is gone has written."""
        self._ended.wait(JOIN_SECONDS)

    def shortage(self) -> ResourceError | None:
        """The limit of the machine that the JVM met; None if it does not say so."""
        with self._guard:
            return limit_reached("".join(self._lines))

    def cause(self) -> ConfigurationError | None:
        """What the JVM said last beside traces, in one line; None if it said nothing."""
        with self._guard:
            lines = [line for line in self._lines if line.strip() and not _OF_LOG.search(line)]
        if not lines:
            return None
        said = [line for line in lines if not _TRACE.search(line)]
        text = (said[-1] if said else lines[0]).strip()
        return ConfigurationError(RunCode.SPARK_NOT_STARTED, cut(_PACKAGES.sub(r"\1: ", text), 300))


def _write(line: str) -> None:
    with suppress(OSError, ValueError):  # closed, or its disk is full
        sys.stderr.write(line)


# Exit codes of a JVM under -XX:+ExitOnOutOfMemoryError, and of Spark itself.
OUT_OF_MEMORY = (3, 52)
LOOK_SECONDS = 0.02
# The connections of a dying JVM break a moment before it is gone.
SECONDS_TO_BE_GONE = 0.5


@dataclass(frozen=True)
class Gateway:
    """The address of the JVM for PySpark, and the secret that it requires."""

    port: int
    secret: str


class _Jvm:
    """The only JVM of this process.

    Attributes:
        process: Its process; None if none was started.
        grace_seconds: How long it may take to exit when asked to; 0: it is killed.
        output: What it wrote to standard error.
        kept: The process id of a JVM that another process keeps for it; None if there is none.
        forbidden: Whether this process is ending and must not start another.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.grace_seconds = 0.0
        self.output = JvmOutput()
        self.kept: int | None = None
        self.forbidden = False
        self.starting = threading.Lock()


_jvm = _Jvm()


def start_jvm(
    command: Sequence[str], variables: Mapping[str, str] = {}, *, grace_seconds: float
) -> Gateway:
    """Start the JVM and wait until it accepts connections.

    To be called in a thread, which the exceptions of signals do not reach.

    Args:
        command: `spark-submit`, or Java itself, with its arguments.
        variables: Environment variables that are its own.
        grace_seconds: How long the JVM may take to clean up at its end; 0 if killing it leaves
            nothing behind.

    Raises:
        ConfigurationError: it ended instead.
    """
    address = scratch_folder() / f"gateway-{uuid.uuid4().hex}"
    # As in `spark-submit`.
    environment = {**os.environ, **variables, "PYTHONHASHSEED": "0", "SPARK_CONNECT_MODE": "0"}
    # Spark's Python workers inherit it. Meltano turns all warnings on, and PySpark's would fill its
    # log.
    environment["PYTHONWARNINGS"] = "ignore::ResourceWarning"
    environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(address)
    process = _launch(command, environment, grace_seconds)
    output = _jvm.output
    while not address.exists():
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        _jvm.process = None
        process.communicate()
        output.join()
        # A killed JVM prints nothing about its end: what it printed before are only warnings.
        killed = process.returncode == -signal.SIGKILL
        cause = output.shortage() or (None if killed else output.cause())
        raise cause or ConfigurationError(
            RunCode.SPARK_NOT_STARTED, f"its JVM {_ending(process.returncode)} before it was ready"
        )
    output.release()
    port, size = struct.unpack_from(">ii", data := address.read_bytes())
    return Gateway(port, data[8 : 8 + size].decode())


def _launch(
    command: Sequence[str], environment: dict[str, str], grace_seconds: float
) -> subprocess.Popen[bytes]:
    with _jvm.starting:
        if _jvm.forbidden:
            raise ConfigurationError(RunCode.SPARK_NOT_STARTED, "this process is ending")
        # In its own process group: a Ctrl-C is meant for the program, which then ends the JVM.
        _jvm.output = JvmOutput()
        with _jvm.output.opened() as file:
            streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": file, "stderr": file}
            process = subprocess.Popen(command, env=environment, process_group=0, **streams)
        _jvm.process, _jvm.grace_seconds = process, grace_seconds
    return process


def jvm_process_id() -> int | None:
    """The process id of the JVM; None if none was started."""
    return _jvm.kept if _jvm.process is None else _jvm.process.pid


def use_kept_jvm(process_id: int) -> None:
    """Note the JVM that another process keeps for this one."""
    _jvm.kept = process_id


def jvm_is_alive() -> bool:
    """Whether this process has a JVM that runs."""
    return _jvm.process is not None and _jvm.process.poll() is None


def end_jvm(*, for_good: bool = False) -> None:
    """End the JVM, even during a job or its start; does nothing if there is none.

    Args:
        for_good: Forbid this process to start another.
    """
    with _jvm.starting:
        _jvm.forbidden = _jvm.forbidden or for_good
        process, _jvm.process = _jvm.process, None
    if process is None:
        return
    _signal_group(process, signal.SIGTERM if _jvm.grace_seconds else signal.SIGKILL)
    try:
        process.communicate(timeout=_jvm.grace_seconds or None)
    except subprocess.TimeoutExpired:
        _signal_group(process, signal.SIGKILL)
        process.communicate()


def await_jvm() -> None:
    """Wait for the JVM to end by itself, including all its final work, once it knows that this
    process ends.
    """
    process = _jvm.process
    if process is not None:
        process.communicate()


def kill_jvm() -> None:
    """Kill the JVM at once, whatever the state of this process.

    Takes no lock, waits for nothing.
    """
    if _jvm.process is not None:
        _signal_group(_jvm.process, signal.SIGKILL)


def jvm_failure() -> ResourceError | None:
    """The error for a JVM that ended by itself; None while it runs, or if there is none."""
    process = _jvm.process
    if process is None:
        return _kept_failure()
    gone_at = time.monotonic() + SECONDS_TO_BE_GONE
    # Not by `wait`, which never releases its lock if a signal's exception meets it.
    while (code := process.poll()) is None:
        if time.monotonic() > gone_at:
            return None
        time.sleep(LOOK_SECONDS)
    if known := _jvm.output.shortage():
        return known
    error_code, way_out = RunCode.JVM_ENDED, "run it again"
    if code in OUT_OF_MEMORY:
        error_code = RunCode.OUT_OF_MEMORY
        way_out = "give it more: spark.driver.memory in `spark.conf`, or more threads (ulimit -u)"
    elif code == -signal.SIGKILL:
        way_out = (
            "it was killed by hand, or the machine has too little memory for spark.driver.memory"
        )
    return ResourceError(
        error_code, f"Spark's JVM {_ending(code)} in the middle of the run; {way_out}"
    )


def _kept_failure() -> ResourceError | None:
    """The error for a kept JVM that is gone; its keeper logs how it ended."""
    if _jvm.kept is None:
        return None
    gone_at = time.monotonic() + SECONDS_TO_BE_GONE
    while time.monotonic() < gone_at:
        try:
            os.kill(_jvm.kept, 0)
        except ProcessLookupError:
            return ResourceError(
                RunCode.JVM_ENDED, "Spark's JVM ended in the middle of the run; run it again"
            )
        time.sleep(LOOK_SECONDS)
    return None


def _ending(code: int) -> str:
    if code in OUT_OF_MEMORY:
        return "ran out of memory"
    return (
        f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    )


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole group, as Spark's launcher may still be running."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
