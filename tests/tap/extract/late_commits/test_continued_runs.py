"""A run that continues finds what was written late where the dead one had been."""

from __future__ import annotations

import json

import pytest

from tap.extract.late_commits.driven_source import TABLE, UNINDEXED


@pytest.mark.parametrize(
    ("script", "deaths"), [(TABLE, [2, 5]), (UNINDEXED, [3])], ids=["indexed", "unindexed"]
)
def test_resumed_run_finds_late_committed_rows(source, script, deaths):
    """A resumed run finds late-committed rows in the range that the dead run had read."""
    # The second half of the rows has one key, and is cut along the primary key where the key has an
    # index.
    rows = "insert into t select n, least(n, 12), 'row' from generate_series(1, 24) n;"
    it = source(script + rows)
    for number in deaths:
        it.database.execute(f"drop table t; {script} {rows}")
        it.pipe.forget()
        long = it.transaction(
            "insert into t values (-5, 3, 'late')", "savepoint s", "update t set k = 1, v = 'late' "
                "where id = 8",
            "insert into t values (14, 12, 'late') on conflict (id) do update set v = 'late'",
        )  # fmt: skip
        other = it.transaction()
        died = it.pipe.run().until(number)
        assert 10 <= len(died.rows) < 24
        it.pipe.die(died)
        other.execute("insert into t values (-6, 4, 'later')")
        other.commit()
        it.database.execute("insert into t values (30, 40, 'new')")
        continued = it.pipe.run()
        it.pipe.save(continued.final)
        long.commit()
        news = it.pipe.run()

        assert continued.start == "resume"
        arrived = died.rows + continued.rows + news.rows
        assert set(arrived.values()) == {1}, number
        assert not it.rows() - arrived, number
        assert {-5, 8} <= set(news.ids("public-t")), number


@pytest.mark.parametrize(
    ("script", "number"), [(TABLE, 5), (UNINDEXED, 3)], ids=["indexed", "unindexed"]
)
def test_resumed_run_finds_rows_at_its_upper_bound(source, script, number):
    """A resumed run finds rows at its upper bound in the range that the dead run had read."""
    it = source(
        script + "insert into t select n, least(n, 12), 'row' from generate_series(1, 24) n;"
    )
    died = it.pipe.run().until(number)
    gone = max(died.ids("public-t"))
    assert 12 < gone < 24
    it.pipe.die(died)
    it.database.execute(
        f"insert into t values (-1, 12, 'new'); update t set v = 'changed' where id = {gone}; "
        "update t set v = 'changed' where id = 3"
    )
    continued = it.pipe.run()
    assert continued.start == "resume"
    # It may die again right behind these rows.
    it.pipe.die(continued.until(1))
    last = it.pipe.run()
    it.pipe.save(last.final)

    late = continued.until(1).rows
    assert {json.loads(row)[1]["id"] for row in late} == {-1, 3, gone}
    arrived = died.rows + late + last.rows
    assert set(arrived.values()) == {1}
    assert not it.rows() - arrived
    assert it.ids() == []
    it.pipe.saved["bookmarks"]["public-t"].pop("snapshot")
    it.pipe.save(it.pipe.saved)
    assert it.ids() == []
