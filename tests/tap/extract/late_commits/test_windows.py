"""Late rows of large tables: a window below the bookmark, by the key's index, and what was open at
the last run.
"""

from __future__ import annotations

import pytest

from tap.extract.late_commits.driven_source import TABLE, UNINDEXED
from tap_spark_jdbc.plan.late_rows import written_query

ROWS = "insert into t select n, n, 'row' from generate_series(1, 100) n"
WINDOW = {"late_rows": "window", "late_window": 20}
LARGE = {"late_rows_pages": 0}


def test_late_row_within_the_window_arrives_once(source):
    """A late row within the window arrives once, whenever its transaction began."""
    it = source(TABLE + ROWS, **WINDOW)
    assert it.ids() == list(range(1, 101))
    it.database.execute(
        "insert into t values (-1, 80, 'late'), (-2, 100, 'at the bookmark'), (-3, 79, 'below the "
        "window');update t set v = 'changed' where id in (90, 3)"
    )
    assert it.ids() == [-2, -1, 90]
    it.database.execute("insert into t values (101, 101, 'new'), (-4, 81, 'late')")
    assert it.ids() == [-4, 101]
    assert it.ids() == []


def test_open_transactions_arrive_at_any_key_age(source, monkeypatch):
    """What was open at the last run arrives at any key age and costs no scan until then."""
    it = source(TABLE + ROWS, **WINDOW)
    idle = it.transaction()
    long = it.transaction(
        "insert into t values (-1, 3, 'late')",
        "savepoint s",
        "insert into t values (-2, -9, 'late')",
    )
    it.transaction("insert into t values (-3, 4, 'late')", "prepare transaction 'two phases'")
    assert it.ids() == list(range(1, 101))
    looks = []
    monkeypatch.setattr("tap_spark_jdbc.extract.stream_snapshot.written_query", _noting(looks))

    it.database.execute("insert into t values (101, 101, 'new'), (-4, 95, 'late')")
    assert it.ids() == [-4, 101]
    assert ["WHERE 1=1 AND" in look and '"k" >= (80)' in look for look in looks] == [True]
    long.commit()
    assert it.ids() == [-2, -1]
    assert '"k" >= (' not in looks[-1].partition("AS placed")[2]
    it.database.execute("commit prepared 'two phases'")
    assert it.ids() == [-3]
    idle.execute("insert into t values (-5, -50, 'it wrote after three runs')")
    idle.commit()
    assert it.ids() == [-5]
    assert it.ids() == []
    before = it.bookmark
    it.database.execute("create table other as select 1")
    assert it.ids() == []
    assert it.bookmark == before


def test_idle_run_remembers_open_transactions(source):
    """A transaction without writes so far may still write, with any key."""
    it = source(TABLE + ROWS, **WINDOW)
    it.ids()
    for settings in ({}, {"late_rows_pages": 0, "late_rows": "auto"}):
        it.pipe.config.update(settings)
        idle = it.transaction()
        assert it.ids() == []
        idle.execute(f"insert into t values ({-len(settings)}, 5, 'old')")
        idle.commit()
        assert it.ids() == [-len(settings)]
        assert it.ids() == []


def test_sent_rows_below_the_window_do_not_repeat(source):
    """While a transaction stays open, rows below the window are still tracked as sent."""
    it = source(TABLE, **WINDOW)
    long = it.transaction("insert into t values (-1, 0, 'late')")
    for n in range(1, 6):
        it.database.execute(f"insert into t values ({n}, {n * 30}, 'row')")
        assert it.ids() == [n]
    long.commit()
    assert it.ids() == [-1]
    assert it.ids() == []


@pytest.mark.parametrize(
    "settings", [{"late_rows": "all"}, {"late_rows": "open"}, {}], ids=["all", "open", "auto"]
)
def test_window_bookmarks_work_with_other_modes(source, settings):
    """Another mode for late rows continues from the bookmarks of a window."""
    it = source(TABLE + ROWS, **WINDOW)
    assert it.ids() == list(range(1, 101))
    it.pipe.config.pop("late_rows")
    it.pipe.config.update(settings)
    it.database.execute("insert into t values (-1, 3, 'late')")
    assert it.ids() == [-1]
    it.pipe.config.update(WINDOW)
    it.database.execute("insert into t values (-2, 90, 'late'), (101, 101, 'new')")
    assert it.ids() == ([101] if settings == {"late_rows": "open"} else [-2, 101])
    assert it.ids() == []


@pytest.mark.parametrize("change", [{"quiet": True}, {}], ids=["quiet", "unknown"])
def test_version_0_1_0_bookmark_continues_in_window(source, change):
    it = source(TABLE + ROWS, **WINDOW)
    it.ids()
    snapshot = it.bookmark["snapshot"]
    it.bookmark["snapshot"] = {
        name: snapshot[name] for name in ("format_version", "system", "xmin", "xmax")
    } | change
    it.pipe.save(it.pipe.saved)
    it.database.execute("insert into t values (-1, 3, 'old'), (-2, 90, 'late')")
    # It does not say what was open then: one look at the whole table.
    assert it.ids() == ([-2] if change else [-2, -1])
    assert it.ids() == []


def test_resumed_window_finds_late_committed_rows(source):
    """A resumed run in a window finds late-committed rows where the dead run had been."""
    it = source(
        UNINDEXED + "insert into t select n, least(n, 12), 'row' from generate_series(1, 24) n;",
        **WINDOW,
    )
    it.database.execute("create index t_k on t (k)")
    died = it.pipe.run().until(5)
    it.pipe.die(died)
    it.database.execute(
        "insert into t values (-1, 12, 'late'), (-2, -50, 'older'); update t set v = 'x' where id "
        "= 2"
    )
    continued = it.pipe.run()
    assert continued.start == "resume"
    arrived = died.rows + continued.rows
    assert set(arrived.values()) == {1}
    assert not it.rows() - arrived


BY_TIME = "create table t (id integer primary key, k timestamptz, v text); create index on t (k);"
AGES = (
    "insert into t select n, now() - interval '1 hour' * (50 - n), 'row' from "
    "generate_series(1, 50) n"
)


def test_default_window_is_a_day_or_a_million(source, caplog):
    """The window is a day for a time key and a million for a numeric one."""
    caplog.set_level("INFO")
    it = source(BY_TIME + AGES, incremental_tables=["public.t:k:timestamp"], **LARGE)
    it.ids()
    assert "(late rows: snapshot, window of 1 day)" in caplog.text
    it.database.execute("insert into t select -id, k, v from t where id in (20, 40)")
    assert it.ids() == [-40]
    assert it.ids() == []
    it.pipe.forget()
    other = source(TABLE + "insert into t values (1, 2000000, 'row')", **LARGE)
    assert other.ids() == [1]
    other.database.execute("insert into t values (2, 1000000, 'late'), (3, 999999, 'older')")
    assert other.ids() == [2]
    assert "(late rows: snapshot, window of 1,000,000)" in caplog.text


CACHED = (
    "create sequence s cache 5000 increment 10; create table t (id bigint primary key default "
    "nextval('s'), v text);"
)
IDENTITY = (
    "create table t (id bigint generated by default as identity (cache 5000 increment 10) "
    "primary key, v text);"
)
PARTED = (
    CACHED.replace("v text)", "v text) partition by range (id)")
    + "create table p partition of t default;"
)


@pytest.mark.parametrize(
    "script", [CACHED, IDENTITY, PARTED], ids=["default", "identity", "partitions"]
)
def test_cached_sequence_widens_the_window(source, caplog, script):
    """A sequence with a cache widens the window to what it can hand out."""
    caplog.set_level("INFO")
    it = source(
        script + "insert into t values (5000000, 'row')",
        incremental_tables=["public.t:id:integer"],
        **LARGE,
    )
    assert it.ids() == [5_000_000]
    sessions = int(it.database.execute("show max_connections").fetchone()[0])
    width = 10_000_000 + 50_000 * sessions
    assert f"(late rows: snapshot, window of {width:,})" in caplog.text
    lower = 5_000_000 - width
    it.database.execute(f"insert into t values ({lower}, 'late'), ({lower - 1}, 'older')")
    assert it.ids() == [lower]
    it.pipe.config["late_window"] = 100
    it.ids()
    assert "(late rows: snapshot, window of 100)" in caplog.text


PARTS = (
    "create table t (id integer, k integer, v text) partition by range (id);"
    "create table low partition of t for values from (0) to (100);"
    "create table high partition of t for values from (100) to (200);"
)
COMPUTED = {"incremental_tables": [], "stream_options": {"public-t": {"replication_key": "abs(k)"}}}


@pytest.mark.parametrize(
    ("script", "settings"),
    [(PARTS + "create index on low (k);", {}), (TABLE, COMPUTED)],
    ids=["one partition", "computed"],
)
def test_missing_index_is_suggested(source, caplog, script, settings):
    """Without a usable index the run suggests one and looks only for open transactions."""
    caplog.set_level("INFO")
    it = source(script + ROWS, **LARGE, **settings)
    long = it.transaction("insert into t values (101, 5, 'late')")
    assert it.ids() == list(range(1, 101))

    (said,) = suggested(caplog)
    on = '"k"' if not settings else "(abs(k))"
    assert said.endswith(f'CREATE INDEX CONCURRENTLY ON "public"."t" ({on})')
    assert "(late rows: open transactions only: no usable index on its key)" in caplog.text
    long.commit()
    assert it.ids() == [101]
    it.database.execute("insert into t values (102, 90, 'late')")
    assert it.ids() == []

    # A partitioned table takes no CONCURRENTLY.
    it.database.execute(
        said.partition("CREATE")[1] + said.partition("CREATE")[2].replace(" CONCURRENTLY", "")
    )
    it.ids()
    it.database.execute("insert into t values (103, 90, 'late')")
    assert it.ids() == [103]


def suggested(caplog):
    """What the log says of an index that is missing."""
    said = [each.getMessage() for each in caplog.records]
    return [each for each in said if "no usable index on its repl" in each]


def test_unusable_index_counts_as_none(source, caplog):
    """An index that can't find rows by the key is none."""
    it = source(UNINDEXED + ROWS, **LARGE)
    for index in (
        "create index t_k on t (k) where k > 0",
        "create index t_k on t (abs(k))",
        "create index t_k on t (v, k)",
        "create index t_k on t using hash (k)",
        "create index t_k on t (k);"
        "update pg_index set indisvalid = false where indexrelid = 't_k'::regclass",
    ):
        it.database.execute(index)
        caplog.clear()
        it.ids()
        assert suggested(caplog), index
        it.database.execute("drop index t_k")
    it.database.execute("create index t_k on t (k)")
    caplog.clear()
    it.ids()
    assert not suggested(caplog)


def test_small_tables_need_no_index(source, caplog):
    """A small table needs no index, and a text key reports that it has no window."""
    caplog.set_level("INFO")
    it = source(UNINDEXED + ROWS, late_rows="window")
    it.ids()
    assert "(late rows: snapshot, whole table)" in caplog.text
    it.pipe.forget()
    text = TABLE.replace("k integer", "k text")
    other = source(text + ROWS, incremental_tables=["public.t:k:string"], **LARGE)
    other.ids()
    assert (
        "(late rows: open transactions only: its key is of type string, which has no distances"
        in caplog.text
    )


def test_reason_for_limited_late_rows_is_logged(source, caplog):
    """The start of a stream logs that a view or late_rows open limits its late rows."""
    caplog.set_level("INFO")
    view = (
        TABLE.replace("table t", "table b").replace("on t", "on b")
        + "create view t as select * from b;"
    )
    source(view).ids()
    assert "(late rows: none: its rows don't show which transaction wrote them" in caplog.text
    it = source(TABLE, stream_options={"public-t": {"late_rows": "open"}})
    it.ids()
    assert "(late rows: open transactions only: as set by late_rows)" in caplog.text


def _noting(looks):
    def noted(*args):
        looks.append(written_query(*args))
        return looks[-1]

    return noted


BLOCKS = "select heap_blks_read + heap_blks_hit from pg_statio_user_tables where relname = 't'"
OTHERS = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> "
    "pg_backend_pid() and backend_type in ('client backend', 'parallel worker')"
)


def test_increment_of_a_large_table_reads_little(source):
    """Counted by the server: blocks of the table, read or found in its cache."""
    large = (
        "create table t (id integer primary key, k timestamptz not null, v text not null) with "
        "(autovacuum_enabled = false); create index t_k on t (k);insert into t select n, now() - "
        "interval '40 s' * (250000 - n), repeat('x', 60) from generate_series(1, 250000) n"
    )
    options = {
        "incremental_tables": ["public.t:k:timestamp"],
        "slice_rows": 125_000,
        "late_rows_pages": 1000,
    }
    it = source(large, **options)

    def blocks():
        """What a run sends, and how many blocks it reads: its sessions have reported them once they
        are gone.
        """
        # What this session has read and written is not the run's.
        it.database.execute("select pg_stat_force_next_flush()")
        before = it.database.execute(BLOCKS).fetchone()[0]
        found = it.ids()
        while it.database.execute(OTHERS).fetchone()[0]:
            pass
        return found, it.database.execute(BLOCKS).fetchone()[0] - before

    blocks()
    pages = it.database.execute("select pg_relation_size('t') / 8192").fetchone()[0]
    idle = blocks()
    it.database.execute("create table other as select 1")
    idle_beside_writes = blocks()
    it.database.execute(
        "insert into t select n, now() - interval '1 ms' * (250101 - n), 'new' from "
        "generate_series(250001, 250100) n"
    )
    increment = blocks()
    it.database.execute("insert into t values (-1, now() - interval '1 hour', 'late')")
    late = blocks()
    assert idle_beside_writes[0] == idle[0] == []
    assert increment[0] == [*range(250_001, 250_101)]
    assert late[0] == [-1]
    assert idle[1] <= 3
    assert max(each[1] for each in (idle_beside_writes, increment, late)) < pages * 0.02
