"""How a merge rewrites files: unchanged row groups as they are, the others in bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from target.delta_lake import DeltaLake
from target.formats.merging.conftest import small_row_groups
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema
from target.table.test_stored_groups import chunks

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
UPSERT = schema(
    "s", {"id": INT, "tenant": TEXT, "note": TEXT}, ("id",), **{"x-load-method": "upsert"}
)
ROWS = 400


def load(lake: Lake, ids: Any, note: str, **settings: Any) -> None:
    rows = (record("s", id=id, tenant="ab"[id % 2], note=f"{note} {id}") for id in ids)
    lake.load(UPSERT, *rows, add_record_metadata=False, **{"engine": "local", **settings})


def files(lake: Lake) -> list[Path]:
    return sorted((lake.folder / "raw/s").rglob("*.parquet"))


def notes(lake: Lake) -> dict[int, str]:
    found = lake.rows("s", "id, note")
    assert len(found) == len(dict(found))
    return dict(found)


def expected(changed: set[int]) -> dict[int, str]:
    return {id: f"{'second' if id in changed else 'first'} {id}" for id in range(ROWS)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "engine"),
    [(Lake, "local"), (DeltaLake, "local"), (IcebergLake, "local"), (Lake, "spark")],
)
def test_untouched_row_groups_keep_their_bytes(
    kind: Any, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the row groups with a changed row are decoded, in several merges one after another, and
    by Spark.
    """
    small_row_groups(monkeypatch)
    lake = kind(tmp_path / "lake")
    load(lake, range(ROWS), "first")
    changed: set[int] = set()
    for ids in ({200, 201, 202}, {5, 390}, {200, 7}):
        before, old = files(lake), {each for path in files(lake) for each in chunks(path)}
        load(lake, ids, "second", engine=engine, staging="local")
        changed |= ids
        assert notes(lake) == expected(changed)
        new = [path for path in files(lake) if path not in before]
        groups = sum(pq.read_metadata(path).num_row_groups for path in new)
        found = [each for path in new for each in chunks(path)]
        copied = groups * sum(each in old for each in found) // len(found)
        assert copied >= groups - len(ids) - 2 > 5
    if kind is DeltaLake:
        for about in pa.table(lake.table("s").get_add_actions(flatten=True)).to_pylist():
            bounds = pc.min_max(pq.read_table(lake.folder / "raw/s" / about["path"])["id"]).as_py()
            assert bounds == {"min": about["min.id"], "max": about["max.id"]}


@pytest.mark.parametrize(
    ("kind", "by"), [(Lake, ["tenant"]), (DeltaLake, ["tenant"]), (IcebergLake, ["bucket(id, 2)"])]
)
def test_untouched_row_groups_stay_in_their_folder(
    kind: Any, by: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that came are beside them in one file, so that merges don't add files to a
    folder.
    """
    small_row_groups(monkeypatch)
    lake = kind(tmp_path / "lake")
    options = {"stream_options": {"s": {"partition_by": by}}}
    load(lake, range(ROWS), "first", **options)
    before = files(lake)
    old = {each for path in before for each in chunks(path)}
    load(lake, range(4), "second", **options)
    if kind is not Lake:
        assert notes(lake) == expected(set(range(4)))
    new = [path for path in files(lake) if path not in before]
    assert new
    current = [path for path in files(lake) if path in new or kind is Lake]
    assert [path.parent for path in current] == [path.parent for path in before]
    found = pa.concat_tables(
        [pq.ParquetFile(path).read(["id", "note"]) for path in current]
    ).to_pylist()
    assert len(found) == ROWS
    assert {each["id"]: each["note"] for each in found} == expected(set(range(4)))
    for path in new:
        assert any(each in old for each in chunks(path))


@pytest.mark.slow
def test_memory_does_not_grow_with_row_group_size(tmp_path: Path) -> None:
    """A file with a single large row group is rewritten in pieces."""
    lake, rows = Lake(tmp_path / "lake"), 1_500_000
    load(lake, range(10), "first")
    [path] = files(lake)
    ids = pa.array(range(rows), pa.int64())
    note = pc.binary_join_element_wise(pc.cast(ids, pa.string()), pa.scalar("x" * 200), "")
    table = pa.table(
        {"id": ids, "tenant": pa.repeat("a", rows), "note": note}, schema=pq.read_schema(path)
    )
    pq.write_table(table, path, row_group_size=rows, use_dictionary=False, compression="zstd")
    size = table.nbytes
    del ids, note, table
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        load(lake, range(0, rows, rows // 10), "second")
    finally:
        pa.set_memory_pool(before)
    assert lake.rows(
        "s", "count(*), count(DISTINCT id), count(*) FILTER (note LIKE 'second%')"
    ) == [(rows, rows, 10)]
    assert 0 < pool.max_memory() < 200_000_000
    assert size > 300_000_000
