"""The load methods that hold current rows: one row for each key, whatever comes before, beside or
in another shape.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError, ProtocolError
from target.formats.merging.keyed_items import (
    DELETED,
    INT,
    ITEM,
    TEXT,
    files_and_a_log,
    item,
    items,
    lake,
)
from target.loading import Lake, record, schema

__all__ = ["lake"]


def test_cursor_based_sync_example(lake: Lake) -> None:
    """Appending keeps all five versions; the other methods keep one row per name."""
    people = {"name": TEXT, "deceased": {"type": ["boolean", "null"]}, "updated_at": INT}
    first = [
        ("Louis XVI", False, 1754),
        ("Marie Antoinette", False, 1755),
        ("Louis XVII", False, 1785),
    ]
    second = [("Louis XVI", True, 1793), ("Marie Antoinette", True, 1793)]
    for rows in (first, second):
        messages = []
        for stream, method in (
            ("all", "append-only"),
            ("latest", "upsert"),
            ("both", "append-dedup"),
        ):
            message = schema(stream, people, ("name",), **{"x-load-method": method})
            messages.append({**message, "bookmark_properties": ["updated_at"]})
            messages += [
                record(stream, name=name, deceased=dead, updated_at=year)
                for name, dead, year in rows
            ]
        lake.load(*messages)
    columns = "name, deceased, updated_at"
    every_version = sorted(first + second)
    newest = [
        ("Louis XVI", True, 1793),
        ("Louis XVII", False, 1785),
        ("Marie Antoinette", True, 1793),
    ]
    assert lake.rows("all", columns) == every_version
    assert lake.rows("latest", columns) == newest
    assert lake.rows("both", columns) == newest
    assert lake.rows("both__history", columns) == every_version


def test_stream_option_sets_composite_key(lake: Lake) -> None:
    options = {"s": {"key_properties": ["name", "id"], "load_method": "upsert"}}
    lake.load(items(), item(1, 1, "a"), item(1, 1, "b"), item(2, 1, "a"), stream_options=options)
    lake.load(items(), item(1, 2, "b"), item(2, 2, "b"), stream_options=options)
    assert lake.rows("s", "id, clock, name") == [(1, 1, "a"), (1, 2, "b"), (2, 1, "a"), (2, 2, "b")]


MOMENT_OR_TEXT = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": ["string", "null"]}]
}


@pytest.mark.parametrize("moment", [MOMENT_OR_TEXT, {"type": ["integer", "string"]}])
def test_mixed_type_cursor_logs_warning(lake: Lake, caplog: Any, moment: dict[str, Any]) -> None:
    """A cursor with values of several types compares as text."""
    message = schema("t", {"id": INT, "u": moment}, ("id",), **{"x-load-method": "upsert"})
    lake.load({**message, "bookmark_properties": ["u"]}, record("t", id=1, u="9"))
    assert "its cursor u may hold values of several kinds" in caplog.text
    caplog.clear()
    lake.load(items(), item(1, 1, "a"))
    assert "its cursor" not in caplog.text


def test_second_schema_midstream_keeps_all_records(lake: Lake) -> None:
    """A second schema in mid-stream keeps all records of the run."""
    full = items("overwrite-delete-stale", **{"x-extent": "full"})
    wider = json.loads(json.dumps(full))
    wider["schema"]["properties"]["more"] = TEXT
    lake.load(
        full,
        item(1, 1, "a"),
        full,
        item(2, 1, "a"),
        wider,
        {**record("s", id=1, clock=2, name="b", more="m")},
    )
    assert lake.rows("s", "id, name, more") == [(1, "b", "m"), (2, "a", None)]
    other_key = {**full, "key_properties": ["name"]}
    with pytest.raises(ProtocolError, match="LAKE-002"):
        lake.load(full, item(1, 1, "a"), other_key)


@files_and_a_log
def test_upsert_deduplicates_an_append_only_table(
    lake: Lake,
) -> None:
    """The first upsert into an append-only table leaves one row for each key."""
    lake.load(items("append-only"), item(1, 1, "a"), item(None, 1, "no key"), item(2, 5, "a"))
    lake.load(items("append-only"), item(1, 3, "b"), item(2, 5, "b"), item(None, 1, "no key"))
    lake.load(items("upsert"), item(3, 1, "c"), item(1, 2, "late"))
    keyless = [(None, "no key"), (None, "no key")]
    assert lake.rows("s", "id, name") == sorted([(1, "b"), (2, "b"), (3, "c")]) + keyless
    by_name = {**items("upsert"), "key_properties": ["clock"]}
    lake.load(by_name, item(9, 1, "d"))
    assert lake.rows("s", "clock, name") == [(1, "d"), (3, "b"), (5, "b")]


def test_removed_columns_survive_rewrites(lake: Lake) -> None:
    """Columns no longer in the schema keep their values in rewritten files."""

    def load(properties: dict, *records: dict) -> None:
        message = schema("s", {"id": INT, **properties}, ("id",), **{"x-load-method": "upsert"})
        lake.load(message, *records)

    odd = {"type": "object", "properties": {"a:b": INT, "c d": TEXT}}
    old = {"old": odd, "amount": {"type": ["number", "null"], "multipleOf": 0.01}}
    load(old, *(record("s", id=n, old={"a:b": n, "c d": "x"}, amount=n / 4) for n in range(3)))
    load({"new": TEXT}, record("s", id=1, new="n"))
    assert lake.rows("s", 'id, old."a:b", amount::double, new') == [
        *((0, 0, 0.0, None), (1, None, None, "n"), (2, 2, 0.5, None)),
    ]


@files_and_a_log
def test_append_dedup_keeps_history_in_own_table(
    lake: Lake,
) -> None:
    """Deduplicated appends keep the history in its own table and count each record once."""
    lake.load(items("append-dedup"), item(1, 1, "a"), item(1, 2, "b"))
    gone = record("s", id=1, clock=3, _sdc_deleted_at=DELETED)
    lake.load(items("append-dedup"), item(1, 1, "late"), gone, hard_delete=True)
    assert lake.rows("s") == []
    assert lake.rows("s__history", "clock, name") == [(1, "a"), (1, "late"), (2, "b"), (3, None)]
    newest = max((lake.folder / ".dataspoc/runs/test").iterdir())
    assert json.loads(newest.read_text())["streams"]["s"]["records"] == 2
    with pytest.raises(ConfigurationError, match="s__history"):
        lake.load(schema("s__history", ITEM), record("s__history", id=1))
