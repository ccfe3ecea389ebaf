"""The Spark that has runtimes of Delta and of Iceberg: 4.1, as there is none for the locked one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from needed import need

TESTS = Path(__file__).parents[1]
PYTHON = TESTS.parent / ".venv-spark-4.1/bin/python"
DEADLINE = 300


def rows_by_spark(
    module: str, statements: Sequence[str], *arguments: str
) -> list[list[dict[str, Any]]]:
    """The rows of each statement; if that Spark was not made, the test is skipped, and in CI it
    fails.
    """
    lacking = "no PySpark 4.1 for the runtimes of Delta and Iceberg: make .venv-spark-4.1/.tested"
    need(None if PYTHON.exists() else lacking)
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "TZ": "UTC"}
    # A session of this process has set it to a Spark of another version.
    environment.pop("SPARK_HOME", None)
    done = subprocess.run(
        [str(PYTHON), "-m", module, *arguments],
        input=json.dumps(statements),
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return found
