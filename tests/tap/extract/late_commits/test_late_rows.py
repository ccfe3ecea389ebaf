"""PostgreSQL: rows that are committed late arrive once, whatever their keys and however long their
transactions ran.
"""

from __future__ import annotations

import psycopg
import pytest

from tap.extract.late_commits.driven_source import TABLE
from tap_spark_jdbc.extract import server, stream_snapshot


def test_late_committed_row_is_never_skipped(source):
    """A late-committed row is never skipped, however its transaction wrote it."""
    it = source(TABLE + "insert into t values (1, 100, 'seen'), (2, 100, 'seen');")
    idle = it.transaction()
    plain = it.transaction(
        "insert into t values (10, 1, 'late')", "update t set k = 2, v = 'late' where id = 2"
    )
    saved = it.transaction(
        "insert into t values (20, 3, 'late')",
        "savepoint one",
        "insert into t values (21, 3, 'late')",
        "release one",
        "savepoint two",
        "insert into t values (22, 3, 'undone')",
        "rollback to two",
        "do $$ begin for n in 23..24 loop begin insert into t values (n, 3, 'late'); "
        "exception when others then null; end; end loop; end $$",
    )
    prepared = it.transaction(
        "insert into t values (30, 4, 'late')", "prepare transaction 'two phases'"
    )
    # Committed in between by subtransactions of their own: a run sees these, and the next must not
    # send them again.
    nested = it.transaction(
        "insert into t values (40, 90, 'in time')",
        "savepoint s",
        "insert into t values (41, 90, '')",
    )
    nested.commit()
    undone = it.transaction("insert into t values (50, 5, 'undone')")

    assert it.ids() == [1, 2, 40, 41]
    assert it.bookmark["replication_key_value"] == 100

    idle.execute(
        "insert into t values (60, 6, 'late: it began before the run, and wrote after it')"
    )
    idle.commit()
    plain.execute("insert into t values (11, 1, 'late')")
    plain.commit()
    undone.rollback()
    assert it.ids() == [2, 10, 11, 60]

    it.database.execute("commit prepared 'two phases'")
    it.database.execute("vacuum freeze t")
    assert it.ids() == [30]

    it.database.execute("insert into t values (3, 110, 'next')")
    saved.commit()
    it.database.execute("vacuum full t")
    assert it.ids() == [3, 20, 21, 23, 24]
    assert prepared.closed is False

    assert it.ids() == []
    before = it.bookmark
    assert it.ids() == []
    assert it.bookmark == before


SEQUENCE = (
    "create sequence s cache 10; create table t (id bigint primary key default "
    "nextval('s'), v text);"
)


@pytest.mark.parametrize(
    "table",
    [
        SEQUENCE,
        SEQUENCE.replace(" primary key", " not null unique"),
        SEQUENCE.replace("v text)", "v text) partition by range (id)")
        + "create table t1 partition of t for values from (1) to (12); create table t2 partition "
        "of t default;",
    ],
    ids=["primary key", "no key", "partitions"],
)
def test_row_below_the_bookmark_is_never_skipped(source, table):
    """A row below the bookmark is never skipped, whenever its transaction began."""
    it = source(table, incremental_tables=["public.t:id:integer"])
    # Each session takes ten numbers at once.
    one, two = it.transaction(), it.transaction()
    insert = "insert into t (v) values ('row') returning id"

    def ids(session: psycopg.Connection, rows: int = 1) -> list[int]:
        found = [number for _ in range(rows) for (number,) in session.execute(insert)]
        session.commit()
        return found

    assert ids(one) + ids(two) == [1, 11]
    assert it.ids() == [1, 11]
    assert ids(one, 2) == [2, 3]
    assert it.ids() == [2, 3]
    with two.transaction(), two.transaction():
        two.execute(insert)
    assert ids(one) + ids(two) == [4, 13]
    two.execute("update t set v = 'changed' where id = 2")
    two.commit()
    assert it.ids() == [2, 4, 12, 13]
    it.database.execute("insert into t values (-5, 'by hand')")
    it.database.execute("vacuum freeze t")
    assert it.ids() == [-5]
    assert it.ids() == []


def test_late_rows_open_skips_closed_transactions(source):
    """With ascending keys, `late_rows: open` looks only for rows of open transactions."""
    it = source(stream_options={"public-t": {"late_rows": "open"}})
    it.database.execute("insert into t values (1, 10, 'row')")
    long = it.transaction("insert into t values (2, 5, 'late')")
    assert it.ids() == [1]
    long.commit()
    assert it.ids() == [2]
    assert set(it.bookmark) == {"replication_key", "replication_key_value", "boundary"}
    # Nobody had a transaction open.
    it.database.execute("insert into t values (70, 7, 'an old key')")
    assert it.ids() == []


def test_no_table_is_scanned_without_writes(source, monkeypatch):
    it = source(TABLE + "insert into t values (1, 10, 'row');")
    assert it.ids() == [1]
    looks = []
    monkeypatch.setattr(stream_snapshot, "written_query", lambda *looked: looks.append(looked))
    assert it.ids() == []
    assert looks == []


def test_unreached_bookmark_rows_stay_unseen(source):
    """Rows at a bookmark that a run does not reach are not taken as seen."""
    it = source(
        "create table t (id integer primary key, k date, v text); create index on t (k);"
        "insert into t values (1, current_date - 3, 'row'), (2, current_date + 1, 'row'), (3, "
        "current_date + 1, 'row')",
        incremental_tables=["public.t:k:date"],
    )
    assert it.ids() == [1, 2, 3]
    it.pipe.config["settle_seconds"] = 3600
    it.database.execute(
        "insert into t values (4, current_date + 1, 'new'); update t set v = 'late' where id in "
        "(1, 3)"
    )
    assert it.ids() == [1, 3, 4]
    assert it.bookmark["boundary"]["rows"] == 4
    it.database.execute("insert into t values (5, current_date + 1, 'new')")
    it.pipe.config["settle_seconds"] = 0
    assert it.ids() == [5]
    assert it.ids() == []


def test_bookmark_set_back_includes_its_value(source):
    """A bookmark that is set back by hand also sends the rows at its value."""
    it = source(TABLE + "insert into t select n, n, 'row' from generate_series(1, 9) n;")
    assert it.ids() == list(range(1, 10))
    it.bookmark["replication_key_value"] = 7
    it.pipe.save(it.pipe.saved)
    it.database.execute("insert into t values (10, 3, 'late')")
    assert it.ids() == [7, 8, 9, 10]
    assert it.ids() == []


def test_reverted_row_at_the_bookmark_is_sent_again(source):
    """A row at the bookmark that changes back to an earlier value is sent again."""
    it = source(TABLE + "insert into t values (1, 10, 'on'), (2, 10, 'on');")
    assert it.ids() == [1, 2]
    for value in ("off", "on", "off"):
        it.database.execute(f"update t set v = '{value}' where id = 1")
        assert it.ids() == [1]
    assert it.ids() == []


def test_missing_shared_snapshot_skips_nothing(source, caplog):
    """Without a shared snapshot nothing is skipped, and the log says so."""
    it = source(TABLE + "insert into t select n, n, 'row' from generate_series(1, 20) n;")
    user = f"reader_{it.database.info.dbname}"
    it.database.execute(
        f"revoke execute on function pg_export_snapshot() from public; create role {user} login "
        f"password 'r';grant select on t to {user}"
    )
    it.pipe.config.update(user=user, password="r")
    long = it.transaction(
        "insert into t values (-1, 2, 'late')",
        "savepoint s",
        "insert into t values (-2, 3, 'late')",
    )

    assert it.ids() == list(range(1, 21))
    assert "no snapshot can be shared here" in caplog.text
    long.commit()
    assert it.ids() == [-2, -1]
    assert it.ids() == []


def test_computed_key_is_guarded_like_column(source):
    it = source(
        TABLE + "insert into t values (1, -100, 'row');",
        incremental_tables=[],
        stream_options={"public-t": {"replication_key": "abs(k)"}},
    )
    long = it.transaction("insert into t values (2, 5, 'late')")

    assert it.ids() == [1]
    long.commit()
    assert it.ids() == [2]


def test_unguarded_view_is_logged(source, caplog):
    it = source(
        TABLE.replace("table t", "table b").replace("on t", "on b")
        + "create view t as select * from b;"
    )
    it.database.execute("insert into t values (1, 10, 'row')")
    it.transaction("insert into t values (2, 5, 'late')")

    assert it.ids() == [1]
    assert "its rows don't show which transaction wrote them" in caplog.text
    assert "snapshot" not in it.bookmark


def test_server_older_than_13_is_read_with_a_note(source, caplog, monkeypatch):
    """A server older than 13 is read, and the log says what it lacks."""
    it = source(TABLE + "insert into t values (1, 10, 'row');")
    monkeypatch.setattr(server, "_VERSION", "SELECT '120007' AS n, '12.7' AS v")
    it.transaction("insert into t values (2, 5, 'late')")

    assert it.ids() == [1]
    (reported,) = [each.message for each in caplog.records if "PostgreSQL 12.7" in each.message]
    assert "older than 13" in reported
    assert "safety_lag_seconds" in reported
    assert "snapshot" not in it.bookmark
    it.database.execute("insert into t values (3, 11, 'new')")
    assert it.ids() == [3]
