"""What a JVM writes to standard error: passed on once it has started, and read for its cause if it
fails.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import IO

from singer_spark.core.shortage import limit_reached
from singer_spark.core.signals import stop_by_error
from singer_spark.errors import ConfigurationError, ResourceError, cut

LINES_KEPT = 200
JOIN_SECONDS = 2.0
_PACKAGES = re.compile(
    r"^(?:Exception in thread \S+ )?(?:Caused by: )?(?:[\w$]+\.)+(\w+(?:Exception|Error))\b:? ?"
)
_TRACE = re.compile(r"^\s+at |^\s*\.\.\. \d+ more|^Exception in thread ")
# What its log says of itself.
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
                    # A JVM that lacks a thread may wait for it for ever.
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
        """What the JVM said last that is not part of a trace, in one line.

        None if it said nothing.
        """
        with self._guard:
            lines = [line for line in self._lines if line.strip() and not _OF_LOG.search(line)]
        if not lines:
            return None
        said = [line for line in lines if not _TRACE.search(line)]
        text = (said[-1] if said else lines[0]).strip()
        return ConfigurationError(cut(_PACKAGES.sub(r"\1: ", text), 300))


def _write(line: str) -> None:
    with suppress(OSError, ValueError):  # closed, or its disk is full
        sys.stderr.write(line)
