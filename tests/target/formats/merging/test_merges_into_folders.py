"""Current rows of tables in hive folders: each is in the folder of its newest values alone, and
found there again.
"""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from singer_spark.errors import RecordError
from target.loading import Lake
from target.table.hive_folders import (
    DATE,
    INT,
    NAIVE,
    TEXT,
    collected,
    folders,
    in_order,
    lake,
    load,
    seen,
)
from target_spark_lake.ops.spark_lake import command

__all__ = ["lake"]


@pytest.mark.parametrize("method", ["append-dedup", "overwrite-delete-stale"])
def test_merged_row_is_only_in_its_newest_partition(spark: Any, lake: Lake, method: str) -> None:
    """A merged row is only in the partition of its newest values."""

    def run(*rows: tuple[int, str | None, str]) -> None:
        extent = {"x-extent": "full", "x-replication-method": "FULL_TABLE"}
        values = [{"id": n, "c": c, "t": f"{day}T00:00:00"} for n, c, day in rows]
        properties = {"id": INT, "c": TEXT, "t": NAIVE}
        options = {"load_method": method}
        load(
            lake,
            ["c", "day(t)"],
            properties,
            values,
            keys=("id",),
            options=options,
            annotations=extent,
        )

    run(
        (1, "007", "2026-01-01"),
        (2, "a/b", "2026-01-01"),
        (3, None, "2026-01-02"),
        (4, "x", "2026-01-01"),
    )
    run(
        (1, "7", "2026-01-01"),
        (2, "a/b", "2026-01-03"),
        (3, "c", "2026-01-02"),
        (1, "8", "2026-01-01"),
        (5, "x", "2026-01-01"),
    )
    rows = [(1, "8"), (2, "a/b"), (3, "c"), (5, "x")]
    left = [] if method == "overwrite-delete-stale" else [(4, "x")]
    said = {"c": pa.string(), "t_day": pa.date32()}
    assert seen(spark, lake.folder / "raw/s", "id, c", said) == in_order([*rows, *left])
    expected = {
        "c=8/t_day=2026-01-01",
        "c=a%2Fb/t_day=2026-01-03",
        "c=c/t_day=2026-01-02",
        "c=x/t_day=2026-01-01",
    }
    assert folders(lake) == expected
    if method == "append-dedup":
        versions = seen(spark, lake.folder / "raw/s__history", "id, c", said)
        assert len(versions) == 9
        assert (1, "007") in versions


def test_merge_matches_key_in_partition_columns(spark: Any, lake: Lake) -> None:
    """Merges and deletes find rows by key columns that exist only in folder names."""
    options, properties = {"load_method": "upsert"}, {"tenant": TEXT, "id": INT, "note": TEXT}
    for note in ("old", "new"):
        rows = [
            {"tenant": tenant, "id": n, "note": note} for tenant in ("a=b", "007") for n in (1, 2)
        ]
        load(lake, ["tenant", "id"], properties, rows, keys=("tenant", "id"), options=options)
    found = seen(
        spark, lake.folder / "raw/s", "tenant, id, note", {"tenant": pa.string(), "id": pa.int64()}
    )
    assert found == in_order((tenant, n, "new") for tenant in ("a=b", "007") for n in (1, 2))
    gone = {"tenant": "007", "id": 1, "_sdc_deleted_at": "2026-01-02T03:04:05Z"}
    load(
        lake,
        ["tenant", "id"],
        properties,
        [gone],
        keys=("tenant", "id"),
        options={**options, "hard_delete": True},
    )
    assert len(folders(lake)) == 3


def test_unencodable_partition_value_fails_merge(lake: Lake) -> None:
    """The files of the table stay unchanged."""
    options = {"load_method": "upsert"}
    load(lake, ["c"], {"id": INT, "c": TEXT}, [{"id": 1, "c": "a"}], keys=("id",), options=options)
    before = lake.files()
    with pytest.raises(RecordError, match=r"LAKE-026 .*c"):
        load(
            lake, ["c"], {"id": INT, "c": TEXT}, [{"id": 1, "c": ""}], keys=("id",), options=options
        )
    assert lake.files() == before


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_partitioned_table_view_has_exact_values(
    spark: Any, lake: Lake, capsys: Any, tmp_path: Path, engine: str
) -> None:
    texts = ["007", "a/b+c %", None, "7", "é=\\"]
    properties = {"id": INT, "c": TEXT, "d": DATE, "clock": INT}
    rows = [{"id": n, "c": c, "d": "2026-11-21", "clock": 1} for n, c in enumerate(texts)]
    moved = [{"id": 0, "c": "008", "d": None, "clock": 2}]
    load(lake, ["c", "d"], properties, [*rows, *moved], keys=("id",), options={"cursor": "clock"})
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    capsys.readouterr()
    assert command(["view", "s", "--config", str(config), "--engine", engine]) == 0
    sql = f"SELECT id, c, d FROM ({capsys.readouterr().out}) AS latest"
    day = date(2026, 11, 21)
    expected = [(0, "008", None), *((n, c, day) for n, c in enumerate(texts) if n)]
    if engine == "spark":
        assert [tuple(row) for row in collected(spark.sql(sql))] == expected
    else:
        with duckdb.connect() as connection:
            assert sorted(connection.sql(sql).fetchall()) == expected
