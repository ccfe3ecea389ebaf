"""Iceberg tables of real runs, read and written by Spark with Iceberg's own runtime, in a JVM of
its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import StorageError
from target.iceberg_lake import IcebergLake
from target.loading import record, schema
from target.table_readers import rows_by_spark
from target_spark_lake.ops import spark_lake

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_jvm")]

INT, TEXT = {"type": ["integer", "null"]}, {"type": ["string", "null"]}
FIRST = {
    "id": {**INT, "x-sql-datatype": "SMALLINT"},
    "country": TEXT,
    "at": {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"},
    "amount": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(12,2)"},
    "tags": {"type": ["array", "null"], "items": TEXT},
    "more": {"type": ["object", "null"], "properties": {"a b": INT}},
}
WIDER = {**FIRST, "amount": {**FIRST["amount"], "x-sql-datatype": "DECIMAL(20,2)"}, "new": INT}
OPTIONS = {"s": {"partition_by": ["country", "day(at)", "bucket(id, 4)"]}}
VERSION = {"id": INT, "clock": INT, "note": TEXT}


def message(stream: str, properties: dict[str, Any], method: str = "append-only") -> dict[str, Any]:
    extent = "full" if method == "overwrite" else "delta"
    return schema(stream, properties, ("id",), **{"x-load-method": method, "x-extent": extent})


def test_spark_and_target_share_iceberg_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark reads every snapshot, and what it writes is kept or refused by name."""
    lake = IcebergLake(tmp_path / "lake")
    row = {
        "country": "DE/ü%",
        "at": "2026-01-31T23:59:59.999999",
        "amount": 1.25,
        "tags": ["x"],
        "more": {"a b": 5},
    }
    lake.load(
        message("s", FIRST), record("s", id=1, **row), record("s", id=2), stream_options=OPTIONS
    )
    wide = record("s", id=3, country="FR", amount=10**15, new=7)
    lake.load(message("s", WIDER), wide, stream_options=OPTIONS)
    lake.load(
        message("s", WIDER, "overwrite"),
        record("s", id=9, country="IT", new=1),
        stream_options=OPTIONS,
    )
    for clock in (1, 2):
        versions = (
            record("v", id=id, clock=clock, note=f"{id} at {clock}") for id in range(clock, 3)
        )
        lake.load({**message("v", VERSION), "bookmark_properties": ["clock"]}, *versions)
    for stream in ("beside", "third"):
        lake.load(message(stream, VERSION), record(stream, id=1), record(stream, id=2))
    sql = view(lake, capsys, "v")
    snapshots = [each.snapshot_id for each in lake.table("s").metadata.snapshots]
    *found, runs, latest, _, _, _, _, _, written = rows_by_spark(
        "target.spark_iceberg",
        [
            *(f"SELECT * FROM lake.raw.s VERSION AS OF {each} ORDER BY id" for each in snapshots),
            "SELECT summary['dataspoc.run-id'] AS run FROM lake.raw.s.snapshots ORDER BY "
            "committed_at",
            f"SELECT id, clock, note FROM ({sql}) ORDER BY id",
            "INSERT INTO lake.raw.s (id, country) VALUES (50, 'ES')",
            "CALL lake.system.rewrite_data_files(table => 'raw.s', options => map('rewrite-all', "
            "'true'))",
            "ALTER TABLE lake.raw.beside SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
            "DELETE FROM lake.raw.beside WHERE id = 1",
            "ALTER TABLE lake.raw.third SET TBLPROPERTIES ('format-version' = '3')",
            "SELECT id, country, new FROM lake.raw.s ORDER BY id",
        ],
        str(lake.folder),
    )
    for number, rows in zip(snapshots, found, strict=True):
        wanted = lake.table("s").scan(snapshot_id=number).to_arrow().sort_by("id").to_pylist()
        assert [{name: each[name] for name in FIRST} for each in rows] == [
            json.loads(json.dumps({name: each[name] for name in FIRST}, default=str))
            for each in wanted
        ]
    assert [each["run"] for each in runs] == lake.runs("s")[:3]
    assert [tuple(each.values()) for each in latest] == [(1, 1, "1 at 1"), (2, 2, "2 at 2")]
    assert [tuple(each.values()) for each in written] == [(9, "IT", 1), (50, "ES", None)]
    lake.load(message("s", WIDER), record("s", id=51, country="PT"), stream_options=OPTIONS)
    assert lake.rows("s", "id, country, new") == [(9, "IT", 1), (50, "ES", None), (51, "PT", None)]
    lake.load(
        message("s", WIDER, "overwrite"), record("s", id=52, country="PT"), stream_options=OPTIONS
    )
    assert lake.rows("s", "id, country") == [(52, "PT")]
    with pytest.raises(StorageError, match="LAKE-081"):
        lake.load(message("beside", VERSION, "overwrite"), record("beside", id=3))
    lake.load(message("beside", VERSION), record("beside", id=3))
    assert lake.rows("beside", "id") == [(2,), (3,)]
    with pytest.raises(StorageError, match="LAKE-081"):
        lake.load(message("third", VERSION), record("third", id=3))
    assert len(lake.runs("third")) == 1


def view(lake: IcebergLake, capsys: pytest.CaptureFixture[str], stream: str) -> str:
    config = lake.folder.parent / "target.json"
    config.write_text(
        json.dumps({"bucket": str(lake.folder), "pipeline": "test", "format": "iceberg"})
    )
    capsys.readouterr()
    assert spark_lake.command(["view", stream, "--config", str(config), "--engine", "spark"]) == 0
    return capsys.readouterr().out
