"""Batches in a run: in one order with records, into tables of any load method, and their files are
taken or left.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from singer_sdk.helpers.capabilities import PluginCapabilities

from target.batch_making import BatchRun, S, message, numbers, table_files, with_metadata
from target.loading import Lake, record
from target_spark_lake.target import TargetSparkLake

pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_target_announces_batch_capability() -> None:
    assert PluginCapabilities.BATCH in TargetSparkLake.capabilities


def test_records_and_batches_keep_their_order(lake: Lake, tap: BatchRun) -> None:
    """Names of files show which row was received last; within a file, its rows do."""
    body = [
        record("s", id=1),
        tap.parquet("s", numbers(2, 3), files=2),
        record("s", id=4),
        record("s", id=5),
    ]
    body += [
        tap.lines("s", [{"id": 6}, {"id": 7}]),
        tap.parquet("s", numbers(8)),
        record("s", id=9),
    ]
    lake.load(S, *body)
    found = [pq.ParquetFile(path).read(["id"])["id"].to_pylist() for path in table_files(lake)]
    assert [id for ids in found for id in ids] == list(range(1, 10))


def test_batch_overwrite_leaves_only_its_rows(lake: Lake, tap: BatchRun) -> None:
    whole = {
        **S,
        "schema": {**S["schema"], "x-replication-method": "FULL_TABLE", "x-extent": "full"},
    }
    lake.load(whole, record("s", id=1), record("s", id=2))
    lake.load(whole, tap.parquet("s", numbers(7)))
    assert lake.rows("s", "id") == [(7,)]


def test_large_manifest_arrives_whole_and_in_order(lake: Lake, tap: BatchRun) -> None:
    """A manifest larger than the read-ahead arrives whole and in order."""
    lake.load(S, tap.parquet("s", numbers(*range(200)), files=200))
    found = [pq.ParquetFile(path).read(["id"])["id"].to_pylist() for path in table_files(lake)]
    assert found == [[number] for number in range(200)]


def test_foreign_batch_files_are_read_and_kept(lake: Lake, tmp_path: Path) -> None:
    """Only files written for the lake are taken over, inside or outside the bucket."""
    folder = tmp_path / "other's files, 100%"
    inside = lake.folder / "incoming" / "b=1"
    paths = []
    for place in (folder, inside):
        place.mkdir(parents=True)
        paths.append(place / "a=1%20.parquet")
        pq.write_table(with_metadata(numbers(len(paths))), paths[-1], compression="snappy")
    batch = message("s", "parquet", paths, [1, 1])
    spelled = [paths[0].as_uri(), str(paths[1])]
    lake.load(S, {**batch, "manifest": spelled}, batch_roots=[str(folder), str(lake.folder)])
    assert lake.rows("s", "id") == [(1,), (2,)]
    assert all(path.exists() for path in paths)


def test_batch_outside_bucket_is_copied_in(lake: Lake, tmp_path: Path) -> None:
    """A batch run outside the bucket is copied in and then removed."""
    tap = BatchRun(tmp_path / "elsewhere")
    body = [tap.parquet("s", numbers(1, 2), files=2), tap.lines("s", [{"id": 3}])]
    lake.load(S, *body, batch_roots=[str(tmp_path / "elsewhere")])
    assert lake.rows("s", "id") == [(1,), (2,), (3,)]
    assert not tap.folder.exists()


def test_stream_maps_apply_to_batches(lake: Lake, tap: BatchRun) -> None:
    maps = {"s": {"name": "name + '!'", "__alias__": "t"}}
    lake.load(
        S, tap.parquet("s", numbers(1)), tap.lines("s", [{"id": 2, "name": "y"}]), stream_maps=maps
    )
    assert lake.rows("t", "id, name") == [(1, "x!"), (2, "y!")]


def test_batch_without_files_or_rows_is_accepted(lake: Lake, tap: BatchRun) -> None:
    lake.load(S, {**message("s", "parquet", [])}, tap.parquet("s", numbers()), record("s", id=1))
    assert lake.rows("s", "id") == [(1,)]
    assert len(table_files(lake)) == 1
