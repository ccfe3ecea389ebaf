"""Full runs over append-only tables, and runs of a part of the streams, as the first STATE
announces them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from target.loading import JSON, Lake, record, schema

ID = {"id": {"type": ["integer", "null"]}}
BY_KEY = {"x-replication-method": "INCREMENTAL", "x-extent": "full"}
LISTED = {"x-replication-method": "INCREMENTAL", "x-load-method": None}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    lake.load(*run([1, 2], "first", {"a": {"at": 2}, "b": {"at": 7}}))
    return lake


def run(ids: list[int], start: str, bookmarks: JSON, **opening: Any) -> list[JSON]:
    """A run of stream `a`."""
    last = {"bookmarks": bookmarks}
    return [
        {"type": "STATE", "value": {}, "final": False, "start": start, **opening},
        schema("a", ID, **BY_KEY),
        *(record("a", id=id) for id in ids),
        {"type": "STATE", "value": last, "final": True},
    ]


def again(how: str, **annotations: Any) -> JSON:
    return {"again": {"how": how, "streams": {"a": {**LISTED, **annotations}}}}


@pytest.mark.parametrize(
    ("how", "kept"), [("replace", [3]), ("append", [1, 2, 3]), ("unasked", [1, 2, 3])]
)
def test_full_run_replaces_append_only_only_on_request(
    lake: Lake, how: str, kept: list[int]
) -> None:
    """A full run replaces an append-only table only on request."""
    lake.load(*run([3], "full", {"a": {"at": 3}}, **again(how)))
    assert lake.rows("a", "id") == [(id,) for id in kept]
    # It is append-only as before.
    lake.load(*run([4], "full", {"a": {"at": 4}}, **again("append")))
    assert lake.rows("a", "id") == [(id,) for id in [*kept, 4]]


def test_empty_full_run_empties_replaced_table(lake: Lake) -> None:
    lake.load(*run([], "full", {}, **again("replace")))
    assert lake.rows("a", "id") == []


def test_unconfirmed_full_run_changes_nothing(lake: Lake) -> None:
    """A full run over an append-only table needs --replace or --append-again."""
    before = lake.files(), lake.state()
    with pytest.raises(ConfigurationError, match=r"LAKE-045 .*--full.*--replace.*--append-again"):
        lake.load(*run([3], "full", {"a": {"at": 3}}, **again("ask")))
    assert (lake.files(), lake.state()) == before
    # A table that is not append-only, or not there yet, has nothing to ask for.
    lake.load(*run([3], "full", {"a": {"at": 3}}, **again("ask", **{"x-load-method": "overwrite"})))
    lake.load(*run([], "full", {}, again={"how": "ask", "streams": {"new": LISTED}}))


def test_full_refresh_replaces_append_only_tables(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full refresh replaces append-only tables that are read incrementally."""
    monkeypatch.setenv("MELTANO_LOADER_NAME", "target-spark-lake")
    monkeypatch.setenv("MELTANO_RUN_FULL_REFRESH", "true")
    lake.load(*run([3], "full", {"a": {"at": 3}}, **again("unasked")))
    assert lake.rows("a", "id") == [(3,)]
    assert lake.state() == {"bookmarks": {"a": {"at": 3}, "b": {"at": 7}}}


def test_partial_run_keeps_bookmarks_of_other_streams(lake: Lake) -> None:
    """A run of some streams without a state keeps the bookmarks of the others."""
    lake.load(*run([3], "full", {"a": {"at": 3}}, part=True))
    assert lake.state() == {"bookmarks": {"a": {"at": 3}, "b": {"at": 7}}}


def test_renamed_stream_is_replaced(lake: Lake) -> None:
    maps = {"stream_maps": {"a": {"__alias__": "c"}}}
    lake.load(*run([1], "full", {}), **maps)
    lake.load(*run([2], "full", {}, **again("replace")), **maps)
    assert lake.rows("c", "id") == [(2,)]
