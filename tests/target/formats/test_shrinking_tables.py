"""A stream that is sent in full with far fewer rows than its table has: with a limit, the run
fails before its commit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import JSON, Lake, record, schema, state
from target_spark_lake.formats.stream_load import ShrunkTableError, refuse_shrink

ID = {"id": {"type": ["integer", "null"]}}
METHODS = ("overwrite", "overwrite-delete-stale")


def whole(rows: int, method: str = "overwrite") -> list[JSON]:
    annotations = {
        "x-replication-method": "FULL_TABLE",
        "x-extent": "full",
        "x-load-method": method,
    }
    return [
        schema("t", ID, ("id",), **annotations),
        *(record("t", id=id) for id in range(rows)),
        state(rows=rows),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [Lake, DeltaLake, IcebergLake])
def test_shrunk_table_fails_before_commit(tmp_path: Path, kind: type[Lake], method: str) -> None:
    lake = kind(tmp_path / "lake")
    lake.load(*whole(10, method), max_shrink_percent=50)
    before = lake.files(), lake.state()
    for rows in (4, 0):
        with pytest.raises(ShrunkTableError, match=rf"LAKE-024 .*{rows}.*10"):
            lake.load(*whole(rows, method), max_shrink_percent=50)
        assert (lake.files(), lake.state()) == before
        assert lake.rows("t", "id") == [(id,) for id in range(10)]
    lake.load(*whole(5, method), max_shrink_percent=50)
    assert len(lake.rows("t", "id")) == 5
    lake.load(*whole(0, method))
    assert lake.rows("t", "id") == []
    # An empty table has nothing to lose.
    lake.load(*whole(0, method), max_shrink_percent=0)
    lake.load(*whole(1, method), max_shrink_percent=0)
    assert lake.rows("t", "id") == [(0,)]


def test_increments_are_not_concerned(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for method in ("append-only", "upsert"):
        delta = schema("d", ID, ("id",), **{"x-extent": "delta", "x-load-method": method})
        lake.load(delta, *(record("d", id=id) for id in range(5)), max_shrink_percent=0)
        lake.load(delta, record("d", id=9), max_shrink_percent=0)


@pytest.mark.parametrize(
    ("before", "after", "limit"), [(0, 0, 0), (5, 9, 0), (10, 8, 20), (7, 0, 100)]
)
def test_shrink_limit_is_inclusive(before: int, after: int, limit: float) -> None:
    refuse_shrink("t", before, after, limit)
    if limit < 100 and before > after:
        with pytest.raises(ShrunkTableError):
            refuse_shrink("t", before, after - 1, limit)


@pytest.mark.usefixtures("without_jvm", "checkpoints_at_once")
def test_next_run_reads_refused_table_again(tmp_path: Path) -> None:
    """Rows staged by the refused run are dropped, since the source may be complete again."""
    lake = Lake(tmp_path / "lake")
    lake.load(*lake.announced(whole(10)))
    few = lake.announced([*whole(1), state(more=1)])
    with pytest.raises(ShrunkTableError):
        lake.load_slowly(*few, max_shrink_percent=10)
    assert lake.checkpoint() is None
    assert not any("staging" in path for path in lake.files())
    lake.load(*lake.announced(whole(9)), max_shrink_percent=10)
    assert len(lake.rows("t", "id")) == 9
