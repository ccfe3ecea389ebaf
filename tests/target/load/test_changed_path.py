"""A stream whose table is to lie elsewhere: never a new table that begins in the middle."""

from __future__ import annotations

import pytest

from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.store.storage import Storage
from target.loading import JSON, Lake, record, schema
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.ops import state

pytestmark = pytest.mark.usefixtures("without_jvm")
ID = {"id": {"type": "integer"}}
ELSEWHERE = [{"path": "other"}, {"stream_options": {"s": {"path": "other"}}}]


def run(lake: Lake, number: int, extent: str | None = "delta", **settings: object) -> None:
    """A run that brings one row, of a tap that keeps a bookmark of it."""
    said = {"x-extent": extent} if extent else {}
    last: JSON = {"type": "STATE", "value": {"bookmarks": {"s": {"replication_key_value": number}}}}
    lake.load(
        *lake.announced([schema("s", ID, ("id",), **said), record("s", id=number), last]),
        **settings,
    )


def held(lake: Lake, folder: str) -> list[str]:
    return sorted(map(str, (lake.folder / folder).rglob("*.parquet")))


@pytest.mark.parametrize("settings", ELSEWHERE)
# Another tap does not say; a bookmark of the stream does.
@pytest.mark.parametrize("extent", ["delta", None])
def test_delta_does_not_start_a_table_at_a_new_path(
    tmp_path, extent: str | None, settings: JSON
) -> None:
    """A delta does not start a table while the stream has one at another path."""
    lake = Lake(tmp_path / "lake")
    run(lake, 1, extent)
    with pytest.raises(
        ConfigurationError, match=r"LAKE-052 .*raw/s.*other/s.*state reset.*--stream"
    ):
        run(lake, 2, extent, **settings)
    assert lake.state()["bookmarks"]["s"] == {"replication_key_value": 1}
    assert held(lake, "other") == []
    state.reset(open_run(Storage(str(lake.folder), {}), Layout("test"), command="state reset"), "s")
    run(lake, 2, **settings)
    run(lake, 3, **settings)
    assert len(held(lake, "other")) == 2


def test_damaged_table_record_blocks_a_new_path(tmp_path) -> None:
    """A delta starts no table at a new path while the old table's record is damaged."""
    lake = Lake(tmp_path / "lake")
    run(lake, 1)
    table = lake.folder / ".dataspoc/tables/raw/s.json"
    table.write_text("{")
    with pytest.raises(
        StorageError,
        match=r"LAKE-052 .*raw/s.*raw/s\.json",
    ):
        run(lake, 2, path="other")
    assert held(lake, "other") == []
    # Another stream's table is no matter of this one.
    table.rename(table.with_name("t.json"))
    run(lake, 2, path="other")
    assert len(held(lake, "other")) == 1


def test_full_stream_starts_table_at_any_path(tmp_path) -> None:
    lake = Lake(tmp_path / "lake")
    run(lake, 1)
    run(lake, 2, "full", path="other")
    assert len(held(lake, "other")) == 1


def test_stream_without_table_starts_at_bookmark(tmp_path) -> None:
    lake = Lake(tmp_path / "lake")
    run(lake, 1)
    more: JSON = {"type": "STATE", "value": {"bookmarks": {"t": {"replication_key_value": 7}}}}
    for number in (1, 2):
        delta = schema("t", ID, ("id",), **{"x-extent": "delta"})
        lake.load(*lake.announced([delta, *([record("t", id=8)] if number == 2 else []), more]))
    assert lake.rows("t", "id") == [(8,)]
