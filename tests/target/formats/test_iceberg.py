"""Iceberg tables: each run is one snapshot of each table that it changes, and others who read or write are at home."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import FixedType, IcebergType, LongType, MapType, StringType, TimeType, UUIDType

from singer_spark.errors import ConfigurationError, RecordError, SchemaError, StorageError, UnpublishableError
from singer_spark.storage.storage import Storage
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema, state
from target_spark_lake.cli import spark_lake
from target_spark_lake.config.iceberg_catalog import IcebergCatalog
from target_spark_lake.table_logs.iceberg_log import iceberg_tables
from target_spark_lake.table_logs.iceberg_log.iceberg_tables import IcebergTables
from target_spark_lake.table_logs.iceberg_log.table_commit import IcebergCommit

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "name": TEXT}
NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}


def items(method: str = "append-only", properties: dict | None = None, stream: str = "s") -> dict:
    extent = "full" if method.startswith("overwrite") else "delta"
    return schema(stream, properties or ITEM, ("id",), **{"x-load-method": method, "x-extent": extent})


def item(id: int, name: str | None, stream: str = "s") -> dict:
    return record(stream, id=id, name=name)


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path / "lake")


def command(lake: IcebergLake, *arguments: str) -> int | None:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test", "format": "iceberg"}))
    name, *rest = arguments
    return spark_lake.command([name, "--config", str(config), *rest])


def data_files(lake: IcebergLake, stream: str = "s") -> list[Path]:
    return sorted((lake.folder / "raw" / stream).rglob("*.parquet"))


def succeeded(lake: IcebergLake) -> list[str]:
    runs = sorted((lake.folder / ".dataspoc/runs/test").iterdir())
    return [each.stem for each in runs if '"succeeded"' in each.read_text()]


@pytest.mark.usefixtures("without_jvm")
def test_each_run_is_one_snapshot_that_names_it(lake: IcebergLake) -> None:
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
def test_new_columns_and_wider_types_are_metadata_and_no_file_is_written_anew(lake: IcebergLake) -> None:
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
    lake.load(items(properties={**ITEM, **wide, "more": more}), record("s", id=2, n=1 << 40, f=0.1, d=10**15))
    assert len(lake.runs("s")) == 2
    assert len(data_files(lake)) == 2
    assert file.read_bytes() == before
    found = lake.rows("s", "id, n, f, d::varchar, more")
    assert found == [(1, 1, 0.5, "1.25", None), (2, 1 << 40, 0.1, "1000000000000000.00", None)]
    numbers = {each.name: each.field_id for each in lake.table("s").schema().fields}
    first = {each.name: each.field_id for each in lake.table("s").metadata.schemas[0].fields}
    assert {name: numbers[name] for name in first} == first
    table = polars.scan_iceberg(lake.table("s"), reader_override="native").select("id", "n", "f", "d").collect()
    assert sorted(table.rows())[1][1:3] == (1 << 40, 0.1)


@pytest.mark.usefixtures("without_jvm")
def test_files_hold_the_numbers_of_their_columns_at_any_depth_and_a_mapping_stands_for_files_without(
    lake: IcebergLake,
) -> None:
    nested = {
        "id": {**INT, "x-sql-datatype": "SMALLINT"},
        "tags": {"type": ["array", "null"], "items": {"type": "object", "properties": {"k": TEXT, "v": INT}}},
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
    assert [number_of(each) for each in tags.type] == [each.field_id for each in element.element_type.fields]
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
def test_a_run_publishes_into_the_history_of_its_table_once(lake: IcebergLake) -> None:
    lake.load(items(), item(1, "a"))
    (run,) = (lake.folder / ".dataspoc/runs/test").iterdir()
    (body,) = json.loads(run.read_text())["iceberg"]
    tables, commit = IcebergTables(Storage(str(lake.folder)), IcebergCatalog()), IcebergCommit.from_body(body)
    tables.publish(commit)
    assert len(lake.runs("s")) == 1
    lake.load(items(), item(2, "b"))
    table = lake.table("s")
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    tables.publish(commit)
    assert lake.rows("s", "id") == [(1,), (2,)]


@pytest.mark.usefixtures("without_jvm")
def test_what_others_append_between_plan_and_snapshot_stays(lake: IcebergLake) -> None:
    lake.load(items(), item(1, "a"))
    foreign = pa.table({"id": pa.array([50], pa.int64()), "name": ["theirs"]})
    before_publishing(lake, lambda: lake.table("s").append(foreign))
    lake.load(items("overwrite"), item(2, "b"))
    assert lake.rows("s", "id, name") == [(2, "b"), (50, "theirs")]
    assert len(lake.table("s").metadata.snapshots) == 3


@pytest.mark.usefixtures("without_jvm")
def test_rows_that_someone_changes_in_files_that_we_replace_are_for_a_person_and_the_way_out_works(
    lake: IcebergLake,
) -> None:
    lake.load(items(), item(1, "a"), item(2, "a"), state(x=1))
    seen = lake.table("s").metadata.current_snapshot_id
    before_publishing(lake, lambda: lake.table("s").delete("id = 2"))
    with pytest.raises(UnpublishableError, match=r"(?s)someone else changed Iceberg table raw/s after snapshot.*recov"):
        lake.load(items("overwrite"), item(3, "c"), state(x=2))
    assert lake.rows("s", "id") == [(1,)]
    table = lake.table("s")
    assert seen is not None
    table.manage_snapshots().rollback_to_snapshot(seen).commit()
    assert command(lake, "recover") == 0
    assert lake.rows("s", "id") == [(3,)]
    assert lake.state() == {"x": 2}


@pytest.mark.usefixtures("without_jvm")
def test_a_conflict_can_be_given_up_instead(lake: IcebergLake) -> None:
    more = {**ITEM, "new": INT}
    lake.load(items(), item(1, "a"), item(2, "a"), state(x=1))
    before_publishing(lake, lambda: lake.table("s").delete("id = 2"))
    with pytest.raises(UnpublishableError):
        lake.load(items("overwrite", more), record("s", id=3, new=1), state(x=2))
    run = sorted((lake.folder / ".dataspoc/runs/test").iterdir())[-1].stem
    assert command(lake, "recover", "--give-up-publishing", run) == 0
    assert lake.state() == {"x": 1}
    assert lake.rows("s", "id, name") == [(1, "a")]
    lake.load(items("overwrite", more), record("s", id=3, new=1), state(x=2))
    assert lake.rows("s", "id, new") == [(3, 1)]


def before_publishing(lake: IcebergLake, act: Any) -> None:
    """Does something of others right before the next run makes its snapshot."""
    made = iceberg_tables.IcebergTables.publish

    def publish(tables: Any, commit: Any) -> None:
        iceberg_tables.IcebergTables.publish = made  # type: ignore[method-assign]
        act()
        made(tables, commit)

    iceberg_tables.IcebergTables.publish = publish  # type: ignore[method-assign]


@pytest.mark.usefixtures("without_jvm")
def test_columns_that_others_add_stay_and_their_numbers_with_them(lake: IcebergLake) -> None:
    lake.load(items(), item(1, "a"))
    with lake.table("s").update_schema() as update:
        update.add_column("theirs", LongType(), doc="kept")
    lake.load(items(properties={**ITEM, "new": INT}), record("s", id=2, new=5))
    assert lake.rows("s", "id, theirs, new") == [(1, None, None), (2, None, 5)]
    assert lake.table("s").schema().find_field("theirs").doc == "kept"

    def add() -> None:
        with lake.table("s").update_schema() as update:
            update.add_column("meanwhile", LongType())

    before_publishing(lake, add)
    lake.load(items(), item(3, "c"))
    assert lake.rows("s", "id, meanwhile") == [(1, None), (2, None), (3, None)]


@pytest.mark.usefixtures("without_jvm")
def test_what_can_not_be_kept_is_refused_before_anything_is_published(lake: IcebergLake) -> None:
    lake.load(items(), item(1, "a"))
    with lake.table("s").update_schema() as update:
        update.rename_column("name", "label")
    with pytest.raises(StorageError, match="column name was renamed to label; take it back"):
        lake.load(items(), item(2, "b"))
    with lake.table("s").update_schema() as update:
        update.rename_column("label", "name")
    lake.load(items(), item(2, "b"))
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "b")]


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(
    "kind", [UUIDType(), FixedType(16), TimeType(), MapType(100, StringType(), 101, LongType(), False)], ids=str
)
def test_a_column_of_a_type_that_the_lake_has_not_is_refused_by_name_and_its_values_stay(
    lake: IcebergLake, kind: IcebergType
) -> None:
    lake.load(items(), item(1, "a"))
    with lake.table("s").update_schema() as update:
        update.add_column("theirs", kind)
    before = lake.table("s").metadata
    for method in ("append-only", "overwrite"):
        with pytest.raises(SchemaError, match=f"gave its Iceberg table column theirs of type {re.escape(str(kind))}"):
            lake.load(items(method), item(3, "c"))
    assert lake.table("s").metadata == before
    with lake.table("s").update_schema() as update:
        update.delete_column("theirs")
    lake.load(items(), item(3, "c"))
    assert lake.rows("s", "id") == [(1,), (3,)]


@pytest.mark.usefixtures("without_jvm")
def test_a_table_that_no_pipeline_made_or_that_is_gone_is_a_clear_error(lake: IcebergLake) -> None:
    lake.load(items(stream="other"), item(1, "a", "other"))
    lake.catalog().create_table(("raw", "s"), lake.table("other").schema(), location=f"file://{lake.folder}/raw/s")
    with pytest.raises(ConfigurationError, match=r"the catalog has a table raw\.s that no pipeline of this lake made"):
        lake.load(items(), item(1, "a"))
    lake.catalog().drop_table(("raw", "s"))
    lake.load(items(), item(1, "a"))
    lake.catalog().drop_table(("raw", "s"))
    with pytest.raises(StorageError, match=r"the catalog has no table raw\.s any more: register it again"):
        lake.load(items(), item(2, "b"))
    written = (lake.folder / "raw/s/metadata").glob("*.metadata.json")
    newest = max(written, key=lambda path: path.stat().st_mtime_ns)
    lake.catalog().register_table(("raw", "s"), f"file://{newest}")
    lake.load(items(), item(2, "b"))
    assert lake.rows("s", "id") == [(1,), (2,)]


@pytest.mark.usefixtures("without_jvm")
def test_a_column_that_is_required_by_its_owner_takes_no_null(lake: IcebergLake) -> None:
    lake.load(items(), item(1, "a"))
    with lake.table("s").update_schema(allow_incompatible_changes=True) as update:
        update.update_column("name", required=True)
    with pytest.raises(RecordError, match=r"column\(s\) name of Iceberg table raw/s are NOT NULL"):
        lake.load(items(), item(2, None))
    lake.load(items(), item(2, "b"))
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "b")]


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_tables_of_other_formats_are_converted_where_they_lie(lake: IcebergLake, kind: str) -> None:
    plain = Lake(lake.folder)
    options = {"s": {"partition_by": ["name"]}}
    plain.load(items(), item(1, "a"), item(2, None), state(x=1), format=kind, stream_options=options)
    plain.load(items(), item(3, "b"), state(x=2), format=kind, stream_options=options)
    files = {path: path.stat().st_ino for path in data_files(lake)}
    assert command(lake, "convert", "--format", "iceberg") == 0
    assert {path: path.stat().st_ino for path in data_files(lake)} == files
    assert not [*(lake.folder / "raw/s").glob("_delta_log/*")]
    assert lake.rows("s", "id, name") == [(1, "a"), (2, None), (3, "b")]
    assert sorted(polars.scan_iceberg(lake.table("s")).select("id", "name").collect().rows()) == [
        *((1, "a"), (2, None), (3, "b")),
    ]
    lake.load(items(properties={**ITEM, "new": INT}), record("s", id=4, name="a", new=1), stream_options=options)
    assert lake.rows("s", "id, name, new") == [(1, "a", None), (2, None, None), (3, "b", None), (4, "a", 1)]
    assert lake.runs("s") == succeeded(lake)[2:]


@pytest.mark.usefixtures("without_jvm")
def test_compact_is_one_snapshot_and_the_readers_of_former_ones_are_undisturbed(lake: IcebergLake) -> None:
    for id in range(4):
        lake.load(items(), item(id, "a"))
    first = lake.table("s").metadata.snapshots[1].snapshot_id
    assert command(lake, "compact") == 0
    assert lake.rows("s", "id") == [(id,) for id in range(4)]
    assert lake.rows("s", "id", first) == [(0,), (1,)]
    assert len(lake.table("s").inspect.files()) == 1
    assert lake.runs("s") == succeeded(lake)


@pytest.mark.usefixtures("without_jvm")
def test_vacuum_expires_snapshots_and_removes_what_only_they_had(
    lake: IcebergLake, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        lake.load(items("overwrite"), item(number, "a"))
    lake.load(items(), item(7, "a"))
    snapshots = [each.snapshot_id for each in lake.table("s").metadata.snapshots]
    with lake.table("s").manage_snapshots() as manage:
        manage.create_tag(snapshots[1], "kept")
    capsys.readouterr()
    assert command(lake, "vacuum", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tables"] == {}
    assert command(lake, "vacuum", "--json", "--older-than", "0s", "--dry-run") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["run_id"], told["tables"]["raw/s"]["snapshots"]) == (None, [snapshots[0], snapshots[2]])
    assert len(lake.table("s").metadata.snapshots) == 4
    assert command(lake, "vacuum", "--older-than", "0s") == 0
    assert [each.snapshot_id for each in lake.table("s").metadata.snapshots] == [snapshots[1], snapshots[3]]
    assert lake.rows("s", "id", snapshots[1]) == [(1,)]
    assert lake.rows("s", "id") == [(2,), (7,)]
    assert not [path for path in told["paths"] if (lake.folder / path).exists()]
    assert len(data_files(lake)) == 3
    lake.load(items(), item(8, "a"))
    assert lake.rows("s", "id") == [(2,), (7,), (8,)]


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
def test_vacuum_removes_metadata_of_commits_that_never_were_a_day_after_everything_else(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.load(items(), item(1, "a"))
    commits, refusals = SqlCatalog.commit_table, iter([OSError("lost")])

    def refuse(*arguments: Any) -> Any:
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        return commits(*arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    with pytest.raises(StorageError, match="lost"):
        lake.load(items(), item(2, "b"))
    lake.load(items(), item(3, "c"))
    folder = lake.folder / "raw/s/metadata"
    left = metadata_files(lake) - named(lake)
    assert len(left) == 2  # a list and a manifest
    kept = folder / "notes.txt"
    kept.touch()
    assert command(lake, "vacuum", "--older-than", "0s") == 0
    assert left < metadata_files(lake)
    age(folder, days=1.5)
    assert command(lake, "vacuum", "--older-than", "1d") == 0
    assert left < metadata_files(lake)
    assert command(lake, "vacuum", "--older-than", "0s") == 0
    assert metadata_files(lake) == named(lake)
    assert kept.exists()
    assert lake.rows("s", "id") == [(1,), (2,), (3,)]
    journal = succeeded(lake)[-1]
    assert all(name in (lake.folder / f".dataspoc/runs/test/{journal}.json").read_text() for name in left)


def metadata_files(lake: IcebergLake) -> set[str]:
    return {path.name for path in (lake.folder / "raw/s/metadata").iterdir() if path.suffix != ".txt"}


def named(lake: IcebergLake) -> set[str]:
    """The metadata that a table needs."""
    table = lake.table("s")
    paths = [table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)]
    for each in table.metadata.snapshots:
        paths += [each.manifest_list, *(manifest.manifest_path for manifest in each.manifests(table.io))]
    return {Path(path).name for path in paths}


def age(folder: Path, days: float) -> None:
    for path in folder.iterdir():
        moment = path.stat().st_mtime - days * 86400
        os.utime(path, (moment, moment))
