"""A server that is not the bookmark's: an upgrade, a restore, a failover."""

from __future__ import annotations

import pytest

MOVES = {
    "another system": {"system": "1"},
    "another timeline": {"timeline": 99},
    "an earlier state": {"xmax": 2**40},
}
ROWS = "insert into t select n, n, 'row' from generate_series(1, 10) n"


def move(it, change):
    it.pipe.saved["bookmarks"]["public-t"]["snapshot"] |= change
    it.pipe.save(it.pipe.saved)


@pytest.mark.parametrize(
    ("name", "news"),
    [("another system", True), ("another timeline", False), ("an earlier state", True)],
)
def test_first_run_on_new_server_resends_table(source, caplog, name, news):
    """Even without changes, rows committed around the move arrive, as do later late rows."""
    caplog.set_level("INFO")
    it = source()
    it.database.execute(ROWS)
    assert it.ids() == list(range(1, 11))
    system = it.bookmark["snapshot"]["system"]
    timeline = it.bookmark["snapshot"]["timeline"]
    assert timeline >= 1
    move(it, MOVES[name])
    it.database.execute("insert into t values (-1, 5, 'around the move')")
    if news:
        it.database.execute("insert into t values (11, 11, 'new')")

    # What shares the bookmark's key is known by its content.
    assert it.ids() == [-1, *range(1, 10), *([11] if news else [])]

    said = [
        each.getMessage()
        for each in caplog.records
        if "(upgraded, restored or failed over)" in each.getMessage()
    ]
    assert len(said) == 1
    for words in ("stream public-t", "bookmark 10", "all rows up to", "an append-only table"):
        assert words in said[0]
    assert "stream public-t: 10 rows at or below the bookmark were sent again" in caplog.text
    assert (it.bookmark["snapshot"]["system"], it.bookmark["snapshot"]["timeline"]) == (
        system,
        timeline,
    )

    long = it.transaction("insert into t values (-2, 4, 'late')")
    it.database.execute("insert into t values (12, 12, 'new')")
    assert it.ids() == [12]
    long.commit()
    it.database.execute("insert into t values (-3, 3, 'with an older key')")
    assert it.ids() == [-3, -2]
    assert it.ids() == []
    assert caplog.text.count("this server is not the last run's (") == 1


@pytest.mark.parametrize("name", ["another timeline", "an earlier state"])
def test_window_is_resent_on_another_server(source, caplog, name):
    """On another server the window is sent again, and possible gaps below it are reported."""
    it = source(late_rows="window", late_window=4)
    it.database.execute(ROWS)
    it.ids()
    move(it, MOVES[name])
    it.database.execute(
        "insert into t values (-1, 8, 'around the move'), (-2, 2, 'around it, and too old')"
    )

    assert it.ids() == [-1, 6, 7, 8, 9]

    for words in (
        "the rows of the window of 4 up to the bookmark 10",
        "verify --repair --stream public-t",
    ):
        assert words in caplog.text
    it.database.execute("insert into t values (-3, 7, 'late'), (11, 11, 'new')")
    assert it.ids() == [-3, 11]
    assert it.ids() == []


@pytest.mark.parametrize("name", ["another system", "another timeline"])
def test_stream_without_window_reports_possible_gaps(source, caplog, name):
    """On another server a stream without a window reports what may be missing."""
    it = source(late_rows="open")
    it.database.execute(ROWS)
    long = it.transaction()
    it.ids()
    move(it, MOVES[name])
    long.rollback()
    it.database.execute("insert into t values (-1, 5, 'around the move')")

    # A failover continues the numbers of transactions, so what has a later one is found.
    assert it.ids() == ([-1] if name == "another timeline" else [])

    for words in (
        "stream public-t",
        "bookmark 10",
        "may be missing",
        "verify --repair --stream public-t",
        "state set",
    ):
        assert words in caplog.text


def test_bookmark_without_timeline_fits_any_timeline(source, caplog):
    """A bookmark of an older version, without a timeline, resends no table."""
    it = source()
    it.database.execute(ROWS)
    it.ids()
    del it.pipe.saved["bookmarks"]["public-t"]["snapshot"]["timeline"]
    it.pipe.save(it.pipe.saved)
    it.database.execute("insert into t values (-1, 5, 'late')")
    assert it.ids() == [-1]
    assert "not the last run's" not in caplog.text
    assert it.bookmark["snapshot"]["timeline"] >= 1


def test_dump_and_restore_reports_repeated_rows(source, caplog):
    """On the same server all rows have new writers then, so nothing distinguishes them from late
    ones.
    """
    caplog.set_level("INFO")
    it = source()
    it.database.execute(ROWS)
    it.ids()
    it.database.execute(
        "create table dump as select * from t; truncate t; insert into t select * from dump"
    )
    assert it.ids() == list(range(1, 10))
    assert "stream public-t: 9 rows at or below the bookmark" in caplog.text
    assert "an append-only table holds them twice" in caplog.text
