"""Bookmarks hold a constant amount, and what they hold they give back."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.core.bookmark import BUCKETS, Bookmark, Boundary, Since, TransactionSnapshot
from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.errors import StateError

KEY = KeyValue.parse(1, KeyType.INTEGER)
hashes = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")


@given(st.lists(hashes, max_size=50))
def test_boundary_keeps_duplicate_hashes(group: list[str]) -> None:
    boundary = Boundary.from_json(json.loads(json.dumps(Boundary.of(group).to_json())), KEY)
    assert Counter(boundary.hashes) == Counter(group)
    assert boundary.rows == len(group)


def test_huge_boundary_stays_small() -> None:
    boundary = Boundary.of_buckets(10**9, [number * 2654435761**7 for number in range(BUCKETS)])
    assert len(json.dumps(boundary.to_json())) < 4000
    assert Boundary.from_json(boundary.to_json(), KEY) == boundary


def test_window_survives_json() -> None:
    """It keeps the raw text of its lowest key, which the database compares."""
    value = KeyValue.parse("2025-01-20T15:30:00", KeyType.DATETIME)
    since = Since(KeyValue.parse("2025-01-20T15:25:00", KeyType.DATETIME), "2025-01-20 15:25:00")
    boundary = replace(Boundary.of(["00" * 8, "11" * 8]), since=since)
    entry = json.loads(json.dumps(Bookmark("d", value, boundary).to_json()))
    found = Bookmark.from_json("s", entry, "d", KeyType.DATETIME, aware=False)
    assert found is not None
    assert found.boundary == boundary


def test_bookmark_survives_json() -> None:
    value = KeyValue.parse("2025-01-20T15:30:00", KeyType.TIMESTAMP, aware=True)
    bookmark = Bookmark("updated_at", value, Boundary.of(["00" * 8]))
    entry = json.loads(json.dumps(bookmark.to_json()))
    assert entry["replication_key_value"] == "2025-01-20T15:30:00.000000Z"
    assert Bookmark.from_json("s", entry, "updated_at", KeyType.TIMESTAMP, aware=True) == bookmark


def test_two_documented_fields_make_valid_bookmark() -> None:
    entry = {"replication_key": "id", "replication_key_value": 42}
    bookmark = Bookmark.from_json("s", entry, "id", KeyType.INTEGER, aware=False)
    assert bookmark == Bookmark("id", KeyValue.parse(42, KeyType.INTEGER))


def test_entry_without_value_is_no_bookmark() -> None:
    assert Bookmark.from_json("s", {}, "id", KeyType.INTEGER, aware=False) is None


def test_edited_value_invalidates_raw_text() -> None:
    entry = Bookmark(
        "d", KeyValue.parse("2025-01-20", KeyType.DATETIME), Boundary.of(["00" * 8]), "2025-01-20"
    ).to_json()
    assert Bookmark.from_json("s", entry, "d", KeyType.DATETIME, aware=False).raw == "2025-01-20"
    entry["replication_key_value"] = "2024-01-01T00:00:00"
    edited = Bookmark.from_json("s", entry, "d", KeyType.DATETIME, aware=False)
    assert (edited.raw, edited.boundary) == (None, None)


def test_edited_value_forgets_its_boundary() -> None:
    """A value edited on its own forgets what was sent at the old one."""
    seen = TransactionSnapshot("7", 740, 745)
    entry = Bookmark(
        "d", KeyValue.parse(9, KeyType.INTEGER), Boundary.of(["00" * 8]), None, seen
    ).to_json()
    for value, snapshot in ((8, seen), (10, None)):
        edited = Bookmark.from_json(
            "s", {**entry, "replication_key_value": value}, "d", KeyType.INTEGER, aware=False
        )
        assert edited is not None
        assert (edited.boundary, edited.snapshot) == (None, snapshot)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"replication_key": "other", "replication_key_value": 1}, "other"),
        ({"replication_key": "id", "replication_key_value": "abc"}, "not an integer"),
        (
            {
                "replication_key": "id",
                "replication_key_value": 1,
                "boundary": {"format_version": 9},
            },
            "format version",
        ),
        (
            {
                "replication_key": "id",
                "replication_key_value": 1,
                "boundary": {"format_version": 1, "rows": 3},
            },
            "fingerprints",
        ),
        (
            {
                "replication_key": "id",
                "replication_key_value": 1,
                "boundary": {"format_version": 1, "rows": 0},
            },
            "which value it belongs to",
        ),
    ],
)
def test_unusable_bookmark_names_its_stream(entry: dict[str, object], says: str) -> None:
    with pytest.raises(StateError, match=says) as caught:
        Bookmark.from_json("public-orders", entry, "id", KeyType.INTEGER, aware=False)
    assert "public-orders" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "key_type", "aware"),
    [
        (42, KeyType.STRING, False),
        (42, KeyType.UUID, False),
        ("abc", KeyType.INTEGER, False),
        ("1.5", KeyType.INTEGER, False),
        ("2025-01-20T15:30:00.000000", KeyType.INTEGER, False),
        (42, KeyType.TIMESTAMP, True),
        ("2025-01-20T15:30:00.000000Z", KeyType.DATETIME, False),
        ("2025-01-20T15:30:00.000000", KeyType.TIMESTAMP, True),
    ],
)
def test_changed_key_type_is_refused_by_name(value: object, key_type: KeyType, aware: bool) -> None:
    """A bookmark of a key whose type has changed is refused by name."""
    saved = {
        "replication_key": "k",
        "replication_key_value": value,
        "boundary": {"format_version": 1, "rows": 0, "value": value},
    }
    with pytest.raises(StateError, match=r"RUN-032 .*public-t.*--full"):
        Bookmark.from_json("public-t", saved, "k", key_type, aware=aware)


@pytest.mark.parametrize(
    ("value", "key_type", "aware", "read"),
    [
        ("2025-01-20", KeyType.TIMESTAMP, True, "2025-01-20T00:00:00.000000Z"),
        ("2025-01-20T15:30:00.000000Z", KeyType.DATE, False, "2025-01-20"),
        (42, KeyType.DECIMAL, False, "42"),
        ("2025-01-20 15:30:00", KeyType.TIMESTAMP, True, "2025-01-20T15:30:00.000000Z"),
    ],
)
def test_lossless_key_type_change_is_accepted(
    value: object, key_type: KeyType, aware: bool, read: str
) -> None:
    saved = {
        "replication_key": "k",
        "replication_key_value": value,
        "boundary": {"format_version": 1, "rows": 0, "value": value},
    }
    found = Bookmark.from_json("public-t", saved, "k", key_type, aware=aware)
    assert found is not None
    assert found.value.text == read


def test_handwritten_value_may_omit_the_zone() -> None:
    """A value written by hand may omit the time zone."""
    entry = {"replication_key_value": "2025-01-20T15:30:00"}
    found = Bookmark.from_json("s", entry, "k", KeyType.TIMESTAMP, aware=True)
    assert found is not None
    assert found.value.text == "2025-01-20T15:30:00.000000Z"
