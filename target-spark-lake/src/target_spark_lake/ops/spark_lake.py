"""`spark-lake`, for operating pipelines: look at runs and states, end dead runs, convert tables."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from singer_spark.core.config_file import usual_config
from singer_spark.program.frame import run_program
from singer_spark.program.logs import LEVELS
from target_spark_lake.ops.check import CHECK
from target_spark_lake.ops.command import DEFAULT_CONFIG, PROGRAM, Command
from target_spark_lake.ops.init import INIT
from target_spark_lake.ops.report import REPORT
from target_spark_lake.ops.run import RUN
from target_spark_lake.ops.runs import LOG_DROP, RECOVER, RUNS, UNLOCK
from target_spark_lake.ops.state import STATE
from target_spark_lake.ops.status import STATUS
from target_spark_lake.ops.table_commands import COMPACT, CONVERT, VACUUM, VERIFY
from target_spark_lake.ops.view import VIEW

SHELLS = ("bash", "zsh", "tcsh")
GROUPS = {
    "state": "the pipeline's saved state",
    "log": "what LOG_BASED streams keep in the database",
}
# Flags that may also come before the command, with the number of words of each.
LEADING = {"--config": 2, "--pipeline": 2, "--log-level": 2, "--json": 1}
EXIT_CODES = (
    "Exit codes: 0 all is well; 1 refused, failed, or a check found something; 2 the "
    "command line is wrong."
)


def _complete(chosen: Namespace) -> None:
    import shtab

    _complete_files(chosen.parser, shtab.FILE)
    print(shtab.complete(chosen.parser, chosen.shell))


def _complete_files(parser: ArgumentParser, how: Any) -> None:
    """Let the script offer files for flags that take one."""
    for action in parser._actions:
        if action.metavar == "FILE":
            action.complete = how  # type: ignore[attr-defined]
        for inner in (
            (action.choices or {}).values() if isinstance(action, _SubParsersAction) else ()
        ):
            _complete_files(inner, how)


COMPLETION = Command(
    "completion",
    "print a script that completes commands and flags in a shell",
    ("completion bash > ~/.local/share/bash-completion/completions/spark-lake",),
    _complete,
    lambda parser: parser.add_argument("shell", choices=SHELLS),
    of_lake=False,
)
COMMANDS = (
    INIT,
    CHECK,
    RUN,
    STATUS,
    RUNS,
    *STATE,
    VIEW,
    CONVERT,
    COMPACT,
    VACUUM,
    REPORT,
    VERIFY,
    LOG_DROP,
    RECOVER,
    UNLOCK,
    COMPLETION,
)


def main() -> None:
    """Run the command and exit the process."""
    words = _flags_last(sys.argv[1:])
    named = next(
        (each for each in COMMANDS if each.name == " ".join(words[: len(each.name.split())])),
        STATUS,
    )
    run_program(lambda: command(words), PROGRAM, if_stopped=named.if_stopped)


def command(arguments: Sequence[str]) -> int:
    """Run the command given by the words after `spark-lake`, and return the exit code."""
    parser = command_parser()
    chosen = parser.parse_args(_flags_last(arguments))
    if chosen.run is None:
        parser.print_help()
        return 0
    if vars(chosen).get("config", True) is None:
        chosen.config = [usual_config("target")]
    return int(chosen.run(chosen) or 0)


def _flags_last(words: Sequence[str]) -> list[str]:
    """The words with the command first: `--config target.json status` becomes `status --config
    target.json`.
    """
    at = 0
    while at < len(words) and (flag := words[at].partition("=")[0]) in LEADING:
        at += 1 if "=" in words[at] else LEADING[flag]
    return [*words[at:], *words[:at]]


def command_parser() -> ArgumentParser:
    """The parser for the words and flags of all commands."""
    of_lake = ArgumentParser(add_help=False)
    config_help = f"config of the target; {DEFAULT_CONFIG} if not given"
    of_lake.add_argument("--config", action="append", metavar="FILE", help=config_help)
    of_lake.add_argument("--pipeline", help="a pipeline other than the config's")
    of_lake.add_argument("--json", action="store_true", help="print JSON, for programs")
    of_lake.add_argument(
        "--log-level", default="info", choices=LEVELS, help="debug shows the trace of an error"
    )
    parser = ArgumentParser(prog=PROGRAM, description=__doc__, epilog=EXIT_CODES)
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} v{version('target-spark-lake')}"
    )
    parser.set_defaults(parser=parser, run=None)
    groups = {"": parser.add_subparsers(metavar="COMMAND")}
    for each in COMMANDS:
        group, _, name = each.name.rpartition(" ")
        if group not in groups:
            groups[group] = (
                groups[""].add_parser(group, help=GROUPS[group]).add_subparsers(required=True)
            )
        made = groups[group].add_parser(
            name,
            parents=[of_lake] if each.of_lake else [],
            help=each.help,
            description=each.help,
            epilog="\n".join(
                ["examples:", *(f"  {PROGRAM} {example}" for example in each.examples)]
            ),
            formatter_class=RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=each.run)
        each.flags(made)
    return parser
