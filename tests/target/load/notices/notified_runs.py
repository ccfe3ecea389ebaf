"""Runs that end well or badly, and what is reported of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from singer_spark.errors import ProtocolError
from target.loading import Lake, record, schema, state

ID = {"id": {"type": "integer"}}
GOOD = [
    schema("s", ID),
    record("s", id=1),
    record("s", id=2),
    schema("t", ID),
    record("t", id=3),
    state(x=1),
]
ALL = ["failed", "recovered", "succeeded"]
LINES = "3 records in 2 stream(s)"


def succeed(lake: Lake, **settings: Any) -> None:
    lake.load(*GOOD, **settings)


def fail(lake: Lake, **settings: Any) -> None:
    with pytest.raises(ProtocolError):
        lake.load(schema("s", ID), b"no message\n", **settings)


def journals(lake: Lake) -> list[dict[str, Any]]:
    found = sorted((lake.folder / ".dataspoc/runs/test").iterdir())
    return [json.loads(path.read_text()) for path in found]
