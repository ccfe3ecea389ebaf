"""A section of the documentation, done as its reader would do it: its blocks run in order, in one
folder.

The first line of a block says what it is:

- `sh` is run by bash, and must succeed; `crontab` is run as cron runs its lines; `sql` is run in
  the shop.
- `text` is what the block before it shows.
- `json title="tap.json"` writes a file; `json` alone is only shown, as a role's policy.
- `yaml title="meltano.yml"` is what a file holds; `yaml` alone is another system's.
- `console` is what nobody can run here, such as an installation.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 300
BLOCK = re.compile(
    r"""(?ms)^(?P<indent> *)```(?P<kind>\w+)(?: title="(?P<file>[^"\n]+)")?\n"""
    r"(?P<text>.*?)^(?P=indent)```$"
)

# The shell of DuckDB, as far as pages use it; the package that the tests have is the library alone.
DUCKDB = f"""\
#!{sys.executable}
import csv, sys, duckdb
options, (flag, sql) = sys.argv[1:-2], sys.argv[-2:]
assert (options, flag) == (["-csv"], "-c"), sys.argv
found = duckdb.sql(sql)
csv.writer(sys.stdout, lineterminator="\\n").writerows([found.columns, *found.fetchall()])
"""


@dataclass(frozen=True)
class Block:
    """Some lines of a page.

    Attributes:
        kind: `sh`, `text`, …
        file: The name behind it, or nothing.
        text: What it holds.
        place: Page and line, for the user that must fix it.
    """

    kind: str
    file: str
    text: str
    place: str


def blocks(page: Path, heading: str = "") -> list[Block]:
    """The blocks of a page, or of its section of that heading, in their order."""
    text = page.read_text(encoding="utf-8")
    begin, end = _section(text, heading) if heading else (0, len(text))
    name = page.relative_to(ROOT)
    found = []
    for m in BLOCK.finditer(text, begin, end):
        place = f"{name}:{text.count(chr(10), 0, m.start()) + 1}"
        found.append(Block(m["kind"], m["file"] or "", textwrap.dedent(m["text"]), place))
    return found


def _section(text: str, heading: str) -> tuple[int, int]:
    """Where a section of the second level begins and ends."""
    (found,) = re.finditer(rf"(?m)^## {re.escape(heading)}$", text)
    behind = re.compile(r"(?m)^## ").search(text, found.end())
    return found.end(), behind.start() if behind else len(text)


@dataclass(frozen=True)
class Reader:
    """Who does what a page says.

    Attributes:
        folder: Where; the shop of the demo is there as `shop.db`.
        replacements: The texts in pages that replace what differs from place to place.
        variables: Of the environment.
    """

    folder: Path
    replacements: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def do(self, page: Path, heading: str = "") -> None:
        """Runs the blocks of the page, or of one of its sections, to its end."""
        shown = ""
        for block in blocks(page, heading):
            text = self._here(block.text)
            if block.kind == "sh":
                shown = self._run(
                    ["bash", "-e", "-o", "pipefail", "-c", text],
                    block,
                    self.folder,
                    self._environment(),
                )
            elif block.kind == "crontab":
                for line in filter(None, text.splitlines()):
                    self._run(
                        ["/bin/sh", "-c", cron_command(line)],
                        block,
                        self.folder.parent,
                        self._cron_environment(),
                    )
            elif block.kind == "text":
                assert_shows(shown, text, block.place)
            elif block.kind == "json":
                json.loads(text)
                if block.file:
                    (self.folder / block.file).write_text(text)
            elif block.kind == "yaml":
                if block.file:
                    assert_shows((self.folder / block.file).read_text(), text, block.place)
            elif block.kind == "sql":
                with closing(sqlite3.connect(self.folder / "shop.db")) as shop:
                    shop.executescript(text)
            else:
                raise AssertionError(f"{block.place}: nobody knows how to run {block.kind}")

    def _here(self, text: str) -> str:
        for written, real in self.replacements.items():
            text = text.replace(written, real)
        return text

    def _environment(self) -> dict[str, str]:
        tools = self.folder.parent / "tools"
        if not tools.exists():
            tools.mkdir()
            (tools / "duckdb").write_text(DUCKDB)
            (tools / "duckdb").chmod(0o755)
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("MELTANO_", "TAP_", "TARGET_", "AWS_"))
        }
        path = f"{BIN}:{tools}:{os.environ['PATH']}"
        return {**clean, "PATH": path, "COLUMNS": "140", "NO_COLOR": "1", **self.variables}

    def _cron_environment(self) -> dict[str, str]:
        """What cron gives its commands (hardly anything), and what is good for all JVMs of the
        tests.
        """
        names = ("PYTHONPATH", "JAVA_HOME", "TMPDIR", "SPARK_SUBMIT_OPTS")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **kept,
            "HOME": str(Path.home()),
            "LOGNAME": "cron",
            "PATH": "/usr/bin:/bin",
            "SHELL": "/bin/sh",
        }

    def _run(
        self, command: list[str], block: Block, folder: Path, environment: Mapping[str, str]
    ) -> str:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        logs = "".join(log.read_text() for log in self.folder.glob("*.log"))
        assert done.returncode == 0, (
            f"{block.place} ended with {done.returncode}:\n{done.stdout}{logs}"
        )
        return done.stdout


def cron_command(line: str) -> str:
    """What cron takes from a line: all behind the time, up to an unescaped percent sign."""
    time = 1 if line.startswith("@") else 5
    command = line.split(maxsplit=time)[time]
    return re.split(r"(?<!\\)%", command)[0].replace("\\%", "%")


def assert_shows(shown: str, wanted: str, place: str) -> None:
    """The wanted lines are in what was shown, in this order.

    `…` is anything, and so is the width of a blank.
    """
    lines = iter(" ".join(line.split()) for line in shown.splitlines())
    for each in filter(None, (" ".join(line.split()) for line in wanted.splitlines())):
        pattern = ".*".join(map(re.escape, each.split("…")))
        assert any(re.fullmatch(pattern, line) for line in lines), (
            f"{place} shows {each!r}, but it said:\n{shown}"
        )
