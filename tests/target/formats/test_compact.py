"""Compaction: fewer files, the same rows in the same order, and nothing else moves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.state.run_log import run_ids
from target.formats.written_tables import COLUMNS, LARGE, LAYOUT, Tables, known, rows
from target.loading import Lake, record, schema
from target.plain_readers import seen_by_all
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats import table_joining
from target_spark_lake.formats.maintenance import compact
from target_spark_lake.layout import Layout
from target_spark_lake.ops.spark_lake import command

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}


def test_small_neighbours_are_joined_in_order(tmp_path: Path) -> None:
    """Small neighbouring files become one file, and all rows keep their order."""
    tables = Tables(tmp_path)
    tables.publish(known(), rows(5, 1), rows(4))
    tables.publish(known(), rows(9))
    tables.publish(known(), rows(7, size=LARGE))
    tables.publish(known(), rows(2))
    tables.publish(known(), rows(8, 3))
    large = tables.files()[3]
    (done,) = tables.compact()
    assert (done.retired, done.published) == (5, 2)
    first, stayed, last = tables.files()
    assert stayed == large
    assert tables.ids() == [5, 1, 4, 9, 7, 2, 8, 3]
    assert [pq.ParquetFile(path).num_row_groups for path in (first, last)] == [1, 1]
    tables.publish(known(), rows(6))
    assert tables.ids()[-1] == 6


def test_small_files_reach_target_size_once(
    tmp_path: Path,
) -> None:
    """Small files become files of the target size; a second compaction does nothing."""
    tables = Tables(tmp_path)
    tables.publish(known(), *(rows(*range(10 * n, 10 * n + 10), size=12_000) for n in range(40)))
    (done,) = tables.compact()
    sizes = [path.stat().st_size for path in tables.files()]
    assert (done.retired, done.published, done.published_bytes) == (40, len(sizes), sum(sizes))
    assert 2 < len(sizes) < 10
    assert all(1 << 19 <= size < 3 << 19 for size in sizes[:-1])
    assert tables.ids() == list(range(400))
    runs = run_ids(tables.storage, LAYOUT.runs)
    before = tables.files()
    assert tables.compact() == ()
    assert tables.files() == before
    assert run_ids(tables.storage, LAYOUT.runs) == runs


def test_row_group_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory use stays flat for a large row group."""
    seen: list[int] = []

    def fitted(batch: pa.RecordBatch, columns: Any) -> pa.RecordBatch:
        seen.append(batch.nbytes)
        return batch

    monkeypatch.setattr(table_joining, "fitted", fitted)
    tables = Tables(tmp_path)
    compressible = pa.table(
        {"id": range(300_000), "note": ["x" * 100] * 300_000}, schema=rows(1).schema
    )
    tables.publish(known(), compressible.slice(0, 100_000), compressible.slice(100_000))
    tables.compact()
    assert tables.ids() == list(range(300_000))
    assert max(seen) < 2 << 20


def test_empty_table_keeps_columns(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.publish(known(), rows(), rows())
    tables.compact()
    (file,) = tables.files()
    assert pq.read_schema(file).names == ["id", "note"]


def test_history_is_compacted_and_stream_is_selectable(tmp_path: Path) -> None:
    """The history is compacted too, and the stream can be selected."""
    tables = Tables(tmp_path)
    for n in range(3):
        tables.publish(known(method="append-dedup", key_properties=("id",)), rows(n))
        tables.publish(
            known(method="append-dedup", key_properties=("id",)), rows(n), table="raw/s__history"
        )
        tables.publish(known("other"), rows(n), table="raw/other")
    assert [done.table for done in tables.compact("s")] == ["raw/s", "raw/s__history"]
    assert len(tables.files("raw/other")) == 3
    assert [done.table for done in tables.compact()] == ["raw/other"]
    for table in ("raw/s", "raw/s__history", "raw/other"):
        assert (len(tables.files(table)), tables.ids(table)) == (1, [0, 1, 2])
    with pytest.raises(ConfigurationError, match=r"LAKE-054 .*test"):
        tables.compact("none")


def test_files_stay_in_their_hive_folders(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    columns = {**COLUMNS, "day": "string"}
    for n in range(6):
        tables.publish(known(columns=columns), rows(n), partition=f"day={n % 2}")
    tables.compact()
    assert [path.parent.name for path in tables.files()] == ["day=0", "day=1"]
    query = (
        f"SELECT day, list(id ORDER BY id) FROM read_parquet('{tmp_path}/raw/s/**/*.parquet') "
        "GROUP BY ALL ORDER BY 1"
    )
    with duckdb.connect() as connection:
        assert connection.sql(query).fetchall() == [(0, [0, 2, 4]), (1, [1, 3, 5])]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["append-only", "upsert"])
@pytest.mark.parametrize("key", [("id",), ("id", "day"), ()])
def test_partitions_are_compacted_separately(
    tmp_path: Path, method: str, key: tuple[str, ...]
) -> None:
    """Files of each partition are joined across the files of others, in every kind of table."""
    tables = Tables(tmp_path)
    record = known(method=method, key_properties=key, columns={**COLUMNS, "day": "string"})
    for n in range(6):
        tables.publish(record, rows(n), partition=f"day={n % 2}")
    tables.compact()
    assert len(tables.files()) == 2
    tables.publish(record, rows(7), rows(8), partition="day=1")
    tables.compact()
    assert len(tables.files()) == 2


def test_compact_adds_missing_columns_refuses_unknown(
    tmp_path: Path,
) -> None:
    """Files that lack columns get them; a file with an unknown column is refused."""
    tables = Tables(tmp_path)
    columns = {"id": "bigint", "point": "struct<x:bigint,y:bigint>"}
    older = pa.table({"id": pa.array([1], pa.int32())})
    inner = pa.table({"id": [2], "point": [{"x": 1}]})
    tables.publish(known(columns=columns), older, inner)
    tables.compact()
    (file,) = tables.files()
    assert pq.ParquetFile(file).read().to_pylist() == [
        {"id": 1, "point": None},
        {"id": 2, "point": {"x": 1, "y": None}},
    ]
    tables.publish(known(columns=columns), pa.table({"id": [3], "point": [{"x": 1, "z": 2}]}))
    before = tables.files()
    with pytest.raises(StorageError, match=r"LAKE-073 .*point\.z"):
        tables.compact()
    assert tables.files() == before
    assert tables.storage.list(".dataspoc/staging") == []


def test_other_pipelines_tables_are_not_compacted(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.publish(known(), rows(1), rows(2))
    other = open_run(tables.storage, Layout("other"))
    config = {"bucket": str(tmp_path), "pipeline": "other"}
    assert compact(other, TargetSettings.from_config(config)) == ()
    assert len(tables.files()) == 2


RUNS = [
    [(1, "a"), (2, "a"), (3, "a")],
    [(1, "b"), (4, "b")],
    [(2, "large"), (1, "large")],
    [(3, "c"), (3, "d")],
    [(4, "e")],
]
LATEST = [(1, "large"), (2, "large"), (3, "d"), (4, "f")]


def latest(lake: Lake, capsys: Any) -> list[tuple[Any, ...]]:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    capsys.readouterr()
    assert command(["view", "s", "--engine", "duckdb", "--config", str(config)]) == 0
    with duckdb.connect() as connection:
        return sorted(
            connection.sql(f"SELECT id, note FROM ({capsys.readouterr().out})").fetchall()
        )


def test_last_received_row_wins_after_compaction(spark: Any, tmp_path: Path, capsys: Any) -> None:
    """After a compaction, the last received row still wins in views and upserts."""
    lake = Lake(tmp_path / "lake")
    message = schema("s", {"id": INT, "note": TEXT, "ballast": TEXT}, ("id",))
    for each in RUNS:
        ballast = os.urandom(LARGE).hex() if each[0][1] == "large" else ""
        lake.load(message, *(record("s", id=id, note=note, ballast=ballast) for id, note in each))
    before = lake.rows("s")
    wanted = [*LATEST[:3], (4, "e")]
    assert latest(lake, capsys) == wanted
    done = Tables(lake.folder).compact()
    assert [(each.retired, each.published) for each in done] == [(4, 2)]
    assert lake.rows("s") == before
    assert len(seen_by_all(spark, tmp_path / "lake/raw/s")[1]) == len(before)
    assert latest(lake, capsys) == wanted
    newer = [record("s", id=id, note=note, ballast="") for id, note in ((4, "f"), (5, "g"))]
    lake.load(message, *newer, load_method="upsert")
    assert lake.rows("s", "id, note") == [*LATEST, (5, "g")]
    Tables(lake.folder).compact(target_file_mb=8)
    lake.load(message, record("s", id=5, note="h", ballast=""), load_method="upsert")
    assert lake.rows("s", "id, note") == [*LATEST, (5, "h")]
