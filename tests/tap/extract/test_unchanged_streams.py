"""Streams without news are found together, by the same rules as one by one (PostgreSQL)."""

from __future__ import annotations

import time
from threading import Thread

import psycopg
import pytest

from tap_spark_jdbc.extract import server
from tap_spark_jdbc.extract.unchanged_streams import UnchangedStreams
from tap_spark_jdbc.source.connection import Connection

pytestmark = pytest.mark.usefixtures("spark")
TABLE = """
create table t{n} (id integer primary key, k integer, v integer);
create index on t{n} (k);
insert into t{n} select n, n, n from generate_series(1, 9) n;
"""
SETTINGS = {
    "schemas": ["public"],
    "default_replication_method": "INCREMENTAL",
    "default_replication_key": "k",
}
# Of the one table, by a statement of its own.
WAITING = """
select query from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query not like '%string_agg%'
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(server, "PATIENCE_SECONDS", 0.05)


@pytest.fixture
def statements(monkeypatch):
    """The statements of the connections for bounds."""
    asked = []

    def counted(self, sql):
        asked.append(sql)
        return rows(self, sql)

    rows = Connection.rows
    monkeypatch.setattr(Connection, "rows", counted)
    return asked


def shop(postgres, tables, **settings):
    script = "create schema aside;" + "".join(TABLE.format(n=n) for n in range(tables))
    return postgres(script, **SETTINGS, **settings)


def asked(tap, statements, state):
    statements.clear()
    run = tap.run_here(state=state).succeeded()
    assert run.final_state == state
    assert not [each for each in run.messages if each["type"] == "RECORD"]
    return len(statements)


def test_many_are_one_statement(postgres, statements):
    """A run without news asks as many statements for six tables as for two, also after others
    have written.
    """
    counts = []
    for tables in (2, 6):
        tap, database = shop(postgres, tables)
        first = tap.run_here().succeeded()
        database.execute("create table aside.other as select 1")

        counts.append(asked(tap, statements, first.final_state))

        assert {each["stream"] for each in first.messages if each["type"] == "SCHEMA"} == {
            f"public-t{n}" for n in range(tables)
        }
    assert 0 < counts[0] == counts[1]


# What changes a stream, each in a table of its own.
CHANGES = [
    "insert into t{n} values (10, 10, 0)",
    "insert into t{n} values (10, 9, 0)",
    "insert into t{n} values (10, 3, 0)",
    "insert into t{n} values (10, NULL, 0)",
    "update t{n} set v = 0 where id = 9",
    "update t{n} set v = 0 where id = 1",
    "delete from t{n} where id = 9",
    "delete from t{n} where id = 1",
    "truncate t{n}",
    "alter table t{n} add column more integer default 7",
    "create table aside.heir (like t{n}); insert into aside.heir values (20, 2, 2); alter table "
    "aside.heir inherit t{n}",
    "alter table t{n} rename to gone; alter table other rename to t{n}; "
    "alter table gone rename to other",
    "alter table t{n} alter column v type bigint",
    "vacuum full t{n}",
]


def test_news_is_found_as_by_itself(postgres, monkeypatch):
    """Whatever changes in some of several tables, a run sends what it would send if it asked each
    by itself.
    """
    tap, database = shop(postgres, len(CHANGES) + 2)
    database.execute(f"alter table t{len(CHANGES)} rename to other")
    state = tap.run_here().succeeded().final_state
    database.execute("create table aside.older as select 1")
    for number, change in enumerate(CHANGES):
        for statement in change.format(n=number).split(";"):
            database.execute(statement)

    together = tap.run_here(state=state).succeeded()
    with monkeypatch.context() as alone:
        alone.setattr(UnchangedStreams, "among", lambda *_: {})
        each_alone = tap.run_here(state=state).succeeded()

    assert sorted(map(str, records(together))) == sorted(map(str, records(each_alone)))
    assert together.final_state == each_alone.final_state
    assert schemas(together) == schemas(each_alone)


def records(run):
    return [(each["stream"], each["record"]) for each in run.messages if each["type"] == "RECORD"]


def schemas(run):
    return {each["stream"]: each for each in run.messages if each["type"] == "SCHEMA"}


def test_rows_of_an_open_transaction_are_found_later(postgres):
    """A row that is committed after the tables were asked is sent by the next run."""
    tap, database = shop(postgres, 3)
    state = tap.run_here().succeeded().final_state
    with psycopg.connect(database.info.dsn, password=database.info.password) as writer:
        writer.execute("insert into t1 values (10, 2, 0)")
        database.execute("create table aside.other as select 1")
        between = tap.run_here(state=state).succeeded()
        assert records(between) == []
    after = tap.run_here(state=between.final_state).succeeded()
    assert [record["id"] for _, record in records(after)] == [10]


def test_empty_tables_share_one_statement(postgres, statements):
    """An empty table needs no statement of its own, and its first row is sent normally."""
    tap, database = shop(postgres, 3)
    database.execute("truncate t1")
    first = tap.run_here().succeeded()
    assert "public-t1" not in first.final_state["bookmarks"]

    asked(tap, statements, first.final_state)
    assert not [each for each in statements if '"t1" ' in each and "string_agg" not in each]
    database.execute("insert into t1 values (1, 1, 1)")
    after = tap.run_here(state=first.final_state).succeeded()

    assert records(after) == [("public-t1", {"id": 1, "k": 1, "v": 1})]
    assert schemas(after)["public-t1"]["schema"]["x-extent"] == "full"


def test_failing_stream_leaves_others_together(postgres, statements):
    """A stream whose query fails is queried alone; the others stay in one statement."""
    options = {"stream_options": {"public-t1": {"where": "10 / v > 0"}}, "on_stream_error": "skip"}
    tap, database = shop(postgres, 4, **options)
    state = tap.run_here().succeeded().final_state
    database.execute("update t1 set v = 0 where id = 1")
    statements.clear()

    run = tap.run_here(state=state)

    assert "1 of 4 streams did not arrive" in run.errors
    assert "division by zero" in run.errors
    assert run.final_state == state
    assert not [each for each in statements if '"t3" ' in each and "string_agg" not in each]


def test_locked_table_does_not_delay_others(postgres, statements):
    """While waiting for it, the run holds no lock on any other table."""
    tap, database = shop(postgres, 4)
    state = tap.run_here().succeeded().final_state
    with psycopg.connect(database.info.dsn, password=database.info.password) as other:
        other.execute("lock table t1")
        other.execute("insert into t1 values (10, 10, 0)")
        sent = []
        runner = Thread(target=lambda: sent.append(tap.run_here(state=state)))
        runner.start()
        deadline = time.monotonic() + 120
        while not database.execute(WAITING).fetchall():
            assert runner.is_alive()
            assert time.monotonic() < deadline
        held = (
            "select count(*) from pg_locks where granted and relation in ('t0'::regclass, "
            "'t2'::regclass)"
        )
        assert database.execute(held).fetchone() == (0,)
    runner.join()
    assert [record["id"] for _, record in records(sent[0].succeeded())] == [10]
