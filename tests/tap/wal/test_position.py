"""Places in the log, what a snapshot shows, and the bookmark that holds both."""

from __future__ import annotations

import pytest

from singer_spark.errors import StateError
from tap_spark_jdbc.wal.change_log import LogBookmark, Moment, bookmarks_of, lsn_of, lsn_text


@pytest.mark.parametrize(
    ("text", "lsn"), [("0/0", 0), ("0/16B3748", 0x16B3748), ("A1/FF000000", 0xA1FF000000)]
)
def test_position_is_written_as_by_server(text: str, lsn: int) -> None:
    assert (lsn_of(text), lsn_text(lsn)) == (lsn, text)


@pytest.mark.parametrize("text", ["", "16B3748", "0/", "0/16B3748 ", "x/1"])
def test_malformed_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a position"):
        lsn_of(text)


def test_snapshot_shows_only_ended_transactions() -> None:
    """A snapshot shows what had ended and nothing that was open."""
    moment = Moment("100:110:102,105", 0)
    assert [xid for xid in range(95, 115) if not moment.shows(xid)] == [
        102,
        105,
        110,
        111,
        112,
        113,
        114,
    ]


@pytest.mark.parametrize("cycle", [1, 3])
def test_wrapped_transaction_ids_stay_distinct(cycle: int) -> None:
    """The log has the lower 32 bits of a transaction's number, the snapshot all of it."""
    start = cycle * 2**32
    moment = Moment(f"{start - 2}:{start + 2}:{start - 1}", 0)
    shown = [xid % 2**32 for xid in range(start - 4, start + 4) if moment.shows(xid % 2**32)]
    assert shown == [xid % 2**32 for xid in (start - 4, start - 3, start - 2, start, start + 1)]


@pytest.mark.parametrize(
    "bookmark",
    [
        LogBookmark(5),
        LogBookmark(2**40, "slot", "77", "16384", "16390"),
        LogBookmark(7, "slot", "77", "1", "", Moment("1:2:", 9), reading=True, version=4),
        LogBookmark(
            8, "slot", timeline="0000000A", partitions=frozenset({16390, 16385}), key=("id", "day")
        ),
    ],
)
def test_bookmark_is_read_back_unchanged(bookmark: LogBookmark) -> None:
    entry = bookmark.to_json()
    assert entry["replication_method"] == "LOG_BASED"
    assert LogBookmark.from_json("orders", entry) == bookmark


def test_bookmark_of_other_method_is_ignored() -> None:
    assert (
        LogBookmark.from_json("orders", {"replication_key": "id", "replication_key_value": 3})
        is None
    )
    assert LogBookmark.from_json("orders", None) is None


@pytest.mark.parametrize(
    "spoilt",
    [{"lsn": "x"}, {"snapshot": "1:2"}, {"snapshot": "1:2:", "snapshot_lsn": 3}, {"partitions": 3}],
)
def test_malformed_bookmark_is_refused_by_name(spoilt: dict[str, object]) -> None:
    with pytest.raises(StateError, match=r"TAP-053 .*orders"):
        LogBookmark.from_json("orders", {**LogBookmark(5).to_json(), **spoilt})


def test_malformed_bookmark_needs_a_newer_one() -> None:
    """A malformed bookmark is skipped only where a newer one follows."""
    good = LogBookmark(5).to_json()
    entries = {"orders": {**good, "lsn": "x"}, "items": good, "other": {"replication_key": "id"}}
    assert bookmarks_of(entries, replaced=["orders"]) == {"items": LogBookmark(5)}
    with pytest.raises(StateError, match=r"TAP-053 .*orders.*state reset.*--stream.*orders"):
        bookmarks_of(entries, replaced=["items"])
