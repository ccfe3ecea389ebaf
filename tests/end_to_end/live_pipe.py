"""`tap | target` at work: two processes and all that they start, to be watched and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from end_to_end.pipe import TIMEOUT_SECONDS, Outcome, Pipe
from end_to_end.relay import Moment, Relay, SentState

MARK = "SPARK_LAKE_TEST_MARK"
BETWEEN_LOOKS = 0.05
TAP, TARGET, TAP_JAVA, TARGET_JAVA = "tap", "target", "the tap's java", "the target's java"


@dataclass(frozen=True)
class Victim:
    """Who gets which signal: the tap, the target, or the JVM of one of them."""

    who: str
    signal: int = signal.SIGKILL


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        outcome: Exit codes and outputs.
        struck: Whether something was killed.
        sent: Records that went through the relay, by stream.
        states: STATE lines that went through the relay.
        seconds: How long it took.
    """

    outcome: Outcome
    struck: bool
    sent: Counter[str]
    states: list[SentState]
    seconds: float

    @property
    def start(self) -> str:
        """What the tap said that it starts from; nothing where it did not come to that."""
        return str(self.states[0].message["start"]) if self.states else ""

    @property
    def codes(self) -> tuple[int, int]:
        return self.outcome.tap_code, self.outcome.target_code

    def succeeded(self) -> Ended:
        self.outcome.succeeded()
        return self


class LivePipe:
    """A run that has begun, as a block; what still lives at the end of the block is killed."""

    def __init__(
        self,
        pipe: Pipe,
        *tap_flags: str,
        moment: Moment | None = None,
        victims: tuple[Victim, ...] = (),
        target: list[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts both processes, with a relay between them.

        Args:
            pipe: The pipeline.
            tap_flags: The tap's options beside its config.
            moment: When the relay strikes.
            victims: What is killed then.
            target: Another command for the target.
            environment: Variables for both processes.
        """
        self.struck = False
        self._victims = victims
        self._folder = pipe.folder
        self._mark = uuid.uuid4().hex
        self._began = time.monotonic()
        variables = {**os.environ, **(environment or {})}
        self.tap = self._start(TAP, pipe.tap_command(*tap_flags), variables)
        self.target = self._start(TARGET, target or pipe.target_command(), variables)
        assert self.tap.stdout is not None and self.target.stdin is not None
        self.relay = Relay(self.tap.stdout, self.target.stdin, moment, self.strike)
        self.relay.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.tap.wait()
        self.target.wait()
        self.relay.join()

    def strike(self) -> bool:
        """Kills the victims, those that live; says whether the tap was one of them."""
        for victim in self._victims:
            for process in self._found(victim.who):
                with suppress(ProcessLookupError):
                    os.kill(process, victim.signal)
                    self.struck = True
        return any(victim.who == TAP for victim in self._victims)

    def strike_after(self, seconds: float) -> None:
        """Strikes by the clock, unless the target ends before."""
        try:
            self.target.wait(seconds)
        except subprocess.TimeoutExpired:
            self.strike()

    def _found(self, who: str) -> list[int]:
        if who in (TAP, TARGET):
            process = self.tap if who == TAP else self.target
            return [] if process.poll() is not None else [process.pid]
        if who == TAP_JAVA:
            return [each for each in self.processes(TAP) if _is_java(each)]
        # It starts with the first records that need it, so it may have to be waited for.
        while self.target.poll() is None:
            if found := [each for each in self.processes(TARGET) if _is_java(each)]:
                return found
            time.sleep(BETWEEN_LOOKS)
        return []

    def processes(self, *sides: str) -> list[int]:
        """Ids of the processes that the tap, the target, or both are or have started and that still
        live.
        """
        marks = [f"{MARK}={self._mark} {side}".encode() for side in sides or (TAP, TARGET)]
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                if any(mark in variables for mark in marks):
                    found.append(int(folder.name))
        return found

    def wait(self) -> Ended:
        """Waits for the end of all processes: also a JVM whose program was killed must go by
        itself.
        """
        tap_code = self.tap.wait(TIMEOUT_SECONDS)
        target_code = self.target.wait(TIMEOUT_SECONDS)
        self.relay.join(TIMEOUT_SECONDS)
        seconds = time.monotonic() - self._began
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while left := self.processes():
            assert time.monotonic() < deadline, f"processes {left} outlive the run"
            time.sleep(BETWEEN_LOOKS)
        states: list[dict[str, Any]] = [
            json.loads(line) for line in self._output.read_bytes().splitlines()
        ]
        errors = (self._errors(side).read_text(errors="replace") for side in (TAP, TARGET))
        outcome = Outcome(tap_code, target_code, *errors, states)
        return Ended(outcome, self.struck, self.relay.records, self.relay.states, seconds)

    @property
    def _output(self) -> Path:
        return self._folder / "target.out"

    def _errors(self, side: str) -> Path:
        return self._folder / f"{side}.err"

    def _start(
        self, side: str, command: list[str], variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Unbuffered on our side, so that a line is gone once it is written."""
        with self._errors(side).open("wb") as errors, self._output.open("wb") as output:
            return subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.DEVNULL if side == TAP else subprocess.PIPE,
                stdout=subprocess.PIPE if side == TAP else output,
                stderr=errors,
                cwd=self._folder,
                env={**variables, MARK: f"{self._mark} {side}"},
            )


def _is_java(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip() == "java"
    except OSError:
        return False
