"""`spark-lake view`: SQL for the latest rows of a table that keeps every version, run by DuckDB and
by Spark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from target.loading import Lake, record, schema
from target.ops.viewed_rows import rows_of, view
from target_spark_lake.ops.spark_lake import command

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
DELETED = "2026-01-02T03:04:05Z"
ODD = 'a "b" `c`'
RUNS = [
    [
        (1, "x", 5, "a"),
        (1, "x", 7, "b"),
        (1, "x", 6, "c"),
        (1, "y", None, "d"),
        (2, "x", 1, "e"),
        (2, "x", 1, "f"),
    ],
    [
        (1, "x", 7, "g"),
        (1, "y", 0, "h"),
        (1, "y", None, "i"),
        (2, "x", 0, "late"),
        (3, "x", None, "j"),
    ],
]


@pytest.fixture
def lake(spark: object, tmp_path: Path) -> Lake:
    """The same records in a table that keeps all, and in one that is upserted."""
    lake = Lake(tmp_path / "it's a lake")
    properties = {"id": INT, ODD: TEXT, "clock": INT, "note": TEXT}
    for number, rows in enumerate(RUNS):
        later = {"more": INT} if number else {}
        for stream, method in (("all", "append-only"), ("latest", "upsert")):
            message = schema(
                stream, {**properties, **later}, ("id", ODD), **{"x-load-method": method}
            )
            message["bookmark_properties"] = ["clock"]
            records = [
                record(stream, **{"id": a, ODD: b, "clock": c, "note": d}) for a, b, c, d in rows
            ]
            gone = (
                [record(stream, **{"id": 3, ODD: "x", "clock": 1, "_sdc_deleted_at": DELETED})]
                if number
                else []
            )
            lake.load(message, *records, *gone, hard_delete=True)
    return lake


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_view_matches_upsert_rows(spark: Any, lake: Lake, capsys: Any, engine: str) -> None:
    columns = "id, clock, note, more"
    upserted = lake.rows("latest", columns)
    assert sorted(row[2] for row in upserted) == ["f", "g", "h"]
    # No engine may take a folder above the table for a column of it.
    lake = Lake(lake.folder.rename(lake.folder.with_name("clock=77")))
    sql = view(lake, capsys, "all", engine, hard_delete=True)
    assert rows_of(sql, engine, spark, columns) == sorted(upserted)
    marked = rows_of(
        view(lake, capsys, "all", engine), engine, spark, "id, _sdc_deleted_at IS NOT NULL"
    )
    assert marked == [(1, False), (1, False), (2, False), (3, True)]


def test_view_uses_key_and_cursor_options(spark: Any, lake: Lake, capsys: Any) -> None:
    options = {"all": {"key_properties": ["id"], "cursor": "note"}}
    lake = Lake(lake.folder.rename(lake.folder.with_name("la[1]ke*")))
    sql = view(lake, capsys, "all", "duckdb", stream_options=options)
    assert rows_of(sql, "duckdb", spark, "id, note") == [(1, "i"), (2, "late"), (3, "j")]


def test_view_without_stream_lists_streams(tmp_path: Path, capsys: Any) -> None:
    """Only streams whose tables keep every version are listed."""
    lake = Lake(tmp_path / "lake")
    identity = {"id": {"type": "integer"}}
    streams = ("b", "a", "upserted")
    lake.load(
        *(
            each
            for name in streams
            for each in (schema(name, identity, ("id",)), record(name, id=1))
        ),
        stream_options={"upserted": {"load_method": "upsert"}},
    )
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    capsys.readouterr()
    assert command(["view", "--config", str(config)]) == 0
    assert capsys.readouterr().out.split() == ["a", "b"]


def test_view_without_table_or_key_is_refused(tmp_path: Path, capsys: Any) -> None:
    lake = Lake(tmp_path / "lake")
    lake.load(schema("keyless", {"id": INT}), record("keyless", id=1))
    with pytest.raises(ConfigurationError, match=r"LAKE-054 .*raw/nothing"):
        view(lake, capsys, "nothing", "spark")
    with pytest.raises(ConfigurationError, match="LAKE-040"):
        view(lake, capsys, "keyless", "spark")
    with pytest.raises(ConfigurationError, match=r"LAKE-105 .*x"):
        view(
            lake, capsys, "keyless", "spark", stream_options={"keyless": {"key_properties": ["x"]}}
        )


def test_reserved_engine_column_has_no_view(tmp_path: Path, capsys: Any) -> None:
    """A column with an engine's reserved name has no view for that engine."""
    lake = Lake(tmp_path / "lake")
    for stream, name, engine, other in (
        ("a", "File_Row_Number", "duckdb", "spark"),
        ("b", "_metadata", "spark", "duckdb"),
    ):
        for value in (1, 2):
            lake.load(
                schema(stream, {"id": INT, name: INT}, ("id",)),
                record(stream, **{"id": 1, name: value}),
            )
        with pytest.raises(
            ConfigurationError, match=rf"LAKE-105 .*{stream}.*{name}.*--engine.*{other}"
        ):
            view(lake, capsys, stream, engine)
        sql = view(lake, capsys, stream, other)
        if other == "duckdb":
            assert rows_of(sql, other, None, name) == [(2,)]
