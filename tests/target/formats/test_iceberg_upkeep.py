"""`spark-lake convert`, `compact` and `vacuum` on Iceberg tables: no row changes, and kept
snapshots stay readable.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from singer_spark.errors import StorageError
from target.formats.iceberg.iceberg_items import (
    INT,
    ITEM,
    command,
    data_files,
    item,
    items,
    succeeded,
)
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, state


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path / "lake")


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_other_formats_are_converted_in_place(lake: IcebergLake, kind: str) -> None:
    plain = Lake(lake.folder)
    options = {"s": {"partition_by": ["name"]}}
    plain.load(
        items(), item(1, "a"), item(2, None), state(x=1), format=kind, stream_options=options
    )
    plain.load(items(), item(3, "b"), state(x=2), format=kind, stream_options=options)
    files = {path: path.stat().st_ino for path in data_files(lake)}
    assert command(lake, "convert", "--format", "iceberg") == 0
    assert {path: path.stat().st_ino for path in data_files(lake)} == files
    assert not [*(lake.folder / "raw/s").glob("_delta_log/*")]
    assert lake.rows("s", "id, name") == [(1, "a"), (2, None), (3, "b")]
    assert sorted(polars.scan_iceberg(lake.table("s")).select("id", "name").collect().rows()) == [
        *((1, "a"), (2, None), (3, "b")),
    ]
    lake.load(
        items(properties={**ITEM, "new": INT}),
        record("s", id=4, name="a", new=1),
        stream_options=options,
    )
    assert lake.rows("s", "id, name, new") == [
        (1, "a", None),
        (2, None, None),
        (3, "b", None),
        (4, "a", 1),
    ]
    assert lake.runs("s") == succeeded(lake)[2:]


@pytest.mark.usefixtures("without_jvm")
def test_compact_is_one_snapshot_and_keeps_older_ones(
    lake: IcebergLake,
) -> None:
    """A compaction is one snapshot, and earlier snapshots stay readable."""
    for id in range(4):
        lake.load(items(), item(id, "a"))
    first = lake.table("s").metadata.snapshots[1].snapshot_id
    assert command(lake, "compact") == 0
    assert lake.rows("s", "id") == [(id,) for id in range(4)]
    assert lake.rows("s", "id", first) == [(0,), (1,)]
    assert len(lake.table("s").inspect.files()) == 1
    assert lake.runs("s") == succeeded(lake)


@pytest.mark.usefixtures("without_jvm")
def test_vacuum_expires_snapshots_and_their_files(
    lake: IcebergLake, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tagged snapshots and the files they need are kept."""
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
    reported = json.loads(capsys.readouterr().out)
    assert (reported["run_id"], reported["tables"]["raw/s"]["snapshots"]) == (
        None,
        [snapshots[0], snapshots[2]],
    )
    assert len(lake.table("s").metadata.snapshots) == 4
    assert command(lake, "vacuum", "--older-than", "0s") == 0
    assert [each.snapshot_id for each in lake.table("s").metadata.snapshots] == [
        snapshots[1],
        snapshots[3],
    ]
    assert lake.rows("s", "id", snapshots[1]) == [(1,)]
    assert lake.rows("s", "id") == [(2,), (7,)]
    assert not [path for path in reported["paths"] if (lake.folder / path).exists()]
    assert len(data_files(lake)) == 3
    lake.load(items(), item(8, "a"))
    assert lake.rows("s", "id") == [(2,), (7,), (8,)]


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
def test_vacuum_removes_orphaned_metadata_a_day_later(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vacuum removes the metadata of failed commits, a day later than other files."""
    lake.load(items(), item(1, "a"))
    commits, refusals = SqlCatalog.commit_table, iter([OSError("lost")])

    def refuse(*arguments: Any) -> Any:
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        return commits(*arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    with pytest.raises(StorageError, match=r"LAKE-083|RUN-052|LAKE-065"):
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
    assert all(
        name in (lake.folder / f".dataspoc/runs/test/{journal}.json").read_text() for name in left
    )


def metadata_files(lake: IcebergLake) -> set[str]:
    return {
        path.name for path in (lake.folder / "raw/s/metadata").iterdir() if path.suffix != ".txt"
    }


def named(lake: IcebergLake) -> set[str]:
    """The metadata that a table needs."""
    table = lake.table("s")
    paths = [table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)]
    for each in table.metadata.snapshots:
        paths += [
            each.manifest_list,
            *(manifest.manifest_path for manifest in each.manifests(table.io)),
        ]
    return {Path(path).name for path in paths}


def age(folder: Path, days: float) -> None:
    for path in folder.iterdir():
        moment = path.stat().st_mtime - days * 86400
        os.utime(path, (moment, moment))
