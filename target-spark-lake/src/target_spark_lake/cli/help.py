"""The help of `spark-lake` beyond its flags: an example for each command, exit codes, completion for shells."""

from __future__ import annotations

import argparse
from typing import Any

CONFIG = "--config target.json"
EXIT_CODES = "Exit codes: 0 all is well; 1 refused, failed, or a check found something; 2 the command line is wrong."
SHELLS = ("bash", "zsh", "tcsh")
EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": (
        "init",
        "init --jdbc-url jdbc:postgresql://db/shop --user reader --tables public.orders --bucket lake --pipeline shop",
    ),
    "status": (f"status {CONFIG}", f"status {CONFIG} --max-age 6h --max-age 'nightly-*=26h'"),
    "runs": (f"runs {CONFIG}", f"runs {CONFIG} --json"),
    "state show": (f"state show {CONFIG}",),
    "state history": (f"state history {CONFIG} --json",),
    "state set": (
        f"state set {CONFIG} --stream public-orders --value 2025-01-20T15:30:00",
        f"state set {CONFIG} --stream public-events --value 1000 --replication-key id --type integer",
    ),
    "state reset": (f"state reset {CONFIG} --stream public-orders", f"state reset {CONFIG}"),
    "state restore": (
        f"state restore 20251121T040000000000Z-0a1b2c3d {CONFIG}",
        f"state restore 20251121T040000000000Z-0a1b2c3d --before {CONFIG}",
    ),
    "view": (f"view public-orders --engine duckdb {CONFIG}",),
    "convert": (f"convert --format delta {CONFIG} --stream public-orders",),
    "compact": (f"compact {CONFIG}", f"compact {CONFIG} --stream public-orders"),
    "verify": (
        f"verify {CONFIG} --tap-config tap.json",
        f"verify {CONFIG} --tap-config tap.json --stream public-orders --json",
    ),
    "report": (f"report {CONFIG} --output report.html", f"report {CONFIG} --output report.html --all"),
    "recover": (f"recover {CONFIG}", f"recover --give-up-publishing RUN {CONFIG}"),
    "unlock": (f"unlock {CONFIG}", f"unlock --force {CONFIG}"),
}


def examples_text(command: str) -> str | None:
    """The examples of a command, as they stand below its flags; None where there is none."""
    examples = EXAMPLES.get(command, ())
    return "\n".join(["examples:", *(f"  spark-lake {each}" for each in examples)]) if examples else None


def add_completion(commands: Any) -> None:
    """Registers `completion`."""
    text = "print a script that completes commands and flags in a shell"
    made = commands.add_parser(
        "completion",
        help=text,
        description=text,
        epilog="examples:\n  spark-lake completion bash > ~/.local/share/bash-completion/completions/spark-lake",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("shell", choices=SHELLS)
    made.set_defaults(command="completion")


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script."""
    import shtab

    _complete_files(parser, shtab.FILE)
    return str(shtab.complete(parser, shell))


def _complete_files(parser: argparse.ArgumentParser, how: Any) -> None:
    """Lets the script offer files where a flag wants one."""
    for action in parser._actions:
        if action.metavar == "FILE":
            action.complete = how  # type: ignore[attr-defined]
        for inner in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
            _complete_files(inner, how)
