"""A copy of the project's own meltano.yml, run by the real Meltano."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 300
STATE_ID = "dev:tap-spark-jdbc-to-target-spark-lake"
PIPELINE = "dev.tap-spark-jdbc-to-target-spark-lake"
PLUGINS = ("tap-spark-jdbc", "target-spark-lake")


@dataclass(frozen=True)
class Project:
    """A copy of the Meltano project, with a lake and a shop of its own unless variables say otherwise."""

    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    programs: Path = BIN

    def meltano(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MELTANO_", "TAP_", "TARGET_"))}
        return subprocess.run(
            [self.programs / "meltano", *arguments],
            cwd=self.root,
            env={**clean, "NO_COLOR": "1", **self.variables, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def run(self, *arguments: str, **variables: str) -> str:
        """Runs Meltano, which must succeed; what it said."""
        done = self.meltano(*arguments, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def shop(self, *flags: str) -> None:
        subprocess.run(
            [sys.executable, ROOT / "demo/make_database.py", self.root / ".demo/shop.db", *flags], check=True
        )

    def lake_state(self, pipeline: str = PIPELINE, bucket: str = ".meltano/lake") -> Any:
        return json.loads((self.root / bucket / ".dataspoc/state" / pipeline / "state.json").read_text())

    def meltano_state(self) -> Any:
        return json.loads(self.meltano("state", "get", STATE_ID).stdout)["singer_state"]

    def query(self, sql: str, bucket: str = ".meltano/lake") -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            for stream in ("orders", "customers"):
                files = self.root / bucket / "raw" / stream / "**/*.parquet"
                connection.execute(f"create view {stream} as from read_parquet('{files}')")
            return connection.sql(sql).fetchall()


def new_project(root: Path, programs: Path = BIN, **variables: str) -> Project:
    root.mkdir(parents=True, exist_ok=True)
    (root / "meltano.yml").write_text((ROOT / "meltano.yml").read_text())
    (root / ".venv").symlink_to(programs.parent)
    return Project(root, variables, programs)
