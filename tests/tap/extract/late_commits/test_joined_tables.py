"""Tables that become the stream's, or a part of it, between two runs: their rows are older than the
last run.
"""

from __future__ import annotations

import pytest

from tap.extract.late_commits.driven_source import TABLE

PARTED = """
create table t (id integer not null, k integer not null, v text not null) partition by range (id);
create table low partition of t for values from (0) to (100);
create table high (id integer not null, k integer not null, v text not null);
insert into t select n, n, 'row' from generate_series(1, 9) n;
insert into high select n, n - 100, 'row' from generate_series(101, 109) n;
"""
ATTACH = "alter table t attach partition high for values from (100) to (200)"
NESTED = """
create table above (id integer not null, k integer not null,
  v text not null) partition by range (id);
alter table above attach partition high for values from (100) to (200);
"""
ATTACH_NESTED = "alter table t attach partition above for values from (100) to (200)"
HEIR = PARTED.replace(" partition by range (id)", "").replace(
    " partition of t for values from (0) to (100)", " (x int)"
)
COMPUTED = {"incremental_tables": [], "stream_options": {"public-t": {"replication_key": "abs(k)"}}}


@pytest.mark.parametrize(
    ("script", "change", "settings", "news"),
    [
        (PARTED, ATTACH, {}, True),
        (PARTED, ATTACH, {}, False),
        (PARTED, ATTACH, COMPUTED, False),
        (PARTED + NESTED, ATTACH_NESTED, {}, False),
        (HEIR, "alter table high inherit t", {}, False),
    ],
    ids=["with news", "partition", "computed key", "partition of a partition", "heir"],
)
def test_attached_table_is_sent_whole(source, caplog, script, change, settings, news):
    """They are sent once, even if they are older than the last run, and at or below the
    bookmark.
    """
    it = source(script, **settings)
    assert it.ids() == list(range(1, 10))
    it.database.execute(change)
    if news:
        it.database.execute("insert into t values (10, 10, 'new')")

    assert it.ids() == [*([10] if news else []), *range(101, 110)]

    assert "a table was attached to it since the last run" in caplog.text
    caplog.clear()
    it.database.execute("insert into t values (11, 11, 'new')")
    assert it.ids() == [11]
    assert not caplog.records or "was attached" not in caplog.text


def test_attachment_open_during_a_run_is_found_next(source):
    """What counts is when it is committed, not when it began."""
    it = source(PARTED)
    assert it.ids() == list(range(1, 10))
    # It has its number, and locks nothing yet.
    long = it.transaction("select pg_current_xact_id()")
    it.database.execute("insert into t values (10, 10, 'new')")
    assert it.ids() == [10]
    long.execute(ATTACH)
    long.commit()
    it.database.execute("insert into t values (11, 11, 'new')")
    assert it.ids() == [11, *range(101, 110)]
    assert it.ids() == []


def test_table_renamed_to_the_stream_is_sent_whole(source, caplog):
    """Its rows, older than the last run, are not covered by the bookmark."""
    it = source(TABLE + TABLE.replace("table t", "table t2").replace("t_k on t", "t2_k on t2"))
    it.database.execute("insert into t select n, n, 'row' from generate_series(1, 9) n")
    it.database.execute(
        "insert into t2 select n, least(n, 9), 'another' from generate_series(1, 20) n"
    )
    assert it.ids() == list(range(1, 10))
    it.database.execute("alter table t rename to t1; alter table t2 rename to t")

    assert it.ids() == list(range(1, 21))

    assert "another table has taken its name since the last run" in caplog.text
    assert it.ids() == []
    it.database.execute("insert into t values (21, 3, 'late')")
    assert it.ids() == [21]


def test_bookmark_without_table_fits_any_table(source, caplog):
    """Bookmarks of version 0.1.0 continue without repeating a row."""
    it = source()
    it.database.execute("insert into t select n, n, 'row' from generate_series(1, 9) n")
    assert it.ids() == list(range(1, 10))
    del it.pipe.saved["bookmarks"]["public-t"]["snapshot"]["relation"]
    it.pipe.save(it.pipe.saved)
    it.database.execute("insert into t values (-1, 5, 'late')")
    assert it.ids() == [-1]
    assert "taken its name" not in caplog.text
    assert it.bookmark["snapshot"]["relation"] > 0
