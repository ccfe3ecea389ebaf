"""`spark-lake run`: the pipe as one command, once or repeatedly (`--every 5m`).

Each repetition is a round: one run, by a tap and a target of its own. Two things outlive a round:
this process, which loads neither pipeline nor Spark, and the tap's JVM, whose start is most of the
cost of a run without new rows. The JVM is ended after a failed round, and once it has served many
rounds or has grown (`JvmKeeper`); the next round then starts another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click

from singer_spark.core.config_file import usual_config
from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import Stopped, too_late_to_stop
from singer_spark.engine.kept_jvm import JvmKeeper
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.program.amounts import seconds_of, span_text
from singer_spark.program.logs import LEVELS
from singer_spark.program.progress import DONE, QUIET
from singer_spark.state.handover import FAILURE_VARIABLE
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import (
    DEFAULT_CONFIG,
    TAP,
    TARGET,
    file_option,
    installed,
    subcommand,
    tap_config_option,
    tap_files,
)
from target_spark_lake.ops.new_pipeline import CRON_NAMES

# How long this process sleeps at a time, because the machine's clock may be set meanwhile.
NAP_SECONDS = 30.0


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
                raise _bad_flag(f"--every {every}: write a time such as 30s, 5m or 2h")
            return cls(seconds)
        from cronsim import CronSimError

        schedule = cls(cron=CRON_NAMES.get(cron or "", cron or ""))
        try:
            schedule.next(time.time())
        except CronSimError as error:
            raise _bad_flag(
                f"--at {cron!r}: {error}; write five cron fields, as in '*/15 * * * *', or @hourly"
            ) from error
        except StopIteration:
            raise _bad_flag(f"--at {cron!r}: it never matches a time") from None
        return schedule

    def first(self, now: float) -> float:
        """When the first round begins, in seconds since 1970."""
        return now if self.every is not None else self.next(now)

    def next(self, began: float) -> float:
        """When the round after one begun then begins; that may be past by now."""
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
    """Run repeatedly until a signal comes; returns the exit code of the round that it stopped.

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
        took, following = span_text(time.time() - began), datetime.fromtimestamp(begins)
        what = ended.summary or (f"failed with exit code {ended.code}" if ended.code else "done")
        if ended.summary and ended.code:
            what += f"; exit code {ended.code}"
        _say(f"round {number}: {what}; took {took}, the next at {following:%H:%M:%S}")


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


@subcommand(
    "run",
    "run",
    "run --stream 'public-order*'",
    "run --full --replace --stream public-orders",
    "run --every 5m",
    "run --at '*/15 6-22 * * *'",
    "run --tap-config tap-books.json --config target-books.json",
    of_lake=False,
)
@tap_config_option
@file_option("--config", help=f"{DEFAULT_CONFIG} (or .yml) if not given")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="NAME",
    help="only these streams, a name or glob; repeatable; all others stay unchanged",
)
@click.option("--full", is_flag=True, help="read everything again, regardless of the state")
@click.option(
    "--replace",
    is_flag=True,
    help="with --full: append-only tables are replaced by the source's rows",
)
@click.option(
    "--append-again", is_flag=True, help="with --full: append-only tables get all rows once more"
)
@click.option(
    "--accept-shrink",
    is_flag=True,
    help="accept tables with far fewer rows, regardless of max_shrink_percent",
)
@click.option("--every", metavar="TIME", help="run repeatedly, every 30s, 5m or 2h, until stopped")
@click.option(
    "--at",
    metavar="CRON",
    help="run repeatedly, at the times of a cron line: '*/15 * * * *', or @hourly",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    help="of both programs: info, with --every and --at warning; debug shows the trace of an error",
)
def run_command(
    tap_config: Sequence[str],
    config: str | None,
    streams: Sequence[str],
    every: str | None,
    at: str | None,
    log_level: str | None,
    *,
    full: bool,
    replace: bool,
    append_again: bool,
    accept_shrink: bool,
) -> int:
    """Run tap-spark-jdbc and target-spark-lake as one pipe, by the two configs that init wrote;
    exit code and summary are the pipe's.
    """
    if replace and append_again:
        raise click.UsageError("--append-again is not allowed with --replace")
    if every is not None and at is not None:
        raise click.UsageError("--at is not allowed with --every")
    in_rounds = every is not None or at is not None
    if in_rounds and full:
        raise _bad_flag("--full is for one run: give it without --every and --at")
    if (replace or append_again) and not full:
        raise _bad_flag("--replace and --append-again are for full runs: give --full too")
    asked = {"--full": full, "--replace": replace, "--append-again": append_again}
    named = [word for name in streams for word in ("--stream", name)]
    reading = [*named, *(name for name, given in asked.items() if given)]
    accepted = ["--accept-shrink"] if accept_shrink else []

    def pipe(in_round: Round | None) -> Ended:
        level = ["--log-level", log_level or ("info" if in_round is None else "warning")]
        of_target = config or usual_config("target")
        configs = [word for file in tap_files(tap_config) for word in ("--config", file)]
        tap = [_path(TAP), *configs, "--state-from", of_target, *reading, *level]
        target = [_path(TARGET), "--config", of_target, *accepted, *level]
        return _piped(tap, target, {FAILURE_VARIABLE: f"{folder}/tap_failure.json"}, in_round)

    # By a file in it the tap hands its error over to the target, which records it; rounds share a
    # JVM's environment.
    with tempfile.TemporaryDirectory(prefix="run-", dir=scratch_folder()) as folder:
        return run_rounds(Schedule.of(every, at), pipe) if in_rounds else pipe(None).code


def _piped(
    tap: Sequence[str], target: Sequence[str], variables: Mapping[str, str], in_round: Round | None
) -> Ended:
    """Run both as one pipe."""
    of_tap, of_target = (
        {**given, "env": {**given.get("env", os.environ), **variables}}
        for given in (({}, {}) if in_round is None else (in_round.of_tap, in_round.of_target))
    )
    source = subprocess.Popen(tap, stdout=subprocess.PIPE, **of_tap)
    # The state is for programs: on a terminal it would be noise.
    output = subprocess.DEVNULL if sys.stdout.isatty() else sys.stdout
    sink = subprocess.Popen(target, stdin=source.stdout, **{"stdout": output, **of_target})
    assert source.stdout is not None
    # Only the target may hold it, because the tap must notice when the target is gone.
    source.stdout.close()
    programs, was_stopped = (source, sink), False
    summary = None if in_round is None else in_round.read(sink)
    try:
        codes = [program.wait() for program in programs]
    except Stopped as stopped:
        # The programs end as soon as they may, after a commit that has begun.
        too_late_to_stop()
        was_stopped = True
        for program in programs:
            program.send_signal(stopped.number)
        codes = [program.wait() for program in programs]
    code = next((_exit_code(code) for code in reversed(codes) if code), 0)
    return Ended(code, was_stopped, summary() if summary else "")


def _path(program: str) -> str:
    found = installed(program)
    if found is None:
        raise ConfigurationError(
            LakeCode.PROGRAM_MISSING,
            f"{program} is not installed beside this program: pip install {program}",
        )
    return found


def _bad_flag(problem: str) -> ConfigurationError:
    return ConfigurationError(RunCode.BAD_FLAG, problem)


def _exit_code(code: int) -> int:
    """The exit code as a shell reports it for a program ended by a signal."""
    return code if code > 0 else 128 - code
