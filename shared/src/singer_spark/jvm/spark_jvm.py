"""The JVM behind this process's Spark session: started, watched and ended here, so that it never outlives the process.

PySpark would start it as well, but tells of the process only once Spark can be talked to: whatever stopped this
process meanwhile would leave the JVM behind. Should this process be killed, the JVM sees its standard input end, and
leaves.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, ResourceError
from singer_spark.process.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT_OF_MEMORY = (3, 52)  # what a JVM exits with under -XX:+ExitOnOutOfMemoryError, and what Spark does by itself
LOOK_SECONDS = 0.02
# A dying JVM's connections break a moment before it is gone.
SECONDS_TO_BE_GONE = 0.5


@dataclass(frozen=True)
class Gateway:
    """How PySpark reaches the JVM.

    Attributes:
        port: On this machine.
        secret: That it wants to hear.
    """

    port: int
    secret: str


class _Jvm:
    """The one JVM of this process.

    Attributes:
        process: Of it; None where none was started.
        grace_seconds: How long it may take to leave once it is asked to; 0: it is not asked.
        forbidden: Whether the process is at its end and starts none any more.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.grace_seconds = 0.0
        self.forbidden = False
        self.starting = threading.Lock()


_jvm = _Jvm()


def start_jvm(command: Sequence[str], *, grace_seconds: float) -> Gateway:
    """Starts the JVM and waits until it can be talked to; in a thread, away from the exceptions of signals.

    Args:
        command: `spark-submit`, or Java itself, with its arguments.
        grace_seconds: How long the JVM may take to clean up at its end; 0 where nothing is left by killing it.

    Raises:
        ConfigurationError: it ended instead.
    """
    told = scratch_folder() / f"gateway-{uuid.uuid4().hex}"
    # As `spark-submit` has it.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "SPARK_CONNECT_MODE": "0"}
    environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(told)
    process = _launch(command, environment, grace_seconds)
    while not told.exists():
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise ConfigurationError(f"its JVM {_ending(process.returncode)} (its output is above)")
    port, size = struct.unpack_from(">ii", data := told.read_bytes())
    return Gateway(port, data[8 : 8 + size].decode())


def _launch(command: Sequence[str], environment: dict[str, str], grace_seconds: float) -> subprocess.Popen[bytes]:
    with _jvm.starting:
        if _jvm.forbidden:
            raise ConfigurationError("this process is ending")
        # In a process group of its own: a Ctrl-C is for the program, which then ends the JVM.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0)
        _jvm.process, _jvm.grace_seconds = process, grace_seconds
    return process


def end_jvm(*, for_good: bool = False) -> None:
    """Ends the JVM, also in the middle of a job or of its start; nothing where there is none.

    Args:
        for_good: Lets no other one be started in this process.
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


def kill_jvm() -> None:
    """Ends the JVM at once, in whatever state this process is: takes no lock, waits for nothing."""
    if _jvm.process is not None:
        _signal_group(_jvm.process, signal.SIGKILL)


def jvm_failure() -> ResourceError | None:
    """What to tell the user of a JVM that ended by itself; None while it runs, or where there is none."""
    process = _jvm.process
    if process is None:
        return None
    try:
        # Apart from the exceptions of signals: one out of `wait` would leave its lock taken for ever.
        with ThreadPoolExecutor(1) as thread:
            code = thread.submit(process.wait, SECONDS_TO_BE_GONE).result()
    except subprocess.TimeoutExpired:
        return None
    way_out = "run it again"
    if code in OUT_OF_MEMORY:
        way_out = "give it more: spark.driver.memory in `spark.conf`"
    elif code == -signal.SIGKILL:
        way_out = "it was killed by hand, or the machine has too little memory for spark.driver.memory"
    return ResourceError(f"Spark's JVM {_ending(code)} in the middle of the run; {way_out}")


def _ending(code: int) -> str:
    if code in OUT_OF_MEMORY:
        return "ran out of memory"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Spark's launcher may still be at work beside it."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
