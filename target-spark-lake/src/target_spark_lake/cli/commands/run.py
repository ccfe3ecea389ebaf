"""`spark-lake run`: the pipe as one command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from singer_spark.process.scratch import scratch_folder
from singer_spark.process.signals import Stopped
from singer_spark.program.logs import LEVELS
from singer_spark.state.tap_failure import VARIABLE
from target_spark_lake.cli.command import DEFAULT_CONFIG, Command, installed
from target_spark_lake.cli.meltano_yml import TAP, TARGET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--tap-config", action="append", metavar="FILE", help="tap.json if not given; repeatable, or ENV"
    )
    parser.add_argument("--config", default=DEFAULT_CONFIG, metavar="FILE", help=f"{DEFAULT_CONFIG} if not given")
    parser.add_argument(
        "--stream", action="append", metavar="NAME", help="these streams alone; a glob; repeatable; all others stay"
    )
    parser.add_argument("--full", action="store_true", help="read everything again, whatever the state says")
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--replace", action="store_true", help="with --full: append-only tables become what the source is"
    )
    again.add_argument(
        "--append-again", action="store_true", help="with --full: append-only tables get all rows once more"
    )
    parser.add_argument(
        "--accept-shrink", action="store_true", help="accept tables with far fewer rows, whatever max_shrink_percent"
    )
    parser.add_argument(
        "--log-level", default="info", choices=LEVELS, help="of both programs; debug shows the trace of an error"
    )


def _run(chosen: Namespace) -> int:
    tap, target = map(_path, (TAP, TARGET))
    level = ["--log-level", chosen.log_level]
    configs = [word for file in chosen.tap_config or ["tap.json"] for word in ("--config", file)]
    if (chosen.replace or chosen.append_again) and not chosen.full:
        raise ConfigurationError("--replace and --append-again are for full runs: give --full, too")
    named = [word for name in chosen.stream or () for word in ("--stream", name)]
    asked = {"--full": chosen.full, "--replace": chosen.replace, "--append-again": chosen.append_again}
    words = [*configs, "--state-from", chosen.config, *named, *(name for name, given in asked.items() if given), *level]
    accepted = ["--accept-shrink"] if chosen.accept_shrink else []
    with tempfile.TemporaryDirectory(prefix="run-", dir=scratch_folder()) as folder:
        # By this file the tap hands its error over to the target, which records it.
        environ = {**os.environ, VARIABLE: f"{folder}/tap_failure.json"}
        return _pipe([tap, *words], [target, "--config", chosen.config, *accepted, *level], environ)


def _pipe(tap: Sequence[str], target: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run both as one pipe; returns the exit code."""
    source = subprocess.Popen(tap, stdout=subprocess.PIPE, env=environ)
    # The state is for programs: on a terminal it would be noise.
    output = subprocess.DEVNULL if sys.stdout.isatty() else sys.stdout
    sink = subprocess.Popen(target, stdin=source.stdout, stdout=output, env=environ)
    assert source.stdout is not None
    # Only the target may hold it: the tap must notice when the target is gone.
    source.stdout.close()
    programs = (source, sink)
    try:
        codes = [program.wait() for program in programs]
    except Stopped as stopped:
        for program in programs:
            program.send_signal(stopped.number)
        codes = [program.wait() for program in programs]
    return next((_exit_code(code) for code in reversed(codes) if code), 0)


def _path(program: str) -> str:
    found = installed(program)
    if found is None:
        raise ConfigurationError(f"{program} is not installed beside this program: pip install {program}")
    return found


def _exit_code(code: int) -> int:
    """The exit code as a shell reports it for a program ended by a signal."""
    return code if code > 0 else 128 - code


RUN = Command(
    "run",
    f"run {TAP} and {TARGET} as one pipe, by the two configs that init wrote; exit code and summary are the pipe's",
    (
        "run",
        "run --stream 'public-order*'",
        "run --full --replace --stream public-orders",
        "run --tap-config tap-books.json --config target-books.json",
    ),
    _run,
    _flags,
    of_lake=False,
)
