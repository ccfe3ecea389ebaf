"""A table that gets a small file a run keeps few files if runs join them; otherwise `status` names
it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.faulty import Counting
from servers.s3 import S3
from singer_spark.store.bucket import FileInfo
from target.formats.fed_table import TABLE, Fed, few
from target.loading import Lake, record, schema
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats import compaction_plan, table_joining
from target_spark_lake.formats.compaction_plan import (
    MANY,
    SMALL,
    has_many,
    oldest,
    planned_joins,
)
from target_spark_lake.ops.spark_lake import command
from target_spark_lake.table.table_record import DELTA, ICEBERG, PARQUET

__all__ = ["few"]

INT = {"type": ["integer", "null"]}


@pytest.mark.slow
@pytest.mark.parametrize(("table_format", "folders"), [(PARQUET, 3), (DELTA, 0)])
def test_fifty_runs_leave_few_files_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, folders: int
) -> None:
    """50 runs of one row each leave few files, with all rows in order."""
    many, runs = 20, 50
    monkeypatch.setattr(compaction_plan, "MANY", many)
    lake = Fed(f"{tmp_path}/lake", tmp_path, table_format, folders=folders)
    most = 0
    for _ in range(runs):
        lake.sync()
        most = max(most, lake.record().small_files or 0)
    assert most == many + 1
    assert len(lake.paths()) == lake.record().small_files <= many + 1
    assert lake.ids() == list(range(1, runs + 1))


def test_nothing_to_join_costs_no_requests(tmp_path: Path) -> None:
    calls = []
    for auto_compact in (False, True):
        lake = Fed(f"{tmp_path}/{auto_compact}", tmp_path, auto_compact=auto_compact)
        lake.sync()
        counting = Counting()
        lake.sync(lake.storage(counting))
        calls.append(counting.calls)
    assert calls[0] == calls[1]


def test_unjoinable_small_files_are_rarely_checked(tmp_path: Path, few: int) -> None:
    """Small files that cannot be joined are checked again only after as many new ones."""
    lake = Fed(f"{tmp_path}/lake", tmp_path, folders=1000)
    looks = []
    for _ in range(4 * few):
        counting = Counting()
        lake.sync(lake.storage(counting))
        looks.append(counting.calls.count("list"))
    found = [number for number, each in enumerate(looks) if number and each > min(looks[1:])]
    assert found == [few + 1, 2 * few + 1, 3 * few + 1]
    assert len(lake.paths()) == 4 * few


def test_table_never_counted_is_counted_once(tmp_path: Path, few: int) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path, auto_compact=False)
    for _ in range(few + 1):
        lake.sync()
    path = Path(lake.url) / f".dataspoc/tables/{TABLE}.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"small_files": None, "small_files_left": 0}))
    replace(lake, auto_compact=True).sync()
    assert (len(lake.paths()), lake.record().small_files) == (2, 2)
    assert lake.ids() == list(range(1, few + 3))


def test_unjoinable_file_does_not_fail_run(tmp_path: Path, few: int, caplog: Any) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path)
    for _ in range(few):
        lake.sync()
    pq.write_table(pa.table({"other": [1]}), Path(lake.url) / TABLE / "foreign.parquet")
    lake.sync()
    lake.sync()
    assert "LAKE-073 file raw/s/foreign.parquet holds other" in caplog.text
    (Path(lake.url) / TABLE / "foreign.parquet").unlink()
    assert lake.ids() == list(range(1, few + 3))


def test_joined_bytes_are_limited_oldest_first() -> None:
    files = [
        FileInfo(f"s/{n % 2 and 'b=1/'}{n:02d}.parquet".replace("s/0", "s/0", 1), 10)
        for n in range(8)
    ]
    joins = planned_joins("s", files, 100, share=SMALL)
    chosen = oldest(joins, 35)
    assert sum(file.size for join in chosen for file in join.files) <= 35
    assert [join.files[0].path for join in chosen] == [min(join.files[0].path for join in joins)]
    assert sum(len(join.files) for join in oldest(joins, 1000)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("table_format", [PARQUET, DELTA, ICEBERG])
def test_limited_join_takes_oldest_files_first(
    tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    """A run with a size limit joins the oldest small files and loses no other."""
    lake = Fed(f"{tmp_path}/lake", tmp_path, table_format)
    for _ in range(few + 1):
        lake.sync()
    before = lake.paths()
    largest = max(lake.storage().size(path) or 0 for path in before)
    monkeypatch.setattr(table_joining, "MOST_BYTES", 3 * largest)
    lake.sync()
    assert lake.ids() == list(range(1, few + 3))
    # Of three one, and the run's own.
    assert len(set(before) - set(lake.paths())) == 3
    assert len(lake.paths()) == lake.record().small_files == few + 1 - 3 + 1 + 1


def test_auto_compact_defaults_and_thresholds() -> None:
    """Delta tables are compacted by default, once they have more than 64 small files."""
    reported = {"bucket": "b", "pipeline": "p"}
    assert [
        TargetSettings.from_config({**reported, "format": each}).joins_small_files
        for each in (PARQUET, DELTA)
    ] == [
        False,
        True,
    ]
    assert TargetSettings.from_config({**reported, "auto_compact": True}).joins_small_files
    assert [has_many(64), has_many(65), has_many(None)] == [False, True, True]
    # Of those that could not be joined, 10, 40 and 500, as many more must have come, or 64.
    assert [has_many(65, left=10), has_many(79, left=40), has_many(80, left=40)] == [
        True,
        False,
        True,
    ]
    assert [has_many(563, left=500), has_many(564, left=500)] == [False, True]


@pytest.mark.slow
def test_status_reports_small_files_until_joined(tmp_path: Path, capsys: Any) -> None:
    """`status` reports a table's many small files, and one run with the setting joins them."""
    lake = Fed(f"{tmp_path}/lake", tmp_path, auto_compact=False)
    for _ in range(MANY + 1):
        lake.sync()
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"bucket": lake.url, "pipeline": "test"}))
    assert command(["status", "--config", str(config)]) == 0
    assert (
        "pipeline test: raw/s has 65 small files; `spark-lake compact` joins them"
        in capsys.readouterr().out
    )
    assert command(["status", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["streams"]["s"]["small_files"] == {"raw/s": 65}
    # Through the target itself.
    loaded = Lake(Path(lake.url))
    message = schema("s", {"id": {**INT, "x-sql-datatype": "BIGINT"}})
    loaded.load(message, record("s", id=66), auto_compact=True, add_record_metadata=False)
    assert len(lake.paths()) == 2
    assert lake.ids() == list(range(1, 67))
    assert command(["status", "--json", "--config", str(config)]) == 0
    assert "small_files" not in json.loads(capsys.readouterr().out)[0]["streams"]["s"]


def test_small_files_on_s3_are_joined(s3: S3, tmp_path: Path, few: int) -> None:
    lake = Fed(s3.new_bucket(), tmp_path, folders=2, options=s3.storage_options)
    for _ in range(few + 2):
        lake.sync()
    assert len(lake.paths()) == 3
    assert lake.ids() == list(range(1, few + 3))


def test_current_rows_and_history_survive_auto_compact(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Current rows and their history stay exact while runs join their files."""
    monkeypatch.setattr(compaction_plan, "MANY", 1)
    lake = Lake(tmp_path / "lake")
    message = schema("s", {"id": INT, "note": INT}, ("id",))
    for n in range(4):
        records = record("s", id=n, note=n), record("s", id=0, note=n)
        lake.load(message, *records, load_method="append-dedup", auto_compact=True)
    assert lake.rows("s", "id, note") == [(0, 3), (1, 1), (2, 2), (3, 3)]
    versions = sorted([(0, n) for n in range(4)] + [(n, n) for n in range(4)])
    assert lake.rows("s__history", "id, note") == versions
    assert len(list((lake.folder / "raw/s__history").glob("*.parquet"))) == 2
