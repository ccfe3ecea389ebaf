"""The numbers of transactions: what a bookmark keeps of them, and what SQL makes of it."""

from __future__ import annotations

import json
import random

import psycopg
import pytest

from singer_spark.core.bookmark import Bookmark, TransactionSnapshot
from singer_spark.core.key_value import KeyType
from singer_spark.errors import StateError
from tap_spark_jdbc.plan.late_rows import LateRows, Written, written_of
from tap_spark_jdbc.plan.slices import Slice

CYCLE = 2**32


@pytest.mark.parametrize("xmin", [3, 1000, CYCLE - 50, CYCLE + 3, 5 * CYCLE - 20], ids=str)
@pytest.mark.parametrize("span", [0, 40, 200])
def test_wrapped_transaction_ids_are_distinguished(postgresql, xmin, span):
    dice = random.Random(xmin + span)
    seen = tuple(sorted(dice.sample(range(xmin, xmin + span), span // 3)))
    late = LateRows(TransactionSnapshot("1", xmin, xmin + span, seen), xmin + 100, (Slice(),))
    # All that a row visible now can have been written by, but for those a whole cycle ago.
    writers = [n for n in range(max(3, xmin - 300), xmin + 100) if n % CYCLE >= 3]
    values = ", ".join(f"({n}::bigint, {n % CYCLE}::bigint)" for n in writers)
    with psycopg.connect(postgresql.database("postgres").dsn) as connection:
        found = connection.execute(
            f"select n from (values {values}) v (n, w) where {late.unseen('w')}"
        ).fetchall()

    assert {n for (n,) in found} == {n for n in writers if n >= xmin and n not in seen}


def test_packed_snapshot_is_small_and_lossless():
    dice = random.Random(3)
    seen = tuple(sorted(dice.sample(range(10**12, 10**12 + 200_000), 50_000)))
    snapshot = TransactionSnapshot("77", 10**12, 10**12 + 200_000, seen)

    packed = json.dumps(snapshot.to_json())

    assert TransactionSnapshot.from_json(json.loads(packed)) == snapshot
    assert len(packed) < 80_000
    assert written_of((None, None, "0"), 5) == Written((), late=False, new=False)
    assert written_of(("0,7", "1", "1"), 5) == Written((5, 12), late=True, new=True)


@pytest.mark.parametrize(
    "snapshot",
    [
        {"format_version": 2, "system": "1", "xmin": 1, "xmax": 2},
        {"format_version": 1, "system": "1", "xmin": 2, "xmax": 1},
        {"format_version": 1, "system": "1", "xmin": 1, "xmax": 2, "seen": "no base64!"},
        {"format_version": 1, "system": "1", "xmin": 1, "xmax": 2, "seen": "AAAA"},
        {"format_version": 1, "xmin": 1, "xmax": 2},
        "756:760:",
    ],
)
def test_unreadable_snapshot_is_refused(snapshot):
    entry = {"replication_key_value": 7, "snapshot": snapshot}
    with pytest.raises(StateError, match="RUN-032"):
        Bookmark.from_json("t", entry, "k", KeyType.INTEGER, aware=False)


def test_bookmark_without_snapshot_stays_unchanged():
    entry = {
        "replication_key": "k",
        "replication_key_value": 7,
        "boundary": {"format_version": 1, "rows": 0, "value": 7},
    }
    bookmark = Bookmark.from_json("t", entry, "k", KeyType.INTEGER, aware=False)
    assert bookmark is not None
    assert bookmark.snapshot is None
    assert bookmark.to_json() == entry
