"""Iceberg tables that others change: what they gave a table stays, or the run is refused by
name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import (
    FixedType,
    IcebergType,
    LongType,
    MapType,
    StringType,
    TimeType,
    UUIDType,
)

from singer_spark.errors import (
    ConfigurationError,
    RecordError,
    SchemaError,
    StorageError,
    UnpublishableError,
)
from target.formats.iceberg.iceberg_items import INT, ITEM, command, item, items
from target.iceberg_lake import IcebergLake
from target.loading import record, state
from target_spark_lake.iceberg_log import iceberg_tables


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path / "lake")


@pytest.mark.usefixtures("without_jvm")
def test_foreign_append_during_run_is_kept(lake: IcebergLake) -> None:
    """Rows that another writer appends between plan and snapshot survive an overwrite."""
    lake.load(items(), item(1, "a"))
    foreign = pa.table({"id": pa.array([50], pa.int64()), "name": ["theirs"]})
    before_publishing(lake, lambda: lake.table("s").append(foreign))
    lake.load(items("overwrite"), item(2, "b"))
    assert lake.rows("s", "id, name") == [(2, "b"), (50, "theirs")]
    assert len(lake.table("s").metadata.snapshots) == 3


@pytest.mark.usefixtures("without_jvm")
def test_foreign_delete_in_replaced_files_is_refused(
    lake: IcebergLake,
) -> None:
    """A concurrent delete in files we replace stops publishing until it is rolled back."""
    lake.load(items(), item(1, "a"), item(2, "a"), state(x=1))
    seen = lake.table("s").metadata.current_snapshot_id
    before_publishing(lake, lambda: lake.table("s").delete("id = 2"))
    with pytest.raises(
        UnpublishableError,
        match=r"LAKE-085 .*raw/s",
    ):
        lake.load(items("overwrite"), item(3, "c"), state(x=2))
    assert lake.rows("s", "id") == [(1,)]
    table = lake.table("s")
    assert seen is not None
    table.manage_snapshots().rollback_to_snapshot(seen).commit()
    assert command(lake, "recover") == 0
    assert lake.rows("s", "id") == [(3,)]
    assert lake.state() == {"x": 2}


@pytest.mark.usefixtures("without_jvm")
def test_conflicting_commit_can_be_abandoned(lake: IcebergLake) -> None:
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
        iceberg_tables.IcebergTables.publish = made
        act()
        made(tables, commit)

    iceberg_tables.IcebergTables.publish = publish


@pytest.mark.usefixtures("without_jvm")
def test_foreign_columns_keep_their_values_and_ids(lake: IcebergLake) -> None:
    """Columns that others add are kept, with their field ids."""
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
def test_unsupported_foreign_change_is_refused(lake: IcebergLake) -> None:
    """A foreign change that cannot be kept is refused before anything is published."""
    lake.load(items(), item(1, "a"))
    with lake.table("s").update_schema() as update:
        update.rename_column("name", "label")
    with pytest.raises(StorageError, match=r"LAKE-081 .*name"):
        lake.load(items(), item(2, "b"))
    with lake.table("s").update_schema() as update:
        update.rename_column("label", "name")
    lake.load(items(), item(2, "b"))
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "b")]


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(
    "kind",
    [UUIDType(), FixedType(16), TimeType(), MapType(100, StringType(), 101, LongType(), False)],
    ids=str,
)
def test_foreign_column_of_unsupported_type_is_refused(
    lake: IcebergLake, kind: IcebergType
) -> None:
    """A foreign column of an unsupported type is refused by name and keeps its values."""
    lake.load(items(), item(1, "a"))
    with lake.table("s").update_schema() as update:
        update.add_column("theirs", kind)
    before = lake.table("s").metadata
    for method in ("append-only", "overwrite"):
        with pytest.raises(
            SchemaError,
            match=rf"LAKE-081 .*theirs.*{re.escape(str(kind))}",
        ):
            lake.load(items(method), item(3, "c"))
    assert lake.table("s").metadata == before
    with lake.table("s").update_schema() as update:
        update.delete_column("theirs")
    lake.load(items(), item(3, "c"))
    assert lake.rows("s", "id") == [(1,), (3,)]


@pytest.mark.usefixtures("without_jvm")
def test_foreign_or_missing_table_is_a_clear_error(lake: IcebergLake) -> None:
    """A table that no pipeline created, or that is missing, is a clear error."""
    lake.load(items(stream="other"), item(1, "a", "other"))
    lake.catalog().create_table(
        ("raw", "s"), lake.table("other").schema(), location=f"file://{lake.folder}/raw/s"
    )
    with pytest.raises(
        ConfigurationError,
        match=r"LAKE-050 .*raw\.s",
    ):
        lake.load(items(), item(1, "a"))
    lake.catalog().drop_table(("raw", "s"))
    lake.load(items(), item(1, "a"))
    lake.catalog().drop_table(("raw", "s"))
    with pytest.raises(StorageError, match=r"LAKE-080 .*raw\.s"):
        lake.load(items(), item(2, "b"))
    written = (lake.folder / "raw/s/metadata").glob("*.metadata.json")
    newest = max(written, key=lambda path: path.stat().st_mtime_ns)
    lake.catalog().register_table(("raw", "s"), f"file://{newest}")
    lake.load(items(), item(2, "b"))
    assert lake.rows("s", "id") == [(1,), (2,)]


@pytest.mark.usefixtures("without_jvm")
def test_column_made_required_refuses_null(lake: IcebergLake) -> None:
    lake.load(items(), item(1, "a"))
    with lake.table("s").update_schema(allow_incompatible_changes=True) as update:
        update.update_column("name", required=True)
    with pytest.raises(RecordError, match=r"LAKE-023 .*raw/s"):
        lake.load(items(), item(2, None))
    lake.load(items(), item(2, "b"))
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "b")]
