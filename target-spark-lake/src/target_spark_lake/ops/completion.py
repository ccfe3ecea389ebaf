"""`spark-lake completion`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _SubParsersAction
from typing import Any

from target_spark_lake.ops.command import Command

SHELLS = ("bash", "zsh", "tcsh")


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
