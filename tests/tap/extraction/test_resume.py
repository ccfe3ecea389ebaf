"""A run that died goes on behind its last STATE: what was sent before is not sent again, and nothing is skipped."""

import json
from collections import Counter
from itertools import islice

import pytest

from singer_spark.singer.bookmark import MAX_BOUNDARY_HASHES
from tap.dying import Pipe, unsealed

# One stream of each kind, sent in the order of their names; five rows a slice.
TABLES = """
    create table a_whole (id integer primary key, v text);
    create table b_indexed (id integer primary key, k integer, v text);
    create index b_indexed_k on b_indexed (k);
    create table c_unindexed (id integer primary key, k integer, v text);
    create table d_keyless (id integer, v text);
"""
# Two groups with too many rows for one slice, the second at the upper bound.
INDEXED_KEYS = [0, 0, None, 1, 1, 2, *[5] * 7, 7, 7, 8, None, *[9] * 11]
UNINDEXED_KEYS = [None if n in (1, 16) else min(n * 7 % 18, 12) for n in range(18)]
ROWS = {
    "a_whole": [(n, f"row {n}") for n in range(12)],
    "b_indexed": [(n, key, f"row {n}") for n, key in enumerate(INDEXED_KEYS)],
    "c_unindexed": [(n, key, f"row {n}") for n, key in enumerate(UNINDEXED_KEYS)],
    "d_keyless": [(n, f"row {n}") for n in range(3)],
}
KEYS = {"incremental_tables": ["b_indexed:k:integer", "c_unindexed:k:integer"], "slice_rows": 5}
# Who goes on has a snapshot of its own, which a state tells where rows are looked for that were committed late.
PUBLIC = {"stream_options": {"*": {"late_rows": "open"}}}
PUBLIC_KEYS = {**KEYS, **PUBLIC, "incremental_tables": [f"public.{spec}" for spec in KEYS["incremental_tables"]]}
# PostgreSQL is read without a Spark job for each slice, which takes a fifth of the time.
B = "public-b_indexed"
B_ALONE = {"incremental_tables": ["public.b_indexed:k:integer"], "slice_rows": 5, "tables": ["b_*"]}


def inserts(rows):
    """The statements that insert these rows, by table."""

    def shown(value):
        return "null" if value is None else repr(value)

    return ";".join(
        f"insert into {table} values " + ", ".join(f"({', '.join(map(shown, row))})" for row in each)
        for table, each in rows.items()
    )


SCRIPT = TABLES + inserts(ROWS)


@pytest.fixture
def sqlite_pipe(spark, sqlite, tmp_path):
    """A pipe on a SQLite database, and the database."""

    def make(script, **settings):
        tap, database = sqlite(script, **settings)
        return Pipe(tmp_path / "lake", tap.config), database

    return make


@pytest.fixture
def postgres_pipe(spark, postgres, tmp_path):
    """A pipe on a PostgreSQL database, and the database."""

    def make(script, **settings):
        tap, database = postgres(script, **settings)
        return Pipe(tmp_path / "lake", tap.config), database

    return make


def every_death_is_continued(pipe, whole, one_of=1):
    """Whatever STATE of this run was the last one: the next run sends the rest of it, and only that."""
    for number, before in islice(whole.deaths(), 0, None, one_of):
        rest = pipe.resumed(before)

        assert before.followed_by(rest) == whole.rows, number
        assert rest.extents == whole.extents, number
        if rest.restarted:
            continue
        # So a run that goes on may die as well, as often as it likes.
        assert unsealed(rest.states[1:]) == unsealed(whole.states[number + 1 :] or whole.states[-1:]), number


@pytest.mark.slow
@pytest.mark.parametrize(("server", "one_of"), [("postgres", 1), ("sqlite", 5)])
def test_a_run_that_died_at_any_state_is_continued_and_sends_only_the_rest(request, server, one_of):
    pipe, _ = request.getfixturevalue(f"{server}_pipe")(SCRIPT, **(PUBLIC_KEYS if server == "postgres" else KEYS))
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


def test_a_source_that_changes_between_death_and_resume_loses_and_repeats_nothing(postgres_pipe):
    settings = {**PUBLIC_KEYS, "tables": ["b_*", "c_*"]}
    # The tables are made anew for each death, so by their writers all rows would be newer than the run that died.
    pipe, database = postgres_pipe(SCRIPT, **settings)
    whole = pipe.run()

    for number, before in whole.deaths():
        database.execute("drop table a_whole, b_indexed, c_unindexed, d_keyless;" + SCRIPT)
        pipe.forget()
        pipe.die(before)
        database.execute(CHANGES)
        rest = pipe.run()
        pipe.save(rest.final)
        news = pipe.run()

        assert (rest.start, news.start) == ("resume", "saved")
        # Rows without key come on every run: they count once for the run that died and the one that went on.
        arrived = before.rows + rest.rows + Counter({row: n for row, n in news.rows.items() if has_key(row)})
        assert set(arrived.values()) == {1}, number
        for table in ("b_indexed", "c_unindexed"):
            assert not rows_now(database, table) - set(arrived), number


def rows_now(database, table):
    rows = database.execute(f"select * from {table}").fetchall()
    return {json.dumps([f"public-{table}", dict(zip(("id", "k", "v"), row, strict=True))]) for row in rows}


def has_key(row):
    return json.loads(row)[1]["k"] is not None


A_WHOLE = "public-a_whole"
# What happens to a full table between a death and the run that goes on, and whether what was sent can be used.
FATES = {
    "quiet": ("select 1", True),
    "rows added": ("insert into a_whole values (100, 'new'), (-1, 'below'); delete from a_whole where id = -2", True),
    "row deleted": ("delete from a_whole where id = 0", False),
    "row changed": ("update a_whole set v = 'changed' where id = 1", False),
    "deleted and added": ("delete from a_whole where id = 0; insert into a_whole values (-1, 'in its place')", False),
    "truncated": ("truncate a_whole; insert into a_whole select n, 'new' from generate_series(100, 107) n", False),
    "rewritten": ("truncate a_whole; insert into a_whole select n, 'row ' || n from generate_series(0, 11) n", False),
}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("sent", ["a part", "all"])
def test_a_full_table_read_in_two_runs_is_what_it_was_at_the_second(postgres_pipe, caplog, fate, sent):
    """What was sent before a death is used only if none of its rows was changed or deleted since."""
    caplog.set_level("INFO")
    change, continues = FATES[fate]
    pipe, database = postgres_pipe(SCRIPT, slice_rows=5, tables=["a_whole", "d_keyless"])
    before = pipe.run().until(1 if sent == "a part" else 3)
    assert before.states[-1]["resume"]["streams"][A_WHOLE].get("complete", False) is (sent == "all")
    pipe.die(before)
    database.execute(change)

    rest = pipe.run()

    assert rest.start == "resume"
    assert rest.restarted == (set() if continues else {A_WHOLE})
    assert ("is dropped, and the table is read from its start" in caplog.text) is not continues
    arrived = Counter(row for row in before.followed_by(rest).elements() if json.loads(row)[0] == A_WHOLE)
    assert arrived == Counter(whole_rows_now(database))


def test_a_full_table_that_is_continued_twice_is_what_it_was_at_the_last_run(postgres_pipe):
    """Rows that were added since the first death count as sent after the second: one that is deleted is noticed."""
    pipe, database = postgres_pipe(SCRIPT, slice_rows=3, tables=["a_whole"])
    first = pipe.run().until(1)
    pipe.die(first)
    database.execute("insert into a_whole values (-1, 'below')")
    second = pipe.run().until(2)
    assert Counter(second.ids(A_WHOLE)) == Counter([-1, 3, 4, 5])
    pipe.die(second)

    third = pipe.run()
    assert third.restarted == set()
    arrived = first.rows + second.rows + third.rows
    assert arrived == Counter(whole_rows_now(database))

    pipe.die(second)
    database.execute("delete from a_whole where id = -1")
    third = pipe.run()
    assert third.restarted == {A_WHOLE}
    assert third.rows == Counter(whole_rows_now(database))


def test_a_full_table_of_a_database_that_proves_nothing_is_read_from_its_start(sqlite_pipe):
    """A table that was read whole stays as it was then."""
    pipe, database = sqlite_pipe(SCRIPT, slice_rows=5, tables=["a_whole", "d_keyless"])
    whole = pipe.run()
    database.executescript("delete from a_whole where id = 0; delete from d_keyless where id = 0")

    rest = pipe.resumed(whole.until(1))
    assert rest.restarted == {"a_whole"}
    assert rest.ids("a_whole") == Counter(range(1, 12))
    assert pipe.resumed(whole.until(3)).ids("a_whole") == Counter()


def whole_rows_now(database):
    rows = database.execute("select id, v from a_whole").fetchall()
    return [json.dumps([A_WHOLE, {"id": number, "v": text}]) for number, text in rows]


@pytest.mark.parametrize("new", [[], [(n, n // 3, "new") for n in range(300, 311)]], ids=["ties", "ties and new keys"])
def test_a_delta_is_continued_behind_the_rows_at_the_bookmark(postgres_pipe, new):
    pipe, database = postgres_pipe(SCRIPT, **B_ALONE)
    pipe.save(pipe.run().final)
    ties = [(n, 9, "tie") for n in range(200, 208)]
    database.execute(inserts({"b_indexed": [*ties, *new]}))

    whole = pipe.run()

    assert whole.start == "saved"
    nulls = [n for n, key in enumerate(INDEXED_KEYS) if key is None]
    assert whole.ids(B) == Counter([*nulls, *(row[0] for row in [*ties, *new])])
    assert whole.extents == {B: "delta"}
    every_death_is_continued(pipe, whole)


@pytest.mark.parametrize("index", ["create index t_k on t (k);", ""])
def test_a_boundary_of_buckets_is_whole_over_two_runs(sqlite_pipe, index):
    count = 2 * MAX_BOUNDARY_HASHES + 500
    rows = [(n, 7 if n > 3 else 1, f"row {n}") for n in range(count)]
    pipe, database = sqlite_pipe(
        f"create table t (id integer primary key, k integer not null, v text); {index}" + inserts({"t": rows}),
        incremental_tables=["t:k:integer"],
        slice_rows=600,
    )
    whole = pipe.run()
    assert whole.ids("t") == Counter(range(count))

    every_death_is_continued(pipe, whole, one_of=2)

    database.executescript("update t set v = 'changed' where id = 5; insert into t values (9999, 7, 'tie')")
    rest = pipe.resumed(whole.until(2))
    assert rest.final["bookmarks"]["t"]["boundary"]["rows"] == count - 3
    pipe.save(rest.final)
    news = pipe.run().ids("t")
    # The row that was sent before it changed comes with its bucket; the tie was read by the run that went on.
    assert 5 in news
    assert 9999 not in news
    assert len(news) < count / 50


def test_a_lag_is_read_again_below_the_bookmark_of_the_dead_run(postgres_pipe):
    rows = {"b_indexed": [(n, n // 2, "row") for n in range(20)]}
    settings = {**B_ALONE, **PUBLIC, "safety_lag_seconds": 2}
    pipe, database = postgres_pipe(TABLES + inserts(rows), **settings)
    first = pipe.run()
    pipe.save(first.final)
    # A large group at the bookmark, and another one above it.
    ties = [(n, 9, "tie") for n in range(100, 108)] + [(n, 20, "tie") for n in range(110, 117)]
    database.execute(inserts({"b_indexed": [*ties, *((n, n // 4, "new") for n in range(200, 211))]}))
    second = pipe.run()
    keys = dict(database.execute("select id, k from b_indexed"))

    for number, before in second.deaths():
        bookmark = before.states[-1]["value"]["bookmarks"][B]["replication_key_value"]
        database.execute("delete from b_indexed where id = 999")
        database.execute("insert into b_indexed values (999, %s, 'committed late')", [bookmark - 1])
        arrived = before.ids(B) + pipe.resumed(before).ids(B)
        assert set(second.ids(B)) | {999} <= set(arrived), number
        assert bookmark >= 9, number
        once_more = arrived - second.ids(B)
        assert all(bookmark - 2 <= keys.get(each, bookmark - 1) < bookmark for each in once_more), number


def test_a_backfill_is_continued_and_leaves_the_bookmark(postgres_pipe):
    pipe, _ = postgres_pipe(SCRIPT, **B_ALONE)
    pipe.save(pipe.run().final)
    pipe.config["stream_options"] = {B: {"start_value": 1, "end_value": 9}}

    whole = pipe.run()

    assert whole.ids(B) == Counter(n for n, key in enumerate(INDEXED_KEYS) if key and key < 9)
    assert whole.final == pipe.saved
    assert len(whole.states) > 5
    every_death_is_continued(pipe, whole)


def test_keys_and_primary_keys_that_are_compared_as_text_or_are_null_are_continued(sqlite_pipe):
    # A moment is written as its column has it: without seconds, with a T.
    moments = [f"2025-01-{1 + n // 5:02}{'T' if n % 2 else ' '}10:{n % 5:02}" for n in range(13)]
    ids = [None if n in (2, 9) else f"2024-02-{1 + n:02} 00:00" for n in range(13)]
    tables = {name: list(zip(ids, moments, range(13), strict=True)) for name in ("indexed", "unindexed")}
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


def test_records_that_pass_through_stream_maps_are_continued(postgres_pipe):
    maps = {B: {"__filter__": "id % 3 != 0", "shout": "v.upper()"}}
    pipe, _ = postgres_pipe(SCRIPT, **{**B_ALONE, **PUBLIC, "tables": ["a_*", "b_*"]}, stream_maps=maps)
    whole = pipe.run()
    assert whole.ids(B) == Counter(n for n in range(len(INDEXED_KEYS)) if n % 3)

    for before in (whole.until(2), whole.until(len(whole.states) // 2)):
        rest = pipe.resumed(before)
        assert before.rows + rest.rows == whole.rows
        assert unsealed(rest.final) == unsealed(whole.final)


def test_keys_in_an_order_of_the_databases_own_are_continued(sqlite_pipe):
    rows = [(n, "aBcDeFgHiJ"[n // 2], f"row {n}") for n in range(20)]
    pipe, database = sqlite_pipe(
        "create table t (id integer primary key, k text collate nocase, v text); create index t_k on t (k);"
        + inserts({"t": rows[:6]}),
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
