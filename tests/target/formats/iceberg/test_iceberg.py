"""Iceberg tables: each run is one snapshot of each table that it changes, and new columns are
metadata alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.store.storage import Storage
from target.formats.iceberg.iceberg_items import INT, ITEM, TEXT, data_files, item, items
from target.iceberg_lake import IcebergLake
from target.loading import record, schema
from target_spark_lake.iceberg_log.iceberg_tables import IcebergTables
from target_spark_lake.iceberg_log.table_commit import IcebergCommit
from target_spark_lake.layout import IcebergCatalog

NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path / "lake")


@pytest.mark.usefixtures("without_jvm")
def test_each_run_adds_one_snapshot_naming_it(lake: IcebergLake) -> None:
    lake.load(items(), item(1, "a"), item(2, "b"))
    lake.load(items(), item(1, "c"))
    assert lake.rows("s", "id, name") == [(1, "a"), (1, "c"), (2, "b")]
    lake.load(items("overwrite"), item(9, "d"))
    assert lake.rows("s", "id, name") == [(9, "d")]
    lake.load(items("overwrite"))
    assert lake.rows("s") == []
    lake.load(items("upsert"))
    runs = sorted(path.stem for path in (lake.folder / ".dataspoc/runs/test").iterdir())
    assert lake.runs("s") == runs[:4]
    third = lake.table("s").metadata.snapshots[2].snapshot_id
    assert lake.rows("s", "id, name", third) == [(9, "d")]


@pytest.mark.usefixtures("without_jvm")
def test_schema_changes_are_metadata_only(
    lake: IcebergLake,
) -> None:
    """New columns and wider types change metadata only; no file is rewritten."""
    narrow = {
        "n": {**INT, "x-sql-datatype": "INTEGER"},
        "f": {"type": ["number", "null"], "x-sql-datatype": "REAL"},
        "d": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(6,2)"},
    }
    wide = {
        "n": {**INT, "x-sql-datatype": "BIGINT"},
        "f": {"type": ["number", "null"], "x-sql-datatype": "DOUBLE PRECISION"},
        "d": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(20,2)"},
    }
    lake.load(items(properties={**ITEM, **narrow}), record("s", id=1, n=1, f=0.5, d=1.25))
    (file,) = data_files(lake)
    before = file.read_bytes()
    more = {"type": ["object", "null"], "properties": {"at": NAIVE}}
    lake.load(
        items(properties={**ITEM, **wide, "more": more}),
        record("s", id=2, n=1 << 40, f=0.1, d=10**15),
    )
    assert len(lake.runs("s")) == 2
    assert len(data_files(lake)) == 2
    assert file.read_bytes() == before
    found = lake.rows("s", "id, n, f, d::varchar, more")
    assert found == [(1, 1, 0.5, "1.25", None), (2, 1 << 40, 0.1, "1000000000000000.00", None)]
    numbers = {each.name: each.field_id for each in lake.table("s").schema().fields}
    first = {each.name: each.field_id for each in lake.table("s").metadata.schemas[0].fields}
    assert {name: numbers[name] for name in first} == first
    table = (
        polars.scan_iceberg(lake.table("s"), reader_override="native")
        .select("id", "n", "f", "d")
        .collect()
    )
    assert sorted(table.rows())[1][1:3] == (1 << 40, 0.1)


@pytest.mark.usefixtures("without_jvm")
def test_data_files_hold_field_ids(
    lake: IcebergLake,
) -> None:
    """Field ids are written at any depth; a name mapping covers files without them."""
    nested = {
        "id": {**INT, "x-sql-datatype": "SMALLINT"},
        "tags": {
            "type": ["array", "null"],
            "items": {"type": "object", "properties": {"k": TEXT, "v": INT}},
        },
        "odd name.x": {"type": ["object", "null"], "properties": {"z": INT}},
    }
    row = {"id": 7, "tags": [{"k": "a", "v": 1}], "odd name.x": {"z": 3}}
    lake.load(schema("s", nested, ("id",)), record("s", **row))
    (file,) = data_files(lake)
    found = pq.read_schema(file)
    tags = found.field("tags").type.value_field
    columns = {each.name: each for each in lake.table("s").schema().fields}
    element: Any = columns["tags"].field_type
    assert number_of(found.field("id")) == columns["id"].field_id
    assert number_of(tags) == element.element_id
    assert [number_of(each) for each in tags.type] == [
        each.field_id for each in element.element_type.fields
    ]
    assert found.field("id").type == pa.int32()
    assert lake.rows("s", 'id, tags, "odd name.x"') == [(7, [{"k": "a", "v": 1}], {"z": 3})]
    mapping = json.loads(lake.table("s").metadata.properties["schema.name-mapping.default"])
    assert {each["names"][0]: each["field-id"] for each in mapping} == {
        name: each.field_id for name, each in columns.items()
    }
    lake.load(schema("s", nested, ("id",)), record("s", **row))
    assert len(lake.rows("s")) == 2


def number_of(field: pa.Field) -> int:
    return int(field.metadata[b"PARQUET:field_id"])


@pytest.mark.usefixtures("without_jvm")
def test_run_is_published_once_to_table_history(lake: IcebergLake) -> None:
    """Publishing a run again changes nothing, even after its snapshot has expired."""
    lake.load(items(), item(1, "a"))
    (run,) = (lake.folder / ".dataspoc/runs/test").iterdir()
    (body,) = json.loads(run.read_text())["iceberg"]
    tables, commit = (
        IcebergTables(Storage(str(lake.folder)), IcebergCatalog()),
        IcebergCommit.from_body(body),
    )
    tables.publish(commit)
    assert len(lake.runs("s")) == 1
    lake.load(items(), item(2, "b"))
    table = lake.table("s")
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    tables.publish(commit)
    assert lake.rows("s", "id") == [(1,), (2,)]
