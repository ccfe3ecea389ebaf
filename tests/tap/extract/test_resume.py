"""A run that died is continued after its last STATE: what was sent before is not sent again, and
nothing is skipped.
"""

import json
from collections import Counter

import pytest

from singer_spark.core.bookmark import MAX_BOUNDARY_HASHES
from tap.dying import unsealed
from tap.extract.resumed_pipes import (
    B_ALONE,
    INDEXED_KEYS,
    KEYS,
    PUBLIC,
    PUBLIC_KEYS,
    ROWS,
    SCRIPT,
    TABLES,
    B,
    inserts,
)


def every_death_is_continued(pipe, whole, one_of=1):
    """Whatever STATE of this run was the last one: the next run sends the rest of it, and only
    that.
    """
    for number, before in whole.deaths(one_of):
        rest = pipe.resumed(before)

        assert before.followed_by(rest) == whole.rows, number
        assert rest.extents == whole.extents, number
        if rest.restarted:
            continue
        # So a run that continues may die as well, as often as it likes.
        assert unsealed(rest.states[1:]) == unsealed(
            whole.states[number + 1 :] or whole.states[-1:]
        ), number


@pytest.mark.slow
@pytest.mark.parametrize(("server", "one_of"), [("postgres", 1), ("sqlite", 5)])
def test_dead_run_is_resumed_from_any_state(request, server, one_of):
    """A run that died at any state is resumed and sends only the rest."""
    pipe, _ = request.getfixturevalue(f"{server}_pipe")(
        SCRIPT, **(PUBLIC_KEYS if server == "postgres" else KEYS)
    )
    whole = pipe.run()
    assert whole.start == "first"
    assert set(whole.rows.values()) == {1}
    assert len(whole.rows) == sum(map(len, ROWS.values()))
    assert len(whole.states) >= 16

    every_death_is_continued(pipe, whole, one_of)


CHANGES = """
    insert into b_indexed values (100, 9, 'tie'), (-1, 9, 'tie below'), (101, 30, 'new');
    update b_indexed set k = 31 where id in (0, 8, 15, 20);
    update b_indexed set k = 32, v = 'has a key now' where id = 2;
    update b_indexed set v = 'changed' where id in (19, 25);
    delete from b_indexed where id in (1, 10, 24);
    insert into c_unindexed values (100, 12, 'tie'), (-1, 12, 'tie below'), (101, 30, 'new');
    update c_unindexed set k = 31 where id in (0, 9, 12);
    update c_unindexed set k = 32, v = 'has a key now' where id = 16;
    update c_unindexed set v = 'changed' where id in (5, 15);
    delete from c_unindexed where id in (2, 3);
"""


def test_source_changes_before_resume_lose_nothing(postgres_pipe):
    """A source that changes between death and resume loses and repeats nothing."""
    settings = {**PUBLIC_KEYS, "tables": ["b_*", "c_*"]}
    # The tables are recreated for each death, so by their writers all rows would be newer than the
    # run that died.
    pipe, database = postgres_pipe(SCRIPT, **settings)
    whole = pipe.run()

    # Slices of one stream alike: another test dies at every STATE.
    for number, before in whole.deaths(one_of=4):
        database.execute("drop table a_whole, b_indexed, c_unindexed, d_keyless;" + SCRIPT)
        pipe.forget()
        pipe.die(before)
        database.execute(CHANGES)
        rest = pipe.run()
        pipe.save(rest.final)
        news = pipe.run()

        assert (rest.start, news.start) == ("resume", "saved")
        # Rows without key come on every run: they count once for the run that died and the one that
        # continued it.
        arrived = (
            before.rows
            + rest.rows
            + Counter({row: n for row, n in news.rows.items() if has_key(row)})
        )
        assert set(arrived.values()) == {1}, number
        for table in ("b_indexed", "c_unindexed"):
            assert not rows_now(database, table) - set(arrived), number


def rows_now(database, table):
    rows = database.execute(f"select * from {table}").fetchall()
    return {
        json.dumps([f"public-{table}", dict(zip(("id", "k", "v"), row, strict=True))])
        for row in rows
    }


def has_key(row):
    return json.loads(row)[1]["k"] is not None


@pytest.mark.parametrize(
    "new", [[], [(n, n // 3, "new") for n in range(300, 311)]], ids=["ties", "ties and new keys"]
)
def test_delta_resumes_after_rows_at_bookmark(postgres_pipe, new):
    pipe, database = postgres_pipe(SCRIPT, **B_ALONE)
    pipe.save(pipe.run().final)
    ties = [(n, 9, "tie") for n in range(200, 208)]
    database.execute(inserts({"b_indexed": [*ties, *new]}))

    whole = pipe.run()

    assert whole.start == "saved"
    nulls = [n for n, key in enumerate(INDEXED_KEYS) if key is None]
    assert whole.ids(B) == Counter([*nulls, *(row[0] for row in [*ties, *new])])
    assert whole.extents == {B: "delta"}
    every_death_is_continued(pipe, whole, one_of=3)


@pytest.mark.parametrize("index", ["create index t_k on t (k);", ""])
def test_bucket_boundary_spans_dead_and_resumed_run(sqlite_pipe, index):
    count = 2 * MAX_BOUNDARY_HASHES + 500
    rows = [(n, 7 if n > 3 else 1, f"row {n}") for n in range(count)]
    pipe, database = sqlite_pipe(
        f"create table t (id integer primary key, k integer not null, v text); {index}"
        + inserts({"t": rows}),
        incremental_tables=["t:k:integer"],
        slice_rows=600,
    )
    whole = pipe.run()
    assert whole.ids("t") == Counter(range(count))

    every_death_is_continued(pipe, whole, one_of=3)

    database.executescript(
        "update t set v = 'changed' where id = 5; insert into t values (9999, 7, 'tie')"
    )
    rest = pipe.resumed(whole.until(2))
    assert rest.final["bookmarks"]["t"]["boundary"]["rows"] == count - 3
    pipe.save(rest.final)
    news = pipe.run().ids("t")
    # The row that was sent before it changed comes with its bucket; the tie was read by the run
    # that continued.
    assert 5 in news
    assert 9999 not in news
    assert len(news) < count / 50


def test_window_of_a_dead_run_is_read_again(postgres_pipe):
    """A row committed late in the window below the dead run's upper bound comes with the run that
    continues, once.
    """
    rows = {"b_indexed": [(n, n // 2, "row") for n in range(20)]}
    settings = {**B_ALONE, **PUBLIC, "safety_lag_seconds": 2}
    pipe, database = postgres_pipe(TABLES + inserts(rows), **settings)
    first = pipe.run()
    pipe.save(first.final)
    # A large group at the bookmark, and another one above it.
    ties = [(n, 9, "tie") for n in range(100, 108)] + [(n, 20, "tie") for n in range(110, 117)]
    database.execute(
        inserts({"b_indexed": [*ties, *((n, n // 4, "new") for n in range(200, 211))]})
    )
    second = pipe.run()

    for number, before in second.deaths(one_of=3):
        database.execute("delete from b_indexed where id = 999")
        database.execute("insert into b_indexed values (999, 51, 'committed late')")
        assert before.ids(B) + pipe.resumed(before).ids(B) == second.ids(B) + Counter([999]), number


def test_resumed_backfill_leaves_bookmark_unchanged(postgres_pipe):
    pipe, _ = postgres_pipe(SCRIPT, **B_ALONE)
    pipe.save(pipe.run().final)
    pipe.config["stream_options"] = {B: {"start_value": 1, "end_value": 9}}

    whole = pipe.run()

    assert whole.ids(B) == Counter(n for n, key in enumerate(INDEXED_KEYS) if key and key < 9)
    assert whole.final == pipe.saved
    assert len(whole.states) > 5
    every_death_is_continued(pipe, whole, one_of=2)


def test_text_and_null_keys_are_resumed(sqlite_pipe):
    """Keys and primary keys that are compared as text or are null are resumed."""
    # A moment is written as its column has it: without seconds, with a T.
    moments = [f"2025-01-{1 + n // 5:02}{'T' if n % 2 else ' '}10:{n % 5:02}" for n in range(13)]
    ids = [None if n in (2, 9) else f"2024-02-{1 + n:02} 00:00" for n in range(13)]
    tables = {
        name: list(zip(ids, moments, range(13), strict=True)) for name in ("indexed", "unindexed")
    }
    whole_table = {"whole": [(each, n) for n, each in enumerate(ids)]}
    pipe, _ = sqlite_pipe(
        """
        create table indexed (day datetime primary key, at timestamp, id integer);
        create index indexed_at on indexed (at);
        create table unindexed (day datetime primary key, at timestamp, id integer);
        create table whole (day datetime primary key, id integer);
        """
        + inserts({**tables, **whole_table}),
        incremental_tables=["indexed:at:timestamp", "unindexed:at:timestamp"],
        slice_rows=4,
    )
    whole = pipe.run()
    for stream in ("indexed", "unindexed", "whole"):
        assert whole.ids(stream) == Counter(range(13))

    every_death_is_continued(pipe, whole, one_of=5)


def test_stream_mapped_records_are_resumed(postgres_pipe):
    maps = {B: {"__filter__": "id % 3 != 0", "shout": "v.upper()"}}
    pipe, _ = postgres_pipe(
        SCRIPT, **{**B_ALONE, **PUBLIC, "tables": ["a_*", "b_*"]}, stream_maps=maps
    )
    whole = pipe.run()
    assert whole.ids(B) == Counter(n for n in range(len(INDEXED_KEYS)) if n % 3)

    for before in (whole.until(2), whole.until(len(whole.states) // 2)):
        rest = pipe.resumed(before)
        assert before.rows + rest.rows == whole.rows
        assert unsealed(rest.final) == unsealed(whole.final)


def test_keys_in_database_collation_are_resumed(sqlite_pipe):
    rows = [(n, "aBcDeFgHiJ"[n // 2], f"row {n}") for n in range(20)]
    pipe, database = sqlite_pipe(
        "create table t (id integer primary key, k text collate nocase, v text); create index t_k "
        "on t (k);" + inserts({"t": rows[:6]}),
        incremental_tables=["t:k:string"],
        slice_rows=4,
    )
    first = pipe.run()
    assert first.final["bookmarks"]["t"]["replication_key_value"] == "c"
    pipe.save(first.final)
    database.executescript(inserts({"t": rows[6:]}))
    whole = pipe.run()
    assert whole.ids("t") == Counter(range(6, 20))
    assert whole.final["bookmarks"]["t"]["replication_key_value"] == "J"

    every_death_is_continued(pipe, whole, one_of=2)
