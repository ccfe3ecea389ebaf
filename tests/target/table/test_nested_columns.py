"""Deeply nested objects and arrays become JSON text from a depth on, in tables that every reader
opens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from singer_spark.errors import SchemaError, StorageError
from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import Lake, reader, record, schema
from target_spark_lake.table import declared_columns
from target_spark_lake.table.declared_columns import MOST_LEVELS

ID = {"type": ["integer", "null"]}
LAKES: dict[str, type[Lake]] = {"parquet": Lake, "delta": DeltaLake, "iceberg": IcebergLake}


def objects(levels: int, inner: Any = ID) -> Any:
    return (
        inner
        if levels == 0
        else {"type": ["object", "null"], "properties": {"a": objects(levels - 1, inner)}}
    )


def arrays(levels: int) -> Any:
    return ID if levels == 0 else {"type": ["array", "null"], "items": arrays(levels - 1)}


def in_turn(levels: int) -> Any:
    return (
        ID if levels == 0 else {"type": ["array", "null"], "items": objects(1, in_turn(levels - 1))}
    )


def value(levels: int, array: bool) -> Any:
    found: Any = 7
    for _ in range(levels):
        found = [found] if array else {"a": found}
    return found


def text_inside(found: Any) -> str:
    while not isinstance(found, str):
        found = next(iter(found.values())) if isinstance(found, dict) else found[0]
    return found


pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.mark.slow
@pytest.mark.parametrize("format", LAKES)
def test_deep_columns(tmp_path: Path, format: str) -> None:
    """Objects and arrays below a depth are JSON text, and each reader opens the table."""
    lake = LAKES[format](tmp_path / "lake")
    properties = {
        "id": ID,
        "o": objects(100),
        "l": arrays(60),
        "t": in_turn(40),
        "flat": objects(MOST_LEVELS),
    }
    row = {
        "id": 1,
        "o": value(100, array=False),
        "l": value(60, array=True),
        "flat": value(MOST_LEVELS, array=False),
    }
    for _ in range(2):
        lake.load(schema("s", properties), record("s", **row))
    ((whole, lists, turns, flat), *_) = lake.rows("s", "o, l, t, flat")
    assert json.loads(text_inside(whole)) == value(100 - MOST_LEVELS, array=False)
    assert json.loads(text_inside(lists)) == value(60 - MOST_LEVELS, array=True)
    assert not turns  # PyIceberg reads [] for an array of objects that is NULL
    assert flat == value(MOST_LEVELS, array=False)
    for path in (lake.folder / "raw/s").rglob("*.parquet"):
        assert pyarrow.parquet.ParquetFile(path).schema_arrow.names
        assert polars.read_parquet(path).height == 1
        with reader() as connection:
            assert connection.sql(f"SELECT count(*) FROM read_parquet('{path}')").fetchall() == [
                (1,)
            ]
    if format == "delta":
        assert DeltaTable(str(lake.folder / "raw/s")).schema().fields


def test_known_deep_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of a table of an older version keeps its type, however deeply it is nested."""
    lake = Lake(tmp_path / "lake")
    properties = {"o": objects(40)}
    with monkeypatch.context() as older:
        older.setattr(declared_columns, "MOST_LEVELS", 1000)
        lake.load(schema("s", properties), record("s", o=value(40, array=False)))
    before = lake.types("s")["o"]
    lake.load(schema("s", properties), record("s", o=value(40, array=False)))
    assert lake.types("s")["o"] == before
    assert lake.rows("s", "o") == [(value(40, array=False),)] * 2


def test_unopenable_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What readers could not open is an error with stream and column before anything is written."""
    lake = Lake(tmp_path / "lake")
    monkeypatch.setattr(declared_columns, "MOST_LEVELS", 1000)
    with pytest.raises(SchemaError, match="LAKE-034"):
        lake.load(
            schema("s", {"id": ID, "o": objects(99)}), record("s", id=1, o=value(99, array=False))
        )
    assert lake.tables() == []


def test_staged_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every staged file is opened before the commit.

    One that Arrow can't open is never published.
    """
    lake = Lake(tmp_path / "lake")
    monkeypatch.setattr(declared_columns, "MOST_LEVELS", 1000)
    monkeypatch.setattr("target_spark_lake.load.stream_resolution._check_depth", lambda *_: None)
    with pytest.raises(StorageError, match=r"LAKE-070 .*s/00000/plain\.parquet"):
        lake.load(
            schema("s", {"id": ID, "o": objects(99)}), record("s", id=1, o=value(99, array=False))
        )
    assert lake.tables() == []
