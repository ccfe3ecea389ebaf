"""Memory for one huge line: a few times its length, whatever it holds."""

from __future__ import annotations

import json
import os
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES)
def test_memory_of_a_huge_line(tmp_path: Path, kind: str) -> None:
    """Neither parsed into Python's objects nor copied into a dictionary or into bounds."""
    lake, (declared, value) = Lake(tmp_path / "lake"), VALUES[kind]
    properties = {"id": {"type": "integer"}, "v": declared}
    line = b'{"type":"RECORD","stream":"s","record":{"id":1,"v":' + value().encode() + b"}}\n"
    message = {"type": "SCHEMA", "stream": "s", "schema": {"properties": properties}, "key_properties": []}
    (tmp_path / "input").write_bytes(to_bytes(message) + line)
    (tmp_path / "config.json").write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    with (tmp_path / "input").open("rb") as source:
        command = [str(TARGET), "--config", str(tmp_path / "config.json")]
        process = subprocess.Popen(command, stdin=source, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss * 1024 < 8 * len(line)
    assert lake.rows("s", "id") == [(1,)]
