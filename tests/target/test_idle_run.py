"""What a run without news does not do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys
from target_spark_lake.__main__ import main
slow = {"pyarrow", "numpy", "pandas", "pyspark", "grpc", "pyiceberg", "sqlalchemy", "sqlite3", "deltalake"}
atexit.register(lambda: print(*sorted(slow & set(sys.modules)), file=sys.stderr))
main()
"""
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
MESSAGES = [
    {"type": "SCHEMA", "stream": "orders", "schema": SCHEMA, "key_properties": ["id"]},
    {"type": "STATE", "value": {"bookmarks": {"orders": {"replication_key_value": 3}}}},
]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["parquet", "delta", "iceberg"])
def test_a_run_without_records_saves_its_state_without_arrow_and_spark(tmp_path: Path, chosen: str) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"bucket": str(tmp_path / "lake"), "pipeline": "test", "format": chosen}))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--config", str(config)],
        input="".join(json.dumps(each) + "\n" for each in MESSAGES),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bookmarks"]["orders"]["replication_key_value"] == 3
    assert done.stderr.splitlines()[-1] == "", "these were loaded"
