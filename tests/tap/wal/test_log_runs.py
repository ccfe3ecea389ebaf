"""What is required of server and table, how a lost position is reported, and in which order changes
come.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from servers.postgresql import PostgreSQL
from tap.wal.piped import TABLE, committed, piped, records, refused
from tap_spark_jdbc.wal import slot
from tap_spark_jdbc.wal.slot import LogSlot


def test_changes_arrive_in_order(spark: object, postgresql: PostgreSQL, tmp_path: Path) -> None:
    """Changes arrive in their order, and an idle run sends nothing."""
    with piped(postgresql, tmp_path, TABLE + "create table items (id int primary key)") as (
        pipe,
        connection,
    ):
        first = committed(pipe)
        assert first.ids("public-orders") == {1: 1, 2: 1, 3: 1}
        assert first.extents == {"public-orders": "full", "public-items": "full"}
        with connection.transaction():
            connection.execute("update orders set note = 'new' where id = 1")
            connection.execute("insert into items values (7)")
            connection.execute("update orders set id = 30, note = 'moved' where id = 3")
            connection.execute("delete from orders where id = 2")
            connection.execute("insert into orders values (2, 'again', null)")
        second = committed(pipe)
        assert records(second) == [
            {"id": 1, "note": "new", "_sdc_unchanged": '["body"]'},
            {"id": 7},
            {"id": 3, "deleted": True},
            {"id": 30, "note": "moved", "body": "x" * 5000},
            {"id": 2, "deleted": True},
            {"id": 2, "note": "again", "body": None},
        ]
        places = {
            each["record"]["_sdc_lsn"] for each in second.messages if each["type"] == "RECORD"
        }
        assert len(places) == 1
        before, idle = second.final, committed(pipe)
        if (
            idle.final != before
        ):  # the server itself has written to its log, as it does every 15 seconds
            assert not records(idle)
            before, idle = idle.final, committed(pipe)
        assert not records(idle)
        assert idle.final == before
        assert [each["type"] for each in idle.messages] == ["STATE", "SCHEMA", "SCHEMA", "STATE"]


def test_idle_run_queries_log_once(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle run queries the log once and loads nothing to read it."""
    asked: list[str] = []
    question = LogSlot._rows
    monkeypatch.setattr(
        LogSlot, "_rows", lambda slot, sql: (asked.append(sql), question(slot, sql))[1]
    )
    with piped(postgresql, tmp_path, TABLE + "create table other (id int)", tables=["orders"]) as (
        pipe,
        connection,
    ):
        committed(pipe)
        connection.execute("insert into other values (1)")
        committed(pipe)
        connection.execute("insert into other values (2)")
        asked.clear()
        monkeypatch.setitem(sys.modules, "tap_spark_jdbc.wal.log_reading", None)
        idle = committed(pipe)
        assert [each["type"] for each in idle.messages] == ["STATE", "SCHEMA", "STATE", "STATE"]
        assert sum("pg_logical_slot_peek" in each for each in asked) == 1
        # The slot, its move, publication, its tables, the end of the log; written first where it
        # lies in memory.
        assert len(asked) - sum(slot._FLUSH in each for each in asked) <= 7
    loaded = (
        "import sys, tap_spark_jdbc.wal.log_run; print({'pyarrow', 'numpy', 'pandas'} & "
        "set(sys.modules))"
    )
    reported = subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True)
    assert reported.stdout == b"set()\n"


def test_slot_advances_only_to_committed_position(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        committed(pipe)
        connection.execute("update orders set note = 'a'")
        lost = pipe.run()
        assert records(pipe.run()) == records(lost)
        older = pipe.saved
        committed(pipe)
        assert older is not None
        # Nothing has moved the slot yet: an older state is replayed.
        pipe.save(older)
        assert records(committed(pipe)) == records(lost)
        connection.execute("update orders set note = 'b'")
        committed(pipe)
        pipe.save(older)
        assert "after the stream's bookmark" in refused(pipe)
        assert "--full" in refused(pipe)
        assert records(pipe.run(full=True)) == [
            {"id": each, "note": "b", "body": "x" * 5000} for each in (1, 2, 3)
        ]


def test_idle_stream_retains_no_log_of_others(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    script = TABLE + "create table other (id int)"
    with piped(postgresql, tmp_path, script, tables=["orders"]) as (pipe, connection):
        committed(pipe)
        question = (
            "select confirmed_flush_lsn from pg_replication_slots where slot_name = "
            "current_database()"
        )
        connection.execute("insert into other select generate_series(1, 1000)")
        committed(pipe)
        before = connection.execute(question).fetchall()
        committed(pipe)
        assert connection.execute(question).fetchall() > before


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("select pg_drop_replication_slot(current_database())", "is gone"),
        (
            "select pg_drop_replication_slot(current_database()); insert into orders values (9);"
            "select pg_create_logical_replication_slot(current_database(), 'pgoutput')",
            "after the stream's bookmark",
        ),
        ("drop table orders; " + TABLE, "dropped and recreated"),
        (
            "alter publication \"the tap's\" drop table orders; update orders set note = 'missed';"
            'alter publication "the tap\'s" add table orders',
            "taken out of the publication",
        ),
        (
            "delete from orders where id = 1; alter table orders rename id to number",
            "key was id and is number now",
        ),
        (
            "delete from orders where id = 1; alter table orders drop constraint orders_pkey;"
            "alter table orders add primary key (id, note)",
            "key was id and is id, note now",
        ),
        ("alter table orders replica identity nothing", "REPLICA IDENTITY NOTHING"),
        ("alter publication \"the tap's\" set (publish = 'insert')", "TAP-058"),
    ],
)
def test_log_gap_is_refused_with_remedy(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, change: str, reported: str
) -> None:
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        committed(pipe)
        for statement in change.split(";"):
            if statement.strip():
                connection.execute(statement)
        line = refused(pipe)
        assert reported in line
        assert "--full" in line or "ALTER" in line


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("create table orders (id int)", "TAP-052"),
        (
            "create table orders (id int primary key); alter table orders replica identity nothing",
            "TAP-052",
        ),
        ("create unlogged table orders (id int primary key)", "TAP-051"),
    ],
)
def test_table_without_identity_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, script: str, code: str
) -> None:
    """The server would refuse every update of it from then on."""
    with piped(postgresql, tmp_path, script) as (pipe, connection):
        assert refused(pipe).startswith(f"TAP-040 {code} stream public-orders: ")
        assert not connection.execute("select * from pg_publication").fetchall()


def test_open_transaction_at_first_run_arrives_once(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with piped(postgresql, tmp_path, TABLE + "create table items (id int primary key)") as (
        pipe,
        connection,
    ):
        pipe.config["tables"] = ["orders"]
        committed(pipe)
        # The slot is there: it waits for nobody any more.
        pipe.config["tables"] = ["orders", "items"]
        with psycopg.connect(connection.info.dsn, password=connection.info.password) as slow:
            slow.execute("insert into orders values (8, 'slow')")
            connection.execute("insert into items values (1)")
            both = committed(pipe)
            assert both.extents == {"public-orders": "delta", "public-items": "full"}
            assert both.ids("public-items") == {1: 1}
            slow.commit()
        connection.execute("insert into items values (2)")
        after = committed(pipe)
        assert (after.ids("public-items"), after.ids("public-orders")) == ({2: 1}, {8: 1})


def test_run_waits_for_slot_in_creation(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed tap may leave a server session that is still creating the slot."""
    script = (
        TABLE
        + 'create publication "the tap\'s" for table orders with (publish_via_partition_root = '
        "true)"
    )
    with piped(postgresql, tmp_path, script) as (pipe, connection):
        dsn = connection.info.dsn + f" password={connection.info.password}"
        with (
            psycopg.connect(dsn) as slow,
            psycopg.connect(dsn, autocommit=True) as dead,
            ThreadPoolExecutor(1) as pool,
        ):
            slow.execute("insert into orders values (8, 'slow')")
            made = "select pg_create_logical_replication_slot(current_database(), 'pgoutput')"
            making = pool.submit(dead.execute, made)
            waits = "select count(*) from pg_replication_slots where slot_name = current_database()"
            while connection.execute(waits).fetchall() != [(1,)]:
                assert not making.done()
            waited = []

            def wait(seconds: float) -> None:
                waited.append(seconds)
                slow.commit()

            monkeypatch.setattr(slot, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
            assert committed(pipe).ids("public-orders") == {1: 1, 2: 1, 3: 1, 8: 1}
            assert waited


def test_truncate_and_new_columns_arrive_in_order(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        committed(pipe)
        connection.execute("insert into orders values (4, 'before', null)")
        connection.execute("truncate orders")
        connection.execute("insert into orders values (5, 'after', null)")
        connection.execute("alter table orders add extra int not null default 5")
        connection.execute("insert into orders values (6, 'wide', null)")
        sent = committed(pipe)
        kinds = [
            (each["type"], each.get("version"))
            for each in sent.messages
            if each["type"] not in ("STATE", "SCHEMA")
        ]
        version = kinds[1][1]
        assert kinds == [
            ("RECORD", None),
            ("ACTIVATE_VERSION", version),
            *[("RECORD", version)] * 2,
        ]
        assert [each.get("extra") for each in records(sent)] == [None, None, 5]
        # The run that continues after a death knows of it.
        connection.execute("truncate orders")
        connection.execute("insert into orders values (7, 'last', null, 1)")
        dead = pipe.run()
        (activated,) = [each for each in dead.messages if each["type"] == "ACTIVATE_VERSION"]
        assert activated in pipe.resumed(dead.until(1)).messages


def test_stream_switches_to_log_and_back(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        logged, others = (
            pipe.config["stream_options"],
            [{"replication_method": "FULL_TABLE"}, {"replication_key": "id"}],
        )
        for number, other in enumerate(others, start=4):
            pipe.config["stream_options"] = {"*": other}
            committed(pipe)
            assert "LOG_BASED" not in json.dumps(pipe.saved)
            # What changes between the methods is in the table, and does not come from the log as
            # well.
            connection.execute("insert into orders values (%s, 'between', null)", (number,))
            pipe.config["stream_options"] = logged
            whole = committed(pipe)
            assert whole.extents == {"public-orders": "full"}
            assert number in whole.ids("public-orders")
            connection.execute("delete from orders where id = %s", (number,))
            assert records(committed(pipe)) == [{"id": number, "deleted": True}]
        connection.execute("update orders set note = 'anew' where id = 1")
        whole = pipe.run(full=True)
        pipe.save(whole.final)
        assert whole.ids("public-orders") == {1: 1, 2: 1, 3: 1}
        assert records(committed(pipe)) == []
        connection.execute("delete from orders where id = 1")
        assert records(committed(pipe)) == [{"id": 1, "deleted": True}]


@pytest.mark.parametrize("full", [False, True])
def test_single_stream_run_keeps_log_of_others(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, full: bool
) -> None:
    """Log positions of the other streams are not advanced."""
    with piped(postgresql, tmp_path, TABLE + "create table items (id int primary key)") as (
        pipe,
        connection,
    ):
        before = committed(pipe).final["bookmarks"]["public-items"]
        for number in (1, 2):
            connection.execute("insert into items values (%s)", [number])
            connection.execute("insert into orders values (%s, 'new', null)", [10 + number])
            part = pipe.run("*-orders", full=full)
            pipe.save(part.final)
            assert part.ids("public-items") == {}
            assert part.ids("public-orders")[10 + number] == 1
            assert part.final["bookmarks"]["public-items"] == before
        last = committed(pipe)
        assert (last.ids("public-items"), last.ids("public-orders")) == ({1: 1, 2: 1}, {})
