"""`tap | target` as a user runs it: two processes, one pipe, config files, the state in the
bucket.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 300
# The line that comes every five seconds: how long a phase has taken so far, or what has moved; not
# of a summary. And Java's own, where `spark-submit` starts it.
PHASE = re.compile(
    r"incubator modules|"
    r"(?:connecting|reading|writing|merging|committing), [\d. a-z]+$|(?:^|\] \S+ +)\S+: \d+ "
    r"records [^|]*$"
)


def with_engine(config: dict[str, Any]) -> dict[str, Any]:
    """The config, with the engine of `make test ENGINE=...` where it names none."""
    engine = os.environ.get("SUITE_ENGINE")
    return config if engine is None or "staging" in config else {"engine": engine, **config}


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit codes, standard errors, and the target's standard output as states."""

    tap_code: int
    target_code: int
    tap_errors: str
    target_errors: str
    states: list[dict[str, Any]]

    def succeeded(self) -> Outcome:
        assert (self.tap_code, self.target_code) == (0, 0), self.tap_errors + self.target_errors
        return self


@dataclass
class Pipe:
    """One pipeline in a folder of its own."""

    folder: Path
    tap: dict[str, Any]
    target: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.target = {"bucket": str(self.folder / "lake"), "pipeline": "test", **self.target}

    @property
    def bucket(self) -> Path:
        return Path(self.target["bucket"])

    @property
    def state_path(self) -> Path:
        return self.bucket / ".dataspoc/state" / self.target["pipeline"] / "state.json"

    @property
    def state(self) -> dict[str, Any]:
        return json.loads(self.state_path.read_text())

    def tap_command(self, *flags: str) -> list[str]:
        config = self.folder / "tap.json"
        config.write_text(json.dumps(with_engine(self.tap)))
        return [str(BIN / "tap-spark-jdbc"), "--config", str(config), *flags]

    def target_command(self) -> list[str]:
        config = self.folder / "target.json"
        config.write_text(json.dumps(with_engine(self.target)))
        return [str(BIN / "target-spark-lake"), "--config", str(config)]

    def run(self, *flags: str, with_state: bool = True) -> Outcome:
        """Runs the pipe to its end, from the saved state by default."""
        state = ("--state", str(self.state_path)) if with_state else ()
        tap_errors, target_errors = self.folder / "tap.err", self.folder / "target.err"
        with (
            tap_errors.open("wb") as tap_err,
            target_errors.open("wb") as target_err,
            subprocess.Popen(
                self.tap_command(*state, *flags),
                stdout=subprocess.PIPE,
                stderr=tap_err,
                cwd=self.folder,
            ) as tap,
            subprocess.Popen(
                self.target_command(),
                stdin=tap.stdout,
                stdout=subprocess.PIPE,
                stderr=target_err,
                cwd=self.folder,
            ) as target,
        ):
            assert tap.stdout is not None
            tap.stdout.close()
            try:
                output, _ = target.communicate(timeout=TIMEOUT_SECONDS)
                tap.wait(timeout=TIMEOUT_SECONDS)
            finally:
                # What does not end would keep the cores of a cluster from the tests that follow.
                tap.kill()
                target.kill()
        states = [json.loads(line) for line in output.splitlines()]
        return Outcome(
            tap.returncode,
            target.returncode,
            tap_errors.read_text(),
            target_errors.read_text(),
            states,
        )

    def rows(self, stream: str, columns: str = "*", order: str = "all") -> list[tuple[Any, ...]]:
        """What an independent reader finds in a stream's table."""
        files = self.bucket / "raw" / stream / "**/*.parquet"
        query = (
            f"select {columns} from read_parquet('{files}', union_by_name=true) order by {order}"
        )
        with duckdb.connect() as connection:
            return connection.sql(query).fetchall()
