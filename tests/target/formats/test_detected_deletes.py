"""Rows that are gone from the source: the target gets the keys that are there, and deletes the
others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from singer_spark.core.lake_type import Struct
from singer_spark.errors import ConfigurationError, ProtocolError, RecordError
from target.loading import Lake, record, schema
from target_spark_lake.formats.stream_load import PresentKeys

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "clock": INT, "name": TEXT}
DELETED = "2026-01-02T03:04:05Z"
MARKED = "id, name, _sdc_deleted_at is not null"


@pytest.fixture
def lake(spark: object, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def items(method: str = "upsert", keys: tuple[str, ...] = ("id",), **annotations: Any) -> dict:
    message = schema(
        "s", ITEM, keys, **{"x-load-method": method, "x-extent": "delta", **annotations}
    )
    return {**message, "bookmark_properties": ["clock"]}


def item(id: int, clock: int = 1, name: str = "a", **beside: Any) -> dict:
    return {**record("s", id=id, clock=clock, name=name), **beside}


def announced(keys: tuple[str, ...] = ("id",), of: str = "s") -> dict:
    return schema(f"{of}__keys", {key: ITEM[key] for key in keys}, keys, **{"x-keys-of": of})


def present(*ids: int) -> list[dict]:
    """The keys of a table whose key is its id."""
    return [announced(), *(record("s__keys", id=id) for id in ids)]


def test_rows_missing_in_source_are_removed(lake: Lake) -> None:
    lake.load(items(), *map(item, range(10)))
    # 3 is deleted, 11 came later than the records, 12 is new, 2 is changed.
    there = [id for id in range(13) if id != 3]
    lake.load(items(), item(2, 2, "b"), item(12), *present(*there), hard_delete=True)
    assert lake.rows("s", "id, name") == [
        (id, "b" if id == 2 else "a") for id in (0, 1, 2, 4, 5, 6, 7, 8, 9, 12)
    ]
    assert lake.tables() == ["s"]
    # Without a record too.
    lake.load(items(), *present(*range(1, 13)), hard_delete=True)
    assert lake.rows("s", "id") == [(id,) for id in (1, 2, 4, 5, 6, 7, 8, 9, 12)]


def test_soft_deleted_rows_keep_their_mark(lake: Lake) -> None:
    """Without hard_delete a missing row is marked once, until it comes back."""

    def load(*messages: dict) -> None:
        lake.load(items(), *messages)

    load(*map(item, range(10)))
    load(*present(*range(1, 10)))
    assert lake.rows("s", MARKED) == [(id, "a", id == 0) for id in range(10)]
    (first,) = lake.rows("s", "_sdc_deleted_at")[:1]
    load(*present(*range(2, 10)))
    assert lake.rows("s", MARKED) == [(id, "a", id < 2) for id in range(10)]
    assert lake.rows("s", "id, _sdc_deleted_at")[0] == (0, *first)
    # A row that comes back is a living one.
    load(item(0, 2, "b"), *present(0, *range(2, 10)))
    assert lake.rows("s", MARKED) == [(0, "b", False), *((id, "a", id == 1) for id in range(1, 10))]


def test_new_row_is_kept_and_late_row_counts_as_seen(
    lake: Lake,
) -> None:
    """A row of this run is kept until the next one, and a late older row counts as seen."""
    lake.load(items(), *(item(id, 5) for id in range(10)))
    lake.load(
        items(),
        item(20),
        item(3, 4, "late"),
        *present(*(id for id in range(10) if id != 3)),
        hard_delete=True,
    )
    assert lake.rows("s", "id, name") == [*((id, "a") for id in range(10)), (20, "a")]
    lake.load(items(), *present(*(id for id in range(10) if id != 3)), hard_delete=True)
    assert lake.rows("s", "id") == [(id,) for id in range(10) if id != 3]


def test_too_many_deletes_fail_before_commit(lake: Lake) -> None:
    """A run that would delete more rows than allowed fails before its commit."""
    lake.load(
        items(), *map(item, range(10)), {"type": "STATE", "value": {"at": 1}}, hard_delete=True
    )
    before = lake.files(), lake.rows("s"), lake.state()
    run = [items(), item(11, 2), *present(*range(3, 12)), {"type": "STATE", "value": {"at": 2}}]
    with pytest.raises(RecordError, match=r"LAKE-025 .*10.*30\.0"):
        lake.load(*run, hard_delete=True)
    assert (lake.files(), lake.rows("s"), lake.state()) == before
    lake.load(*run, hard_delete=True, max_deletes_percent=30)
    assert lake.rows("s", "id") == [(id,) for id in (*range(3, 10), 11)]


def test_marked_rows_do_not_count_toward_limit(lake: Lake) -> None:
    """This holds even if the first deletion adds the mark's column to the table."""
    lake.load(items(), *map(item, range(10)), add_record_metadata=False)
    for first in (2, 3):
        lake.load(items(), *present(*range(first, 10)), add_record_metadata=False)
    with pytest.raises(RecordError, match="LAKE-025"):
        lake.load(items(), *present(*range(5, 10)), add_record_metadata=False)
    assert [row[2] for row in lake.rows("s", MARKED)] == [True] * 3 + [False] * 7


def test_empty_source_needs_limit_of_100_percent(lake: Lake) -> None:
    """An empty source empties the table only with max_deletes_percent 100."""
    lake.load(items(), *map(item, range(10)))
    with pytest.raises(RecordError, match=r"LAKE-025 .*10.*10"):
        lake.load(items(), announced(), hard_delete=True, max_deletes_percent=99.9)
    lake.load(items(), announced(), hard_delete=True, max_deletes_percent=100)
    assert lake.rows("s") == []
    assert lake.types("s")["name"] == "VARCHAR"
    # A table that is empty, or is not there yet, loses nothing.
    lake.load(items(), announced(), hard_delete=True, max_deletes_percent=0)
    lake.load({**items(), "stream": "new"}, {**announced(of="new")}, record("new__keys", id=1))


@pytest.mark.parametrize(
    ("gone", "living", "limit"), [(0, 0, 0), (0, 5, 0), (2, 10, 20), (1, 200, 0.5), (5, 5, 100)]
)
def test_delete_limit_is_inclusive(gone: int, living: int, limit: float) -> None:
    keys = PresentKeys((), Struct(()), limit)
    keys.refuse_too_many("s", gone, living)
    if limit < 100:
        with pytest.raises(RecordError, match=r"LAKE-025 .*max_deletes_percent"):
            keys.refuse_too_many("s", gone + 1, living)


def test_composite_keys_are_compared_as_one(lake: Lake) -> None:
    keys = ("name", "id")
    rows = [(name, id) for name in "abcde" for id in range(4)]
    lake.load(items(keys=keys), *(item(id, 1, name) for name, id in rows))
    there = [row for row in rows if row not in (("a", 3), ("e", 0))]
    reported = [record("s__keys", id=id, name=name) for name, id in [*there, ("f", 3), ("a", 7)]]
    lake.load(items(keys=keys), announced(keys), *reported, hard_delete=True)
    assert lake.rows("s", "name, id") == there


def test_keys_match_values_as_stored(lake: Lake) -> None:
    """Covers 1.0 for an integer, and types that Arrow parses from strings."""
    properties = {
        "at": {"type": "string", "format": "date-time", "x-sql-datatype": "TIMESTAMP"},
        "price": {"type": "number", "x-sql-datatype": "DECIMAL(12,2)"},
        "n": {"type": "integer"},
    }
    message = schema("s", properties, tuple(properties), **{"x-load-method": "upsert"})
    rows = [{"at": f"2026-01-01T00:00:0{n}", "price": n / 4, "n": n} for n in range(10)]
    lake.load(message, *(record("s", **row) for row in rows))
    keys = {**message, "stream": "s__keys"}
    keys["schema"] = {**message["schema"], "x-keys-of": "s"}
    reported = [{**row, "at": row["at"] + ".000000", "n": row["n"] * 1.0} for row in rows[1:]]
    lake.load(message, keys, *(record("s__keys", **row) for row in reported), hard_delete=True)
    assert lake.rows("s", "n") == [(n,) for n in range(1, 10)]


def test_present_keys_match_a_widened_key(lake: Lake) -> None:
    """Keys match a table whose key was widened earlier or by this run."""

    def load(kind: str, *ids: int, there: range | None = None) -> None:
        message = schema(
            "s", {"id": {**INT, "x-sql-datatype": kind}}, ("id",), **{"x-load-method": "upsert"}
        )
        keys = [] if there is None else present(*there)
        lake.load(message, *(record("s", id=id) for id in ids), *keys, hard_delete=True)

    load("INTEGER", *range(10))
    load("BIGINT", 10, there=range(1, 11))
    load("INTEGER", there=range(2, 11))
    assert lake.rows("s", "id") == [(id,) for id in range(2, 11)]
    assert lake.types("s")["id"] == "BIGINT"


def test_only_files_with_deletes_are_rewritten(lake: Lake) -> None:
    for first in (0, 100, 200):
        lake.load(items(), *map(item, range(first, first + 10)))
    files = sorted((lake.folder / "raw/s").iterdir())
    there = [id for first in (0, 100, 200) for id in range(first, first + 10) if id != 105]
    lake.load(items(), *present(*there))
    journal = json.loads(max((lake.folder / ".dataspoc/runs/test").iterdir()).read_text())
    assert [Path(path).name for path in journal["retire"]] == [files[1].name]
    assert journal["streams"]["s"]["records"] == 0
    lake.load(items(), *present(*there))
    assert (
        json.loads(max((lake.folder / ".dataspoc/runs/test").iterdir()).read_text())["retire"] == []
    )


def test_append_dedup_history_keeps_every_version(lake: Lake) -> None:
    lake.load(items("append-dedup"), *map(item, range(10)))
    lake.load(items("append-dedup"), item(5, 2, "b"), *present(*range(1, 10)), hard_delete=True)
    assert lake.rows("s", "id, name") == [(id, "b" if id == 5 else "a") for id in range(1, 10)]
    assert lake.rows("s__history", "id, name") == sorted(
        [*((id, "a") for id in range(10)), (5, "b")]
    )


def test_combined_deletes_remove_each_row_once(
    lake: Lake,
) -> None:
    """Combined with stale rows, versions and deleted records, each row is deleted once."""
    full = items("overwrite-delete-stale", **{"x-extent": "full"})
    lake.load(full, *map(item, range(10)))
    # What a full run did not send goes anyhow, and is not a detected delete.
    lake.load(full, *map(item, range(5)), *present(*range(5)))
    assert lake.rows("s", "id") == [(id,) for id in range(5)]
    delta = items("overwrite-delete-stale")
    gone = record("s", id=1, clock=2, _sdc_deleted_at=DELETED)
    lake.load(delta, gone, *present(2, 3, 4), max_deletes_percent=20)
    assert lake.rows("s", "id, _sdc_deleted_at is not null") == [
        (0, True),
        (1, True),
        (2, False),
        (3, False),
        (4, False),
    ]


def test_append_only_table_loses_all_rows_of_a_key(lake: Lake) -> None:
    """A former append-only table loses a deleted key with all its rows."""
    lake.load(
        items("append-only"),
        *map(item, range(10)),
        item(0, 2, "b"),
        record("s", id=None, clock=1, name="no key"),
    )
    lake.load(items(), item(20), *present(*range(1, 10)), hard_delete=True)
    assert lake.rows("s", "id, name") == [
        *((id, "a") for id in range(1, 10)),
        (20, "a"),
        (None, "no key"),
    ]


def test_repeated_schema_changes_nothing(lake: Lake) -> None:
    lake.load(items(), *map(item, range(10)))
    again = [items(), announced()]
    lake.load(
        *again,
        item(10),
        *again,
        record("s__keys", id=1),
        *again,
        *present(*range(2, 11)),
        hard_delete=True,
    )
    assert lake.rows("s", "id") == [(id,) for id in range(1, 11)]


@pytest.mark.parametrize(
    ("messages", "error", "text"),
    [
        (
            [items("append-only"), announced()],
            ConfigurationError,
            "load_method append-only never removes a row",
        ),
        (
            [items(), announced(("name",))],
            ConfigurationError,
            "the source's keys as name, but the table's key is id",
        ),
        (
            [announced(), items()],
            ProtocolError,
            "s__keys: its SCHEMA says x-keys-of 's', but no such stream",
        ),
        ([items(), announced(), announced(of="s__keys")], ProtocolError, "but no such stream"),
        (
            [items(), announced(), {**announced(), "stream": "more"}],
            ProtocolError,
            "a second SCHEMA",
        ),
        (
            [items(), announced(), schema("s__keys", {"id": INT}, ("id",))],
            ProtocolError,
            "x-keys-of None",
        ),
        (
            [items(), *present(1, 2), record("s__keys", id=None)],
            RecordError,
            "s__keys: a record has NULL in its key id",
        ),
    ],
)
def test_unusable_keys_are_refused(
    lake: Lake, messages: list[dict], error: type[Exception], text: str
) -> None:
    """Keys that cannot be used are refused and change nothing."""
    with pytest.raises(error, match=text):
        lake.load(*messages, item(1))
    assert lake.files() == []


def test_overwrite_logs_that_keys_are_ignored(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    full = items("overwrite", **{"x-extent": "full"})
    lake.load(full, announced(), *map(item, range(5)), *present(1, 2))
    assert lake.rows("s", "id") == [(id,) for id in range(5)]
    assert "its keys are ignored: load_method overwrite" in caplog.text


def test_tap_death_among_keys_deletes_nothing(lake: Lake, checkpoints_at_once: None) -> None:
    """A tap that dies while sending keys deletes nothing; the next one resends them all."""
    lake.load(items(), *map(item, range(10)), hard_delete=True)
    state = {"type": "STATE", "value": {"bookmarks": {"s": 1}}}
    other = schema("other", {"id": INT})
    body = [
        items(),
        announced(),
        item(10, 2),
        state,
        *present(*range(1, 11))[1:],
        other,
        record("other", id=1),
        state,
    ]
    lines = lake.announced(body)
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lines[:9], hard_delete=True)
    assert len(lake.rows("s")) == 10
    checkpoint = lake.checkpoint()
    assert checkpoint is not None
    assert set(checkpoint.target["streams"]) == {"s"}
    # As our tap does: the records continue, the keys begin again.
    opening = {"type": "STATE", "final": False, "start": "resume", "value": checkpoint.state}
    rest = [
        items(),
        announced(),
        *present(*range(1, 11))[1:],
        other,
        record("other", id=1),
        {**state, "final": True},
    ]
    lake.load({**opening, "resume": checkpoint.resume}, *rest, hard_delete=True)
    assert lake.rows("s", "id") == [(id,) for id in range(1, 11)]
    assert [path for path in lake.files() if "/staging/" in path] == []


def test_stream_alias_applies_to_its_keys(lake: Lake) -> None:
    """A stream map that changes the key column is refused."""
    renamed = {"stream_maps": {"s": {"__alias__": "t", "name": "name + '!'"}}, "hard_delete": True}
    lake.load(items(), *map(item, range(10)), **renamed)
    lake.load(items(), *present(*range(1, 10)), **renamed)
    assert lake.rows("t", "id, name") == [(id, "a!") for id in range(1, 10)]
    assert lake.tables() == ["t"]
    with pytest.raises(ConfigurationError, match=r"LAKE-043 .*stream_maps"):
        lake.load(items(), *present(1), stream_maps={"s": {"id": "id + 1"}})
