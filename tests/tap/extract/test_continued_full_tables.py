"""A full table of which a dead run had sent a part, or all."""

import json
from collections import Counter

import pytest

from tap.extract.resumed_pipes import SCRIPT

A_WHOLE = "public-a_whole"
# What happens to a full table between a death and the run that continues, and whether what was sent
# can be used.
FATES = {
    "quiet": ("select 1", True),
    "rows added": (
        "insert into a_whole values (100, 'new'), (-1, 'below'); delete from a_whole where id = -2",
        True,
    ),
    "row deleted": ("delete from a_whole where id = 0", False),
    "row changed": ("update a_whole set v = 'changed' where id = 1", False),
    "deleted and added": (
        "delete from a_whole where id = 0; insert into a_whole values (-1, 'in its place')",
        False,
    ),
    "rewritten": (
        "truncate a_whole; insert into a_whole select n, 'row ' || n from generate_series(0, 11) n",
        False,
    ),
}


@pytest.mark.parametrize(
    ("sent", "fate"),
    [
        *[("a part", fate) for fate in FATES],
        *[("all", fate) for fate in ("rows added", "row changed", "deleted and added")],
    ],
)
def test_full_table_over_two_runs_is_current(postgres_pipe, caplog, fate, sent):
    """What was sent before a death is used only if none of its rows was changed or deleted
    since.
    """
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
    arrived = Counter(
        row for row in before.followed_by(rest).elements() if json.loads(row)[0] == A_WHOLE
    )
    assert arrived == Counter(whole_rows_now(database))


def test_full_table_resumed_twice_is_current(postgres_pipe):
    """Rows that were added since the first death count as sent after the second: one that is
    deleted is noticed.
    """
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


def test_full_table_without_proof_is_read_from_start(sqlite_pipe):
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
