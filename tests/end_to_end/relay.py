"""A relay in the middle of the pipe: passes the tap's lines on, counts them, and strikes at a
chosen line.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

CHUNK_BYTES = 1 << 18
RECORD = b'{"type":"RECORD"'
BATCH = b'{"type":"BATCH"'


@dataclass(frozen=True)
class Moment:
    """When the relay strikes: once so many of each kind went through.

    Attributes:
        records: Records, as lines or by batches.
        states: STATE lines, the opening one among them.
        inside_line: Half of the next line goes through as well.
    """

    records: int = 0
    states: int = 0
    inside_line: bool = False


@dataclass(frozen=True)
class SentState:
    """A STATE line of the tap, and how many records went through before it."""

    message: dict[str, Any]
    records: int


class Relay(threading.Thread):
    """Moves lines from one pipe to another until an end is closed, then closes both.

    Attributes:
        records: Records that went through, as lines or by batches, by stream.
        states: STATE lines that went through.
        struck: Whether the moment came.
    """

    def __init__(
        self, source: IO[bytes], sink: IO[bytes], moment: Moment | None, strike: Callable[[], bool]
    ) -> None:
        """Begins with `start`.

        Args:
            source: The tap's output, unbuffered.
            sink: The target's input, unbuffered.
            moment: When to strike; None for never.
            strike: What to do then; True when nothing that the tap wrote after that moment may
                arrive.
        """
        super().__init__(daemon=True)
        self.records: Counter[str] = Counter()
        self.states: list[SentState] = []
        self.struck = False
        self._source = source
        self._sink = sink
        self._moment = moment
        self._strike = strike
        self._cut = False
        self._prefixes: dict[bytes, str] = {}

    @property
    def sent(self) -> int:
        """All records that went through."""
        return self.records.total()

    def run(self) -> None:
        rest = b""
        try:
            while chunk := self._source.read(CHUNK_BYTES):
                lines, newline, rest = (rest + chunk).rpartition(b"\n")
                self._pass_on(lines + newline)
                if self._cut:
                    break
            else:
                self._write(rest)
        except BrokenPipeError:
            pass  # the target is gone: closing our end shows that to the tap, as in a shell's pipe
        finally:
            self._sink.close()
            # A tap that was asked to stop may still write: it is to end by the signal, not by a
            # closed pipe.
            while self._cut and self._source.read(CHUNK_BYTES):
                pass
            self._source.close()

    def _pass_on(self, block: bytes) -> None:
        """Passes whole lines on, up to the moment if nothing is to arrive after it."""
        written = end = 0
        for line in block.splitlines(keepends=True):
            end += len(line)
            self._count(line)
            if self._is_now():
                until = end + self._half_of_next(block[end:])
                self._write(block[written:until])
                written, self.struck = until, True
                self._cut = self._strike()
                if self._cut:
                    return
        self._write(block[written:])

    def _half_of_next(self, block: bytes) -> int:
        return (
            len(block.partition(b"\n")[0]) // 2 if self._moment and self._moment.inside_line else 0
        )

    def _count(self, line: bytes) -> None:
        if line.startswith(RECORD):
            prefix = line.partition(b',"record":')[0]
            if prefix not in self._prefixes:
                self._prefixes[prefix] = json.loads(prefix + b"}")["stream"]
            self.records[self._prefixes[prefix]] += 1
        elif line.startswith(BATCH):
            batch = json.loads(line)
            self.records[batch["stream"]] += sum(file["rows"] for file in batch["files"])
        elif b'"STATE"' in line[:20]:
            self.states.append(SentState(json.loads(line), self.sent))

    def _is_now(self) -> bool:
        moment = self._moment
        if moment is None or self.struck:
            return False
        return len(self.states) >= moment.states and self.sent >= moment.records

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._sink.write(view) :]
