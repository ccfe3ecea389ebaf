"""Streams without news are found together by the marks of their rows: SQLite, MariaDB and MySQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from tap.conftest import Tap
from tap.opened import login
from tap.source.mariadb_pipes import run as executed
from tap_spark_jdbc.extract import fingerprints
from tap_spark_jdbc.extract.unchanged_streams import UnchangedStreams
from tap_spark_jdbc.source.connection import Connection
from tap_spark_jdbc.supply import boundary_account, jdbc_reader

pytestmark = pytest.mark.usefixtures("spark")
TABLE = [
    "create table t{n} (id integer primary key, k datetime, v integer, note varchar(40), price "
    "double, bytes blob)",
    "create index i{n} on t{n} (k)",
    "insert into t{n} values (1, '2024-05-01 10:00:00', 1, NULL, 0.1, x'00ff'), (2, '2024-05-01 "
    "10:04:00', 2, '', 1e300, NULL), (3, '2024-05-01 10:04:10', 3, 'Zoë''s \\ ☕', 3, x''), (4, "
    "'2024-05-01 10:04:10', 4, 'N', -0.25, x'4e')",
]
BOTH = {"default_replication_method": "INCREMENTAL", "default_replication_key": "k"}


@pytest.fixture(params=["sqlite", "mariadb", "mysql"])
def shop(request, tmp_path):
    """So many tables, the tap on them, and what executes statements there."""

    def make(tables: int, **settings: Any) -> tuple[Tap, Callable[..., None]]:
        if request.param == "sqlite":
            path = tmp_path / f"source-{tables}.db"
            connection = sqlite3.connect(path, isolation_level=None)
            config: dict[str, Any] = {"jdbc_url": f"jdbc:sqlite:{path}"}

            def execute(*statements: str) -> None:
                for each in statements:
                    connection.execute(each)

        else:
            database = request.getfixturevalue(request.param).new_database()
            config = login(database, schemas=[database.name])

            def execute(*statements: str) -> None:
                executed(database, *statements)

        execute(
            *(
                each.format(n=n).replace("\\", escaped(request.param))
                for n in range(tables)
                for each in TABLE
            )
        )
        return Tap(
            tmp_path, {**config, "spark": {"master": "local[2]"}, **BOTH, **settings}
        ), execute

    return make


def escaped(kind: str) -> str:
    """A backslash in a literal."""
    return "\\" if kind == "sqlite" else "\\\\"


@pytest.fixture
def statements(monkeypatch):
    """The statements of the connections for bounds, and of reading."""
    asked: list[str] = []

    def counted(self, sql):
        asked.append(sql)
        return rows(self, sql)

    def read(self, batch, sink):
        asked.append("read")
        return take(self, batch, sink)

    rows, take = Connection.rows, jdbc_reader.JdbcRows.take
    monkeypatch.setattr(Connection, "rows", counted)
    monkeypatch.setattr(jdbc_reader.JdbcRows, "take", read)
    return asked


def records(run):
    return sorted(
        str((each["stream"], each["record"])) for each in run.messages if each["type"] == "RECORD"
    )


def schemas(run):
    return {each["stream"]: each for each in run.messages if each["type"] == "SCHEMA"}


def test_many_are_one_statement(shop, statements) -> None:
    """A run without news asks as many statements for six tables as for two, and reads none of
    their rows.
    """
    counts = []
    for tables in (2, 6):
        tap, _ = shop(tables)
        first = tap.run_here().succeeded()
        assert len(records(first)) == 4 * tables
        statements.clear()

        again = tap.run_here(state=first.final_state).succeeded()

        assert not records(again)
        assert again.final_state == first.final_state
        assert len(schemas(again)) == tables
        assert "read" not in statements
        counts.append(len(statements))
    assert 0 < counts[0] == counts[1]


# What changes a stream, each in a table of its own.
CHANGES = [
    "insert into t{n} values (9, '2024-05-01 10:05:00', 0, 'x', 0, x'01')",
    "insert into t{n} values (9, '2024-05-01 10:04:10', 0, 'x', 0, x'01')",
    "insert into t{n} values (9, '2024-05-01 10:03:00', 0, 'x', 0, x'01')",
    "insert into t{n} values (9, NULL, 0, 'x', 0, x'01')",
    "update t{n} set note = NULL where id = 4",
    "update t{n} set note = 'n' where id = 4",
    "update t{n} set note = 'N' where id = 2",
    "update t{n} set price = price + 1e-16 where id = 4",
    "update t{n} set price = 0.1 + 0.2 where id = 2",
    "update t{n} set bytes = x'' where id = 2",
    "update t{n} set v = v + 1 where id = 1",
    "update t{n} set note = CASE id WHEN 3 THEN '' ELSE '3' END where id IN (2, 3)",
    "delete from t{n} where id = 4",
    "delete from t{n}",
    "alter table t{n} add column more integer default 7",
    "alter table t{n} rename to gone; alter table other rename to t{n}; "
    "alter table gone rename to other",
]


@pytest.fixture
def few_hashes(monkeypatch):
    """Of more than two rows, only the sums of buckets are kept."""
    for module in (fingerprints, boundary_account):
        monkeypatch.setattr(module, "MAX_WINDOW_HASHES", 2)


@pytest.mark.parametrize("hashes", [None, "few_hashes"], ids=["one by one", "buckets"])
def test_news_is_found_as_by_itself(shop, monkeypatch, request, statements, hashes) -> None:
    """Whatever changes in some of several tables, a run sends what it would send if it asked each
    by itself.
    """
    if hashes is not None:
        request.getfixturevalue(hashes)
    tap, execute = shop(len(CHANGES) + 2)
    execute(f"alter table t{len(CHANGES)} rename to other")
    state = tap.run_here().succeeded().final_state
    for number, change in enumerate(CHANGES):
        execute(*change.format(n=number).split(";"))

    together = tap.run_here(state=state).succeeded()
    with monkeypatch.context() as alone:
        alone.setattr(UnchangedStreams, "among", lambda *_: {})
        each_alone = tap.run_here(state=state).succeeded()

    assert records(together) == records(each_alone)
    assert schemas(together) == schemas(each_alone)
    if hashes is None:
        assert together.final_state == each_alone.final_state
    # The next run reads none of these rows again, nor those beside a deleted one: only the table
    # with a row without key, in two slices.
    statements.clear()
    again = tap.run_here(state=together.final_state).succeeded()
    assert len(records(again)) == 1
    # SQLite can't hash, so it is not asked for a sum of many rows.
    if hashes is None or "sqlite" not in tap.config["jdbc_url"]:
        assert statements.count("read") == 2


def test_changed_stream_is_asked_together_later(shop, statements) -> None:
    """After a run with news, and with a late row, the next run asks all tables together again."""
    tap, execute = shop(3)
    state = tap.run_here().succeeded().final_state
    execute("insert into t1 values (9, '2024-05-01 10:05:00', 0, 'x', 0, x'01')")
    state = tap.run_here(state=state).succeeded().final_state
    execute("insert into t1 values (8, '2024-05-01 10:04:30', 0, 'late', 0, x'01')")
    late = tap.run_here(state=state).succeeded()
    assert len(records(late)) == 1
    statements.clear()

    assert not records(tap.run_here(state=late.final_state).succeeded())
    assert "read" not in statements


@pytest.mark.usefixtures("few_hashes")
@pytest.mark.parametrize("shop", ["mariadb", "mysql"], indirect=True)
def test_rows_of_buckets_are_not_read_without_news(shop, statements) -> None:
    """Each table with too many rows for single fingerprints has a statement of its own; after a
    run with news, too, and after one whose state has no sum of their marks.
    """
    tap, execute = shop(2)
    first = tap.run_here().succeeded().final_state
    execute("update t1 set note = 'n' where id = 4")
    changed = tap.run_here(state=first).succeeded()
    older = json.loads(json.dumps(changed.final_state))
    for each in older["bookmarks"].values():
        assert each["boundary"]["buckets"]
        del each["boundary"]["checksum"]
    again = tap.run_here(state=older).succeeded()
    assert not records(again)
    for state in (first, changed.final_state, again.final_state):
        statements.clear()
        found = records(tap.run_here(state=state).succeeded())
        assert bool(found) == ("read" in statements) == (state is first)


@pytest.mark.parametrize(
    ("shop", "how"),
    [
        *[(server, {"engine": "spark"}) for server in ("sqlite", "mariadb", "mysql")],
        *[(server, {"reader": "arrow"}) for server in ("mariadb", "mysql")],
    ],
    indirect=["shop"],
)
def test_marks_are_independent_of_reader(shop, statements, how) -> None:
    """Rows read by Spark's tasks or by ConnectorX have the marks that the database sums up."""
    tap, _ = shop(2, **how)
    state = tap.run_here().succeeded().final_state
    tap.config = {name: value for name, value in tap.config.items() if name not in how}
    statements.clear()

    assert not records(tap.run_here(state=state).succeeded())
    assert "read" not in statements


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_masked_stream_has_no_sum(shop) -> None:
    """The state holds no sum of rows of which a value is masked, and such a stream is still read
    right.
    """
    tap, _ = shop(
        2, stream_options={"*t1": {"mask": {"note": "hash"}}}, mask_key="a key of the tests"
    )
    first = tap.run_here().succeeded()
    sums = {
        name: each["boundary"].get("checksum")
        for name, each in first.final_state["bookmarks"].items()
    }
    assert [sums[name] is None for name in sorted(sums)] == [False, True]
    assert not records(tap.run_here(state=first.final_state).succeeded())


def test_failing_stream_is_queried_alone(shop, statements) -> None:
    """A stream whose query fails is queried alone; the others stay in one statement."""
    tap, _ = shop(3, on_stream_error="skip")
    state = tap.run_here().succeeded().final_state
    name = next(each for each in state["bookmarks"] if each.endswith("t1"))
    tap.config["stream_options"] = {name: {"where": "no_such_function(k) = 1"}}
    statements.clear()

    run = tap.run_here(state=state)

    assert "1 of 3 streams did not arrive" in run.errors
    assert "no_such_function" in run.errors
    assert run.final_state == state
    assert "read" not in statements
