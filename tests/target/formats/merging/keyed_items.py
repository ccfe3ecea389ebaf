"""Items with a key and a clock, and lakes of each format that keep a row for each."""

from __future__ import annotations

from typing import Any

import pytest

from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "clock": INT, "name": TEXT}
DELETED = "2026-01-02T03:04:05Z"


@pytest.fixture
def lake(spark, tmp_path, request) -> Lake:
    return LAKES[getattr(request, "param", "parquet")](tmp_path / "lake")


LAKES = {"parquet": Lake, "delta": DeltaLake, "iceberg": IcebergLake}

# What a log of files is to a merge, Iceberg says for Delta, too.
LOGS = ("parquet", "iceberg")
files_and_a_log = pytest.mark.parametrize("lake", LOGS, indirect=True)


def items(method: str = "upsert", *, cursor: bool = True, **annotations: Any) -> dict:
    message = schema(
        "s", ITEM, ("id",), **{"x-load-method": method, "x-extent": "delta", **annotations}
    )
    return {**message, "bookmark_properties": ["clock"] if cursor else []}


def item(id: int | None, clock: int | None, name: str | None, **beside: Any) -> dict:
    return {**record("s", id=id, clock=clock, name=name), **beside}


def activate(version: int) -> dict:
    return {"type": "ACTIVATE_VERSION", "stream": "s", "version": version}
