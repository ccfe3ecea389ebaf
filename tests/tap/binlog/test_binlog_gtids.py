"""A MySQL with transaction identifiers: where a first load begins, and what comes after it."""

from __future__ import annotations

import concurrent.futures
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from end_to_end.marked import until
from servers.child import started
from servers.mysql import MySQL
from tap.binlog.piped import LOGGED, committed, piped, refused, run_script
from tap.binlog.test_binlog_gaps import TABLE, WITH_GTIDS
from tap.binlog.test_binlog_runs import changes
from tap.dying import Pipe
from tap_spark_jdbc.binlog import binlog_server

# Each change must come once.
KEEPING = {"*": {**LOGGED["*"], "load_method": "append-dedup"}}


@pytest.fixture(scope="module")
def with_gtids(mysql: MySQL) -> Iterator[MySQL]:
    """A MySQL whose transactions have identifiers, and whose commits may wait for a replica."""
    del mysql  # skips where there is none
    options = [
        *WITH_GTIDS,
        "--set=plugin-load-add=semisync_source.so",
        "--set=rpl-semi-sync-source-timeout=600000",
    ]
    with started("servers.mysql", *options) as facts:
        yield MySQL(**facts)


def read_without_lock(pipe: Pipe, cursor: pymysql.cursors.Cursor) -> None:
    """Let a pipeline log in as a user that may not lock tables."""
    database = pipe.config["schemas"][0]
    grants = (
        f"select on {database}.* to reader;\ngrant replication slave, replication client on "
        "*.* to reader"
    )
    run_script(
        cursor,
        f"drop user if exists reader;\ncreate user reader identified by 'secret';\ngrant {grants}",
    )
    pipe.config.update(user="reader", password="secret")


def test_commit_awaiting_replica_is_not_lost(
    with_gtids: MySQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit in the log but not yet visible at the first read arrives with the changes; a stream
    in which each change must come once needs a lock.
    """
    monkeypatch.setattr(binlog_server, "_QUIET_SECONDS", 0.1)
    with piped(with_gtids, tmp_path, TABLE) as (pipe, cursor):
        read_without_lock(pipe, cursor)
        cursor.execute("set global rpl_semi_sync_source_enabled = on")
        database = with_gtids.database(pipe.config["schemas"][0])
        with concurrent.futures.ThreadPoolExecutor() as threads, database.connect() as other:
            writing = threads.submit(other.query, "insert into t values (3, 3)")
            until(lambda: waits(cursor), "a commit that waits for a replica")
            appending = Pipe(tmp_path / "appended", {**pipe.config, "stream_options": KEEPING})
            assert re.match("TAP-060 .*GRANT LOCK TABLES", refused(appending))
            ids = Counter(each["id"] for each in changes(committed(pipe)))
            assert ids == {1: 1, 2: 1}
            cursor.execute("set global rpl_semi_sync_source_enabled = off")
            writing.result()
        ids.update(each["id"] for each in changes(committed(pipe)))
        assert ids == {1: 1, 2: 1, 3: 1}


def test_constantly_busy_server_loses_no_change(
    with_gtids: MySQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lock a change may be repeated, but none is missing."""
    real = binlog_server._quiet_moment

    def quiet_moment(connection: Any) -> tuple[str, bool]:
        """Before each look at the transactions another one is committed."""

        def statement() -> SimpleNamespace:
            made = connection.createStatement()

            def ask(sql: str) -> Any:
                cursor.execute("insert into busy.t values (null)")
                return made.executeQuery(sql)

            return SimpleNamespace(executeQuery=ask, execute=made.execute, close=made.close)

        return real(SimpleNamespace(createStatement=statement))

    with piped(with_gtids, tmp_path, TABLE) as (pipe, cursor):
        read_without_lock(pipe, cursor)
        run_script(
            cursor, "create database busy;\ncreate table busy.t (id int primary key auto_increment)"
        )
        with monkeypatch.context() as patched:
            patched.setattr(binlog_server, "_QUIET_SECONDS", 0.1)
            patched.setattr(binlog_server, "_quiet_moment", quiet_moment)
            other = Pipe(pipe.folder, {**pipe.config, "stream_options": KEEPING})
            assert re.match("TAP-060 .*GRANT LOCK TABLES", refused(other))
            ids = {each["id"] for each in changes(committed(pipe))}
        cursor.execute("insert into t values (3, 3)")
        sent = changes(committed(pipe))
        assert ids == {1, 2}
        assert [each["id"] for each in sent] == [3]


def test_tagged_transactions(with_gtids: MySQL, tmp_path: Path) -> None:
    """Where a client gives its transactions tags, places count; another server can't continue."""
    with piped(with_gtids, tmp_path, TABLE) as (pipe, cursor):
        committed(pipe)
        cursor.execute("set gtid_next = 'AUTOMATIC:nightly'")
        cursor.execute("insert into t values (3, 3)")
        cursor.execute("set gtid_next = 'AUTOMATIC'")
        cursor.execute("insert into t values (4, 4)")
        assert [each["id"] for each in changes(committed(pipe))] == [3, 4]
        cursor.execute("insert into t values (5, 5)")
        state = committed(pipe).final
        pipe.save(
            {
                "bookmarks": {
                    name: {**each, "server": "other"} for name, each in state["bookmarks"].items()
                }
            }
        )
        assert "another server" in refused(pipe)
        first = Pipe(tmp_path / "again", pipe.config)
        assert {each["id"] for each in changes(committed(first))} == {1, 2, 3, 4, 5}


def waits(cursor: pymysql.cursors.Cursor) -> bool:
    """Whether a commit waits for a replica."""
    cursor.execute("show global status like 'Rpl_semi_sync_source_wait_sessions'")
    return cursor.fetchall()[0][1] != "0"


def test_start_position_needs_lock_without_gtids(
    with_gtids: MySQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where commits wait for a replica and have no identifiers, a lock is needed to know where
    reading begins.
    """
    monkeypatch.setattr(binlog_server, "_SETTLED_SECONDS", 0.1)
    modes = ("ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
    with piped(with_gtids, tmp_path, TABLE) as (pipe, cursor):
        read_without_lock(pipe, cursor)
        try:
            for mode in modes[1:]:
                cursor.execute(f"set global gtid_mode = {mode}")
            cursor.execute("set global rpl_semi_sync_source_enabled = on")
            assert re.match("TAP-060 .*GRANT LOCK TABLES", refused(pipe))
            cursor.execute("set global rpl_semi_sync_source_enabled = off")
            assert len(changes(committed(pipe))) == 2
        finally:
            for mode in modes[-2::-1]:
                cursor.execute(f"set global gtid_mode = {mode}")
