"""Memory for one huge line: a few times its length, whatever it holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from target.loading import Lake, to_bytes

MEGABYTES = 96
TARGET = Path(sys.executable).parent / "target-spark-lake"
NUMBERS = ",".join(str(n * 7919 % 1_000_003) for n in range(150_000))
VALUES: dict[str, tuple[dict[str, object], Callable[[], str]]] = {
    "text": ({"type": "string"}, lambda: json.dumps("some words " * (MEGABYTES * 95_325))),
    "list": (
        {"type": "array", "items": {"type": "integer"}},
        lambda: "[" + ",".join([NUMBERS] * (MEGABYTES * (1 << 20) // len(NUMBERS))) + "]",
    ),
}

# By a small process: the peak of a process begins with that of the one that it was forked from.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES)
def test_memory_of_a_huge_line(tmp_path: Path, kind: str) -> None:
    """Neither parsed into Python's objects nor copied into a dictionary or into bounds."""
    lake, (declared, value) = Lake(tmp_path / "lake"), VALUES[kind]
    properties = {"id": {"type": "integer"}, "v": declared}
    line = b'{"type":"RECORD","stream":"s","record":{"id":1,"v":' + value().encode() + b"}}\n"
    message = {
        "type": "SCHEMA",
        "stream": "s",
        "schema": {"properties": properties},
        "key_properties": [],
    }
    (tmp_path / "input").write_bytes(to_bytes(message) + line)
    (tmp_path / "config.json").write_text(
        json.dumps({"bucket": str(lake.folder), "pipeline": "test"})
    )
    command = [sys.executable, "-c", PEAK, str(TARGET), "--config", str(tmp_path / "config.json")]
    with (tmp_path / "input").open("rb") as source:
        done = subprocess.run(
            command, stdin=source, stdout=subprocess.PIPE, check=True, timeout=120
        )
    assert int(done.stdout.split()[-1]) * 1024 < 8 * len(line)
    assert lake.rows("s", "id") == [(1,)]
