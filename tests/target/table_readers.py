"""The Python whose Spark has runtimes of Delta and of Iceberg: 4.1, as there is none for the locked one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[2] / ".venv-spark-4.1/bin/python"


def python_with_runtimes() -> str:
    """Its path; where it was not made the test is skipped, in CI it fails."""
    if not PYTHON.exists() and not os.environ.get("CI"):
        pytest.skip("no PySpark 4.1 for the runtimes of Delta and Iceberg: make .venv-spark-4.1/.tested")
    return str(PYTHON)
