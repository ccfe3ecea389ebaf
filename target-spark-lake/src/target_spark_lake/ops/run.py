"""`spark-lake run`: the pipe as one command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING

from singer_spark.core.config_file import usual_config
from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import Stopped, too_late_to_stop
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.program.logs import LEVELS
from singer_spark.state.handover import FAILURE_VARIABLE
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import DEFAULT_CONFIG, Command, installed
from target_spark_lake.ops.meltano_yml import TAP, TARGET
from target_spark_lake.ops.rounds import Ended, Schedule, run_rounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from target_spark_lake.ops.rounds import Round


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--tap-config",
        action="append",
        metavar="FILE",
        help="tap.json (or .yml) if not given; repeatable, or ENV",
    )
    parser.add_argument(
        "--config",
        dest="target_config",
        metavar="FILE",
        help=f"{DEFAULT_CONFIG} (or .yml) if not given",
    )
    parser.add_argument(
        "--stream",
        action="append",
        metavar="NAME",
        help="these streams alone; a glob; repeatable; all others stay",
    )
    parser.add_argument(
        "--full", action="store_true", help="read everything again, whatever the state says"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--replace",
        action="store_true",
        help="with --full: append-only tables become what the source is",
    )
    again.add_argument(
        "--append-again",
        action="store_true",
        help="with --full: append-only tables get all rows once more",
    )
    parser.add_argument(
        "--accept-shrink",
        action="store_true",
        help="accept tables with far fewer rows, whatever max_shrink_percent",
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--every",
        metavar="TIME",
        help="run again and again, every 30s, 5m or 2h, until it is stopped",
    )
    when.add_argument(
        "--at",
        metavar="CRON",
        help="run again and again, when cron would: '*/15 * * * *', or @hourly",
    )
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        help="of both programs: info, with --every and --at warning; debug shows the trace of an "
        "error",
    )


def _run(chosen: Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="run-", dir=scratch_folder()) as folder:
        # By this file the tap hands its error over to the target, which records it; rounds share a
        # JVM's environment.
        pipe = partial(_pipe, chosen, {FAILURE_VARIABLE: f"{folder}/tap_failure.json"})
        if chosen.every is None and chosen.at is None:
            return pipe(None).code
        if chosen.full:
            raise ConfigurationError(
                RunCode.BAD_FLAG, "--full is for one run: give it without --every and --at"
            )
        return run_rounds(Schedule.of(chosen.every, chosen.at), pipe)


def _pipe(chosen: Namespace, variables: Mapping[str, str], in_round: Round | None) -> Ended:
    """Run both programs to their end."""
    tap, target = map(_path, (TAP, TARGET))
    level = ["--log-level", chosen.log_level or ("info" if in_round is None else "warning")]
    config = chosen.target_config or usual_config("target")
    configs = [
        word for file in chosen.tap_config or [usual_config("tap")] for word in ("--config", file)
    ]
    if (chosen.replace or chosen.append_again) and not chosen.full:
        raise ConfigurationError(
            RunCode.BAD_FLAG, "--replace and --append-again are for full runs: give --full, too"
        )
    named = [word for name in chosen.stream or () for word in ("--stream", name)]
    asked = {
        "--full": chosen.full,
        "--replace": chosen.replace,
        "--append-again": chosen.append_again,
    }
    words = [
        *configs,
        "--state-from",
        config,
        *named,
        *(name for name, given in asked.items() if given),
        *level,
    ]
    accepted = ["--accept-shrink"] if chosen.accept_shrink else []
    return _piped(
        [tap, *words], [target, "--config", config, *accepted, *level], variables, in_round
    )


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


def _exit_code(code: int) -> int:
    """The exit code as a shell reports it for a program ended by a signal."""
    return code if code > 0 else 128 - code


RUN = Command(
    "run",
    f"run {TAP} and {TARGET} as one pipe, by the two configs that init wrote; exit code and "
    "summary are the pipe's",
    (
        "run",
        "run --stream 'public-order*'",
        "run --full --replace --stream public-orders",
        "run --every 5m",
        "run --at '*/15 6-22 * * *'",
        "run --tap-config tap-books.json --config target-books.json",
    ),
    _run,
    _flags,
    of_lake=False,
)
