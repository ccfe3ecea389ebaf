"""The same rows and bookmarks come out whatever zone JVM, Python, server and session are in, across
clock changes.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.round_trip import RoundTrip
from tap.opened import login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Gaps and folds of New York, of Berlin and of Lord Howe's half hour; a leap day; local midnights
# that UTC has not.
BEFORE = [
    "2024-02-29 23:59:59.999999",
    "2025-03-09 01:59:59.999999",
    "2025-03-09 02:30:00",
    "2025-03-30 02:30:00",
]
BEFORE += ["2025-04-06 01:45:00", "2025-10-26 02:30:00", "2025-11-02 01:30:00"]
AFTER = [
    "2025-11-02 01:30:00",
    "2025-11-02 01:30:00.000001",
    "2025-11-02 02:30:00",
    "2026-03-08 02:30:00",
]
# Of JVM and Python, of the server, and of the role.
ZONES = [
    ("UTC", "UTC", "UTC"),
    ("America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"),
]
TABLES = {"naive": "timestamp", "aware": "timestamptz", "days": "date"}


@pytest.fixture
def in_zone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`in_zone(name)` moves this process and its JVM to a zone; afterwards they are back."""
    zones = spark.sparkContext._gateway.jvm.java.util.TimeZone
    before = zones.getDefault()

    def move(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()
        zones.setDefault(zones.getTimeZone(name))
        assert zones.getDefault().getID() == name

    yield move
    zones.setDefault(before)
    monkeypatch.undo()
    time.tzset()


def records(lines: bytes) -> dict[str, list[Any]]:
    """What was sent of each stream, by id."""
    found: dict[str, list[Any]] = {f"public-{name}": [] for name in TABLES}
    for message in map(json.loads, lines.splitlines()):
        if message["type"] == "RECORD":
            found[message["stream"]].append(message["record"])
    return {stream: sorted(rows, key=lambda row: row["id"]) for stream, rows in found.items()}


def test_rows_and_bookmarks_are_zone_independent(
    postgresql: Any, in_zone: Any, tmp_path: Path
) -> None:
    """Rows and bookmarks are the same in any time zone and across clock changes."""
    database = postgresql.new_database()
    keys = [f"public.{name}:k:{'date' if name == 'days' else 'timestamp'}" for name in TABLES]
    runs = []
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("set timezone to 'UTC'")

        def insert(moments: list[str], first: int) -> None:
            for name in TABLES:
                for number, moment in enumerate(moments, first):
                    connection.execute(
                        f"insert into {name} values ({number}, '{moment}', '{moment}', '{moment}')"
                    )

        for place, (here, server, role) in enumerate(ZONES):
            connection.execute(f"alter database {database.name} set timezone to '{server}'")
            connection.execute(
                f"alter role {database.user} in database {database.name} set timezone to '{role}'"
            )
            for name, kind in TABLES.items():
                connection.execute(f"drop table if exists {name}")
                connection.execute(
                    f"create table {name} (id int primary key, k {kind}, n timestamp, a "
                    "timestamptz)"
                )
                connection.execute(f"create index on {name} (k)")
            in_zone(here)
            trip = RoundTrip(
                tmp_path / str(place),
                login(database, incremental_tables=keys, spark={"master": "local[2]"}),
            )
            insert(BEFORE, 0)
            first = records(trip.run(with_state=True))
            insert(AFTER, len(BEFORE))
            second = records(trip.run(with_state=True))
            idle = records(trip.run(with_state=True)) if place == 1 else {}
            assert not any(idle.values())
            state = json.loads((trip.folder / ".dataspoc/state/test/state.json").read_text())
            for bookmark in state["bookmarks"].values():
                # Which transactions a run could see is its own.
                bookmark.pop("snapshot", None)
            lake = {name: trip.table(f"public-{name}").sort_by("id").to_pydict() for name in TABLES}
            truth = {
                name: connection.execute(f"select id, k, n, a from {name} order by id").fetchall()
                for name in TABLES
            }
            for name in TABLES:
                assert list(zip(*lake[name].values(), strict=True)) == truth[name]
            runs.append((first, second, state, lake))
    assert runs[0] == runs[1]
    assert [len(rows) for rows in runs[0][0].values()] == [len(BEFORE)] * 3
    # The fold's second half is new under the key that was the last one; nothing else comes again.
    assert [len(rows) for rows in runs[0][1].values()] == [len(AFTER)] * 3
    shown = {
        name: runs[0][2]["bookmarks"][f"public-{name}"]["replication_key_value"] for name in TABLES
    }
    assert shown == {
        "naive": "2026-03-08T02:30:00.000000",
        "aware": "2026-03-08T02:30:00.000000Z",
        "days": "2026-03-08",
    }
