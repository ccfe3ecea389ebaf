"""A server that is not the bookmark's: an upgrade, a restore, a failover."""

from __future__ import annotations

import pytest

MOVES = {"another system": {"system": "1"}, "another timeline": {"timeline": 99}, "an earlier state": {"xmax": 2**40}}
ROWS = "insert into t select n, n, 'row' from generate_series(1, 10) n"


def move(it, change):
    it.pipe.saved["bookmarks"]["public-t"]["snapshot"] |= change
    it.pipe.save(it.pipe.saved)


@pytest.mark.parametrize("news", [False, True], ids=["quiet", "with news"])
@pytest.mark.parametrize("change", MOVES.values(), ids=MOVES)
def test_on_another_server_the_first_run_says_what_may_be_missing_and_the_guard_is_on_again(
    source, caplog, change, news
):
    """Also if that run brings nothing new: each later run finds what is committed late on the new server."""
    it = source()
    it.database.execute(ROWS)
    assert it.ids() == list(range(1, 11))
    system = it.bookmark["snapshot"]["system"]
    timeline = it.bookmark["snapshot"]["timeline"]
    assert timeline >= 1
    move(it, change)
    it.database.execute("insert into t values (-1, 5, 'around the move')")
    if news:
        it.database.execute("insert into t values (11, 11, 'new')")

    # A failover goes on with the numbers of transactions, so what has a later one is found.
    found = [-1] if "timeline" in change else []
    assert it.ids() == [*found, *([11] if news else [])]

    said = [each.getMessage() for each in caplog.records if "another server" in each.getMessage()]
    assert len(said) == 1
    for words in ("stream public-t", "bookmark 10", "may be missing", "verify --repair --stream public-t", "state set"):
        assert words in said[0]
    assert (it.bookmark["snapshot"]["system"], it.bookmark["snapshot"]["timeline"]) == (system, timeline)

    long = it.transaction("insert into t values (-2, 4, 'late')")
    it.database.execute("insert into t values (12, 12, 'new')")
    assert it.ids() == [12]
    long.commit()
    it.database.execute("insert into t values (-3, 3, 'with an older key')")
    assert it.ids() == [-3, -2]
    assert it.ids() == []
    assert len([each for each in caplog.records if "another server" in each.getMessage()]) == 1


def test_a_bookmark_of_an_older_version_is_of_any_timeline(source, caplog):
    it = source()
    it.database.execute(ROWS)
    it.ids()
    del it.pipe.saved["bookmarks"]["public-t"]["snapshot"]["timeline"]
    it.pipe.save(it.pipe.saved)
    it.database.execute("insert into t values (-1, 5, 'late')")
    assert it.ids() == [-1]
    assert "another server" not in caplog.text


def test_after_a_dump_and_restore_it_is_said_how_many_rows_came_again(source, caplog):
    """On the same server all rows have new writers then: nothing tells them from late ones."""
    caplog.set_level("INFO")
    it = source()
    it.database.execute(ROWS)
    it.ids()
    it.database.execute("create table dump as select * from t; truncate t; insert into t select * from dump")
    assert it.ids() == list(range(1, 10))
    assert "stream public-t: 9 rows at or below the bookmark" in caplog.text
    assert "an append-only table holds them twice" in caplog.text
