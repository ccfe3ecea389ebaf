"""A JVM that outlives the runs which use it, one after another: kept by the process that starts
these runs.

A run asks for its JVM over a socket that it inherits. It gets the kept one if that was started by
the same command in the same environment, and never ends it. The keeper ends a JVM after a run that
failed, after `MOST_RUNS`, and once it has grown by `MOST_BYTES`. That also removes what a run left
in it, such as a connection that a killed run had open.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from singer_spark.core.scratch import scratch_folder
from singer_spark.engine.spark_jvm import (
    Gateway,
    end_jvm,
    jvm_is_alive,
    jvm_process_id,
    start_jvm,
    use_kept_jvm,
)
from singer_spark.error_codes import RunCode, code_numbered
from singer_spark.errors import ConfigurationError, SingerSparkError

# The descriptor over which this process asks another one for its JVM. If it is not set, the process
# starts its own.
KEEPER = "SPARK_LAKE_JVM_KEEPER"
MOST_RUNS = 100
MOST_BYTES = 512 * 2**20
# Files with secret arguments, which belong to the run that asks and have another name each time.
_ARGUMENTS = "/argument-"


class JvmKeeper:
    """Keeps this process's JVM for runs that are its children; one run at a time."""

    def __init__(self) -> None:
        """No JVM is started before a run asks for one."""
        self._key: str | None = None
        self._gateway: Gateway | None = None
        self._runs = 0
        self._bytes = 0

    @contextmanager
    def serving(self) -> Iterator[tuple[int, dict[str, str]]]:
        """A descriptor for one run to inherit, and the variables by which it knows that."""
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=self._serve, args=(ours,), name="jvm-keeper", daemon=True)
        with theirs:
            thread.start()
            try:
                yield theirs.fileno(), {KEEPER: str(theirs.fileno())}
            finally:
                # Ends the thread's reading, whether or not the run ever asked.
                with suppress(OSError):
                    ours.shutdown(socket.SHUT_RDWR)
                thread.join()

    def after_run(self, *, failed: bool) -> None:
        """End the JVM if what runs have left in it must go."""
        process = jvm_process_id()
        if process is None:
            return
        self._runs += 1
        size = _resident_bytes(process)
        self._bytes = self._bytes or size
        if (
            failed
            or self._runs >= MOST_RUNS
            or size - self._bytes > MOST_BYTES
            or not jvm_is_alive()
        ):
            self.end()

    def end(self) -> None:
        """End the JVM; the next run gets another one."""
        self._key, self._gateway, self._runs, self._bytes = None, None, 0, 0
        end_jvm()

    def _serve(self, ours: socket.socket) -> None:
        with ours, ours.makefile("rwb") as stream:
            for line in stream:
                try:
                    gateway = self._started(json.loads(line))
                    answer: dict[str, Any] = {
                        "port": gateway.port,
                        "secret": gateway.secret,
                        "id": jvm_process_id(),
                    }
                except SingerSparkError as error:
                    answer = {"error": error.message, "code": error.code.number}
                with suppress(OSError):  # the run is gone
                    stream.write(json.dumps(answer).encode() + b"\n")
                    stream.flush()

    def _started(self, asked: Mapping[str, Any]) -> Gateway:
        """The JVM for a run's command.

        Files from the run's scratch folder are kept in this process's.
        """
        own = str(scratch_folder())
        words = [_moved(word, asked["scratch"], own) for word in asked["command"]]
        variables = {
            name: _moved(value, asked["scratch"], own) for name, value in asked["variables"].items()
        }
        key = _key_of(words, variables)
        if self._gateway is None or key != self._key or not jvm_is_alive():
            self.end()
            self._gateway = start_jvm(words, variables, grace_seconds=asked["grace_seconds"])
            self._key = key
        return self._gateway


def started_or_kept(
    command: Sequence[str], variables: Mapping[str, str], *, grace_seconds: float
) -> Gateway:
    """The JVM for a command: the one that is kept for this process, else a new one, as `start_jvm`.

    Raises:
        ConfigurationError: it can't be started.
    """
    if KEEPER not in os.environ:
        return start_jvm(command, variables, grace_seconds=grace_seconds)
    everything = {
        name: value for name, value in {**os.environ, **variables}.items() if name != KEEPER
    }
    asked = {
        "command": list(command), "variables": everything, "grace_seconds": grace_seconds,
        "scratch": str(scratch_folder()),
    }  # fmt: skip
    with (
        socket.socket(fileno=os.dup(int(os.environ[KEEPER]))) as keeper,
        keeper.makefile("rwb") as stream,
    ):
        stream.write(json.dumps(asked).encode() + b"\n")
        stream.flush()
        line = stream.readline()
    if not line:
        raise ConfigurationError(
            RunCode.SPARK_NOT_STARTED, "the process that keeps the JVM for this run is gone"
        )
    answer = json.loads(line)
    if "error" in answer:
        raise ConfigurationError(code_numbered(answer["code"]), answer["error"])
    use_kept_jvm(answer["id"])
    return Gateway(answer["port"], answer["secret"])


def _moved(text: str, scratch: str, own: str) -> str:
    return text if f"{scratch}{_ARGUMENTS}" in text else text.replace(scratch, own)


def _key_of(words: Sequence[str], variables: Mapping[str, str]) -> str:
    known = [_content(word) if _ARGUMENTS in word else word for word in words]
    return hashlib.sha256(json.dumps([known, sorted(variables.items())]).encode()).hexdigest()


def _content(word: str) -> str:
    """What is in a file of arguments; the word itself if it is none."""
    path = Path(word.removeprefix("@"))
    return path.read_text(encoding="utf-8") if path.is_file() else word


def _resident_bytes(process: int) -> int:
    """The memory of a process; 0 where the system does not show it."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
