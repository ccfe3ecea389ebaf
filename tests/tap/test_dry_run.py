"""`--dry-run`: what a run would read from the current database, with every kind of start; no row is
read.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tap.in_process import tap_of
from tap_spark_jdbc.dry_run import describe
from tap_spark_jdbc.extract.run_state import OpeningState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
create table keyless (v integer);
create table orders (id integer primary key, k integer, v integer);
create index orders_k on orders (k);
create table scanned (id integer primary key, k integer not null);
create table unread (id integer);
create table whole (id integer primary key);
"""
SAVED = {"bookmarks": {"orders": {"replication_key": "k", "replication_key_value": 80}}}


@pytest.fixture
def config(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, Any]]:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(TABLES)
        rows = [(n, None if n % 10 == 3 else n) for n in range(100)]
        connection.executemany(
            "insert into orders values (?, ?, 'no number, so nothing may read it')", rows
        )
        connection.executemany("insert into scanned values (?, ?)", [(n, n) for n in range(100)])
        connection.executemany("insert into whole values (?)", [(n,) for n in range(100)])
        connection.executemany("insert into keyless values (?)", [(n,) for n in range(7)])
    connection.close()
    yield {
        "jdbc_url": f"jdbc:sqlite:{path}",
        "tables": ["keyless", "orders", "scanned", "whole"],
        "incremental_tables": ["orders:k:integer", "scanned:k:integer"],
        "slice_rows": 40,
    }


def planned(config: dict[str, Any], opening: OpeningState) -> dict[str, list[str]]:
    """The lines of each stream after its heading; without a name, what is above them."""
    tap = tap_of(config, opening)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            text = describe(tap)
    finally:
        tap.progress.stop()
        tap.database.close()
    found: dict[str, list[str]] = {"": []}
    for line in text.splitlines():
        if line.startswith("stream "):
            found[line.removeprefix("stream ")] = []
        else:
            found[list(found)[-1]].append(line.strip())
    return found


def conditions(lines: list[str]) -> list[str]:
    """The conditions of the slices, which are below their heading, each after its number."""
    return [line.partition("  ")[2] for line in lines if line[:1].isdigit()]


def test_each_stream_shows_sql_bounds_and_slices(
    config: dict[str, Any],
) -> None:
    """Each stream shows its SQL with bounds, its slices and its rows."""
    shown = planned(config, OpeningState({}, "first"))

    assert list(shown) == [
        "",
        "keyless: FULL_TABLE",
        "orders: INCREMENTAL by k, from the beginning to 99, both included",
        "scanned: INCREMENTAL by k (not indexed: one pass), from the beginning to 99, "
        "both included",
        "whole: FULL_TABLE",
    ]
    keyless, orders, scanned, whole = list(shown.values())[1:]
    assert shown[""] == ["starts from the beginning: there is no state yet"]
    assert [lines[0] for lines in (keyless, orders, scanned, whole)] == [
        "rows: about 7",
        "rows: about 100",  # with those whose key is NULL
        "rows: about 100",
        "rows: about 100",
    ]
    assert (
        orders[1] == "sql: SELECT `id`, `k`, `v` FROM `orders` WHERE (`k` <= (99) OR `k` IS NULL)"
    )
    assert conditions(keyless) == ["all rows"]
    assert conditions(orders) == [
        "`k` IS NULL",
        "`k` < (45)",
        "`k` >= (45) AND `k` < (89)",
        "`k` >= (89) AND `k` <= (99)",
    ]
    assert conditions(scanned) == [f"`k` <= (99) AND {part}" for part in SPLIT]
    assert conditions(whole) == list(SPLIT)


SPLIT = ("`id` < (40)", "`id` >= (40) AND `id` < (80)", "`id` >= (80)")


def test_bounds_follow_state_unless_full(config: dict[str, Any]) -> None:
    """The bounds are those of the state, and a full run ignores it."""
    config |= {"tables": ["orders", "scanned"], "null_replication_key": "exclude"}

    saved = planned(config, OpeningState(SAVED, "saved"))
    full = planned(config, OpeningState(SAVED, "full"))
    nothing_new = planned(
        config, OpeningState({"bookmarks": {"orders": {"replication_key_value": 200}}}, "saved")
    )

    assert saved[""] == ["starts from the saved state"]
    heading = "orders: INCREMENTAL by k, from 80 to 99, both included"
    assert saved[heading][0] == "rows: about 18"
    assert conditions(saved[heading]) == ["`k` >= (80) AND `k` <= (99)"]
    assert full[""] == ["starts from the beginning: no state is used"]
    assert (
        full["orders: INCREMENTAL by k, from the beginning to 99, both included"][0]
        == "rows: about 90"
    )
    assert nothing_new["orders: INCREMENTAL by k, no rows in range"] == [
        "rows: about 0",
        "slices: none, there is nothing to read",
    ]


def test_backfill_lag_and_condition_show_in_bounds(config: dict[str, Any]) -> None:
    config |= {
        "tables": ["orders", "scanned", "whole"],
        "safety_lag_seconds": 5,
        "stream_options": {
            "scanned": {"start_value": 10, "end_value": 40},
            "whole": {"where": "id < 5"},
        },
    }

    shown = planned(config, OpeningState(SAVED, "saved"))

    orders = shown["orders: INCREMENTAL by k, from 75 to 99, both included"]
    assert conditions(orders)[1:] == ["`k` >= (75) AND `k` <= (99)"]
    backfill = shown[
        "scanned: INCREMENTAL by k (not indexed: one pass), from 10 to 39, both included; "
        "a backfill, the bookmark stays"
    ]
    assert backfill[0] == "rows: about 30"
    assert conditions(backfill) == ["`k` >= (10) AND `k` <= (39)"]
    whole = shown["whole: FULL_TABLE"]
    assert whole[0] == "rows: about 5"
    assert whole[1].endswith("FROM `whole` WHERE (id < 5)")
    assert conditions(whole) == ["all rows"]


def test_unreadable_stream_is_shown_as_skipped(config: dict[str, Any]) -> None:
    config |= {
        "on_stream_error": "skip",
        "tables": ["orders", "whole"],
        "incremental_tables": ["orders:k:integer"],
    }
    state = {"bookmarks": {"orders": {"replication_key_value": "no number"}}}

    shown = planned(config, OpeningState(state, "saved"))

    assert list(shown) == ["", "whole: FULL_TABLE"]
    assert shown["whole: FULL_TABLE"][-1].startswith(
        "skipped: RUN-032 stream orders: the saved bookmark can't be used"
    )
