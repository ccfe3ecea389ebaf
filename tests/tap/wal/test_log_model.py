"""Random transactions, deaths of the tap at any STATE, and budgets: the lake is the source, each
change came once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.postgresql import PostgreSQL
from tap.dying import Pipe, Sent
from tap.opened import filled, login
from tap.wal.changing import KEYS, TABLES, Lake, Writers, source_rows
from tap_spark_jdbc.supply import columnar_query

SETTINGS = {
    "schemas": ["public"],
    "tables": list(KEYS),
    "stream_options": {"*": {"replication_method": "LOG_BASED"}},
    "n_jobs": 1,
}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several batches, and so several STATEs, of few changes."""
    monkeypatch.setattr(columnar_query, "BATCH_BYTES", 2000)
    yield


@pytest.mark.parametrize(("seed", "budget"), [(1, None), (2, 12)])
def test_lake_equals_source_with_each_change_once(
    spark: object,
    postgresql: PostgreSQL,
    tmp_path: Path,
    small_batches: None,
    seed: int,
    budget: int | None,
) -> None:
    chance, lake = random.Random(seed), Lake()
    settings: dict[str, Any] = SETTINGS if budget is None else {**SETTINGS, "max_run_rows": budget}
    with filled(postgresql, TABLES) as (database, connection):
        writers = Writers(database.dsn, chance, truncates=budget is None)
        writers.write(20)
        writers.close()
        writers.open.clear()
        pipe = Pipe(
            tmp_path, login(database, log_slot=database.name, log_publication="p", **settings)
        )
        before_first = changes(connection)
        commit(pipe, lake)
        while not at_end(pipe, connection, database.name):
            commit(pipe, lake)
        assert_same(lake, connection)
        snapshot_rows = len(lake.history)
        for _ in range(4):
            writers.write(chance.randrange(15))
            if chance.random() < 0.5:
                pipe.dies(lake.take, chance, writers.write)
            commit(pipe, lake)
            while not at_end(pipe, connection, database.name):
                commit(pipe, lake)
            assert_same(lake, connection)
        # What is open now is in no run, and what was rolled back in none.
        writers.close()
        connection.execute("SELECT pg_drop_replication_slot(%s)", (database.name,))
        assert len(lake.history) - snapshot_rows == changes(connection) - before_first
        places = [
            each["record"]["_sdc_lsn"] for each in lake.history if each["record"].get("_sdc_lsn")
        ]
        assert places == sorted(places)


@pytest.mark.parametrize("death", range(1, 5))
def test_dead_first_run_resumes_in_table_and_log(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, death: int
) -> None:
    """Whatever changed in between, what a table had when it was read does not come again from the
    log.
    """
    lake = Lake()
    with filled(postgresql, TABLES) as (database, connection):
        writers = Writers(database.dsn, random.Random(death))
        writers.write(40)
        writers.close()
        writers.open.clear()
        settings = {**SETTINGS, "slice_rows": 7}
        pipe = Pipe(
            tmp_path, login(database, log_slot=database.name, log_publication="p", **settings)
        )
        dead = pipe.run().until(death)
        pipe.die(dead)
        writers.write(30)
        writers.close()
        rest = pipe.run()
        is_resumed = rest.states[0]["start"] == "resume"
        assert is_resumed == (not in_mid_table(dead))
        for sent in (dead, rest) if is_resumed else (rest,):
            lake.take([each for each in sent.messages if each["type"] != "SCHEMA"])
        assert set(rest.extents.values()) == {"full"}
        pipe.save(rest.final)
        if not is_resumed:
            assert [each for each in pipe.run().messages if each["type"] == "RECORD"] == []
        commit(pipe, lake)
        assert_same(lake, connection)
        connection.execute("SELECT pg_drop_replication_slot(%s)", (database.name,))


def in_mid_table(dead: Sent) -> bool:
    """Whether a table was begun and not finished."""
    bookmarks = dead.states[-1]["value"]["bookmarks"]
    return any(
        bookmarks.get(name, {}).get("reading") for name in dead.states[-1]["resume"]["streams"]
    )


def commit(pipe: Pipe, lake: Lake) -> None:
    """A run that is committed."""
    sent = pipe.run()
    lake.take(sent.messages)
    pipe.save(sent.final)


def at_end(pipe: Pipe, connection: psycopg.Connection[Any], slot: str) -> bool:
    """Whether no budget has stopped the pipeline before what is committed now."""
    assert pipe.saved is not None
    bookmarks = pipe.saved["bookmarks"].values()
    if len(bookmarks) < len(KEYS):
        return False
    question = "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, "
    question += (
        "'proto_version', '1', 'publication_names', 'p') WHERE get_byte(data, 0) IN (73, 85, 68) "
    )
    question += "AND lsn >= CAST(%s AS pg_lsn)"
    lowest = min(
        (each["lsn"] for each in bookmarks),
        key=lambda lsn: [int(part, 16) for part in lsn.split("/")],
    )
    if any("snapshot" in each for each in bookmarks):
        return True  # the first run: what the table has, the log has too
    return connection.execute(question, (slot, lowest)).fetchall()[0][0] == 0


def changes(connection: psycopg.Connection[Any]) -> int:
    """How many records all committed changes are."""
    return int(connection.execute("SELECT coalesce(sum(records), 0) FROM changed").fetchall()[0][0])


def assert_same(lake: Lake, connection: psycopg.Connection[Any]) -> None:
    for table in KEYS:
        ours, theirs = lake.current(table), source_rows(connection, table)
        assert ours == theirs, (table, Counter(ours) - theirs, Counter(theirs) - ours)
