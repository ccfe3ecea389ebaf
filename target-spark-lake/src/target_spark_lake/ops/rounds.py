"""Runs in a row by one process (`spark-lake run --every 5m`): a round is a run, by programs of its
own.

This process, which loads neither pipeline nor Spark, and the tap's JVM, whose start costs most of a
run that brings nothing, stay from one round to the next. The JVM is ended after a round that
failed, and once it has served many rounds or has grown (`JvmKeeper`); the next round then starts
another one. Everything else ends with its round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from singer_spark.engine.kept_jvm import JvmKeeper
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.program.amounts import seconds_of, span_text
from singer_spark.program.progress import DONE, QUIET

# How long this process sleeps at a time, because the machine's clock may be set meanwhile.
NAP_SECONDS = 30.0
_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code, whether a signal stopped it, and its summary."""

    code: int
    was_stopped: bool = False
    summary: str = ""


@dataclass(frozen=True)
class Schedule:
    """When rounds begin: at an interval in seconds, or at cron's times by this machine's clock and
    zone.
    """

    every: float | None = None
    cron: str = ""

    @classmethod
    def of(cls, every: str | None, cron: str | None) -> Schedule:
        """Parse what the user gave.

        Raises:
            ConfigurationError: it is neither a time nor a cron expression.
        """
        if every is not None:
            seconds = seconds_of(every)
            if not seconds:
                raise ConfigurationError(
                    RunCode.BAD_FLAG, f"--every {every}: write a time such as 30s, 5m or 2h"
                )
            return cls(seconds)
        from cronsim import CronSimError

        schedule = cls(cron=_NAMES.get(cron or "", cron or ""))
        try:
            schedule.next(time.time())
        except CronSimError as error:
            raise ConfigurationError(
                RunCode.BAD_FLAG,
                f"--at {cron!r}: {error}; write five fields of cron's, as in '*/15 * * * *', or "
                "@hourly",
            ) from error
        except StopIteration:
            raise ConfigurationError(
                RunCode.BAD_FLAG, f"--at {cron!r}: such a moment never comes"
            ) from None
        return schedule

    def first(self, now: float) -> float:
        """When the first round begins, in seconds since 1970."""
        return now if self.every is not None else self.next(now)

    def next(self, began: float) -> float:
        """When the round after one that began at this moment begins; that may be in the past by
        then.
        """
        if self.every is not None:
            return began + self.every
        from cronsim import CronSim

        found: datetime = next(CronSim(self.cron, datetime.fromtimestamp(began)))
        return found.timestamp()


@dataclass(frozen=True)
class Round:
    """What is different about the programs of a round: arguments for `Popen`."""

    of_tap: Mapping[str, Any] = field(default_factory=dict)
    of_target: Mapping[str, Any] = field(default_factory=dict)

    def read(self, target: subprocess.Popen[bytes]) -> Callable[[], str]:
        """Pass on what the target says; the function waits for its end and returns the summary."""
        assert target.stderr is not None
        stream, summary = target.stderr, [""]

        def read() -> None:
            with stream:
                for line in stream:
                    text = line.decode(errors="replace")
                    if text.startswith(DONE):
                        summary.append(text.removeprefix(DONE).strip())
                    else:
                        sys.stderr.write(text)

        thread = threading.Thread(target=read, name="target-says", daemon=True)
        thread.start()

        def ended() -> str:
            thread.join()
            return summary[-1]

        return ended


def run_rounds(schedule: Schedule, run: Callable[[Round], Ended]) -> int:
    """Run again and again until a signal comes; returns the exit code of the round that it stopped.

    A round that fails is reported, and does not end the others.
    """
    keeper, number = JvmKeeper(), 0
    begins = schedule.first(time.time())
    while True:
        _sleep_until(begins)
        number, began = number + 1, time.time()
        ended = _round(keeper, run)
        if ended.was_stopped:
            return ended.code
        keeper.after_run(failed=ended.code != 0)
        # A round that took longer than the time between two is followed at once: missed ones are
        # not made up for.
        begins = max(schedule.next(began), time.time())
        took, following = (
            span_text(time.time() - began),
            datetime.fromtimestamp(begins).strftime("%H:%M:%S"),
        )
        what = ended.summary or (f"failed with exit code {ended.code}" if ended.code else "done")
        if ended.summary and ended.code:
            what += f"; exit code {ended.code}"
        _say(f"round {number}: {what}; took {took}, the next at {following}")


def _round(keeper: JvmKeeper, run: Callable[[Round], Ended]) -> Ended:
    quiet = {**os.environ, QUIET: "1"}
    with keeper.serving() as (descriptor, variables):
        of_tap = {"env": {**quiet, **variables}, "pass_fds": (descriptor,)}
        # A run's STATE on standard output is of no use in a row of runs.
        of_target = {"env": quiet, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return run(Round(of_tap, of_target))


def _sleep_until(moment: float) -> None:
    while (left := moment - time.time()) > 0:
        time.sleep(min(left, NAP_SECONDS))


def _say(text: str) -> None:
    sys.stderr.write(f"{datetime.now():%H:%M:%S} {text}\n")
    sys.stderr.flush()
