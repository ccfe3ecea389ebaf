"""What a run does not load for what it does not use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys
from target_spark_lake.__main__ import main
slow = {"pyarrow", "numpy", "pandas", "pyspark", "grpc", "pyiceberg", "sqlalchemy", "sqlite3"}
slow |= {"deltalake"}
atexit.register(lambda: print(*sorted(slow & set(sys.modules)), file=sys.stderr))
main()
"""
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
MESSAGES = [
    {"type": "SCHEMA", "stream": "orders", "schema": SCHEMA, "key_properties": ["id"]},
    {"type": "STATE", "value": {"bookmarks": {"orders": {"replication_key_value": 3}}}},
]


RECORD = {"type": "RECORD", "stream": "orders", "record": {"id": 4}}


def loaded(folder: Path, messages: Sequence[object], **settings: str) -> list[str]:
    """The slow modules that a run loads; it saves the state."""
    config = folder / "config.json"
    config.write_text(json.dumps({"bucket": str(folder / "lake"), "pipeline": "test", **settings}))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--config", str(config)],
        input="".join(json.dumps(each) + "\n" for each in messages),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bookmarks"]["orders"]["replication_key_value"] == 3
    return done.stderr.splitlines()[-1].split()


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["parquet", "delta", "iceberg"])
def test_idle_run_saves_state_without_arrow_or_spark(tmp_path: Path, chosen: str) -> None:
    """A run without records saves its state without loading Arrow or Spark."""
    assert loaded(tmp_path, MESSAGES, format=chosen) == []


@pytest.mark.slow
@pytest.mark.usefixtures("with_pandas")
@pytest.mark.parametrize("chosen", ["parquet", "delta"])
def test_appending_records_needs_no_spark(tmp_path: Path, chosen: str) -> None:
    """Nor does it need pandas, which PyArrow would load where it is installed."""
    schema, state = MESSAGES
    found = loaded(tmp_path, [schema, RECORD, state], format=chosen, load_method="append-only")
    assert set(found) <= {"pyarrow", "numpy", "deltalake"}
    assert list(tmp_path.glob("lake/raw/orders/*.parquet"))
