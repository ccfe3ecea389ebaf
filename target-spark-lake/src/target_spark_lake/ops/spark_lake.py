"""`spark-lake`, for operating pipelines: look at runs and states, end dead runs, convert tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from singer_spark.program.frame import run_program
from target_spark_lake.ops.check import check_command
from target_spark_lake.ops.command import PROGRAM, Group, subcommand
from target_spark_lake.ops.init import init_command
from target_spark_lake.ops.report import report_command
from target_spark_lake.ops.run import run_command
from target_spark_lake.ops.runs import log_commands, recover_command, runs_command, unlock_command
from target_spark_lake.ops.state import state_commands
from target_spark_lake.ops.status import status_command
from target_spark_lake.ops.table_commands import (
    compact_command,
    convert_command,
    vacuum_command,
    verify_command,
)
from target_spark_lake.ops.view import view_command

SHELLS = ("bash", "zsh", "fish")
# Flags that may also come before the command, with the number of words of each.
LEADING = {"--config": 2, "--pipeline": 2, "--log-level": 2, "--json": 1}


@subcommand(
    "completion",
    "completion bash > ~/.local/share/bash-completion/completions/spark-lake",
    of_lake=False,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> int:
    """Print a script that completes commands and flags in a shell."""
    return shell_complete(COMMANDS, {}, PROGRAM, "_SPARK_LAKE_COMPLETE", f"{shell}_source")


COMMANDS = Group(
    PROGRAM,
    help=__doc__,
    epilog="Exit codes: 0 all is well; 1 refused, failed, or a check found something; 2 the "
    "command line is wrong.",
    context_settings={"help_option_names": ["-h", "--help"]},
    commands=[
        init_command,
        check_command,
        run_command,
        status_command,
        runs_command,
        state_commands,
        view_command,
        convert_command,
        compact_command,
        vacuum_command,
        report_command,
        verify_command,
        log_commands,
        recover_command,
        unlock_command,
        completion_command,
    ],
)
click.version_option(package_name="target-spark-lake", message="%(prog)s v%(version)s")(COMMANDS)


def main() -> None:
    """Run the command and exit the process."""
    words = _flags_last(sys.argv[1:])
    starts = words[:1] == [init_command.name]
    left = "nothing was written" if starts else "the next start finishes what was begun"
    run_program(lambda: command(words), PROGRAM, if_stopped=left)


def command(arguments: Sequence[str]) -> int:
    """Run the command given by the words after `spark-lake`, and return the exit code."""
    words = _flags_last(arguments) or ["--help"]
    try:
        # An exit code after help, say, else what is to be run.
        parsed = COMMANDS.main(words, PROGRAM, standalone_mode=False)
        return int((parsed() if callable(parsed) else parsed) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _flags_last(words: Sequence[str]) -> list[str]:
    """The words with the command first: `--config target.json status` becomes `status --config
    target.json`.
    """
    at = 0
    while at < len(words) and (flag := words[at].partition("=")[0]) in LEADING:
        at += 1 if "=" in words[at] else LEADING[flag]
    return [*words[at:], *words[:at]]
