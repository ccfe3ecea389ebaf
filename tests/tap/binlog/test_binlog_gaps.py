"""Never a gap: what the log does not have is refused before anything is sent, with what to do."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from servers.child import started
from servers.mariadb import MariaDB
from servers.mysql import MySQL
from singer_spark.errors import StateError
from tap.binlog.piped import committed, piped, refused, run_script, setting
from tap.binlog.test_binlog_runs import bookmark, changes
from tap.dying import Pipe
from tap_spark_jdbc.binlog.dump import refusal

TABLE = "create table t (id int primary key, v int);\ninsert into t values (1, 1), (2, 2)"
# Options of a MySQL server.
WITH_GTIDS = ("--set=gtid-mode=ON", "--set=enforce-gtid-consistency=ON")


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def own(request: pytest.FixtureRequest) -> Iterator[MariaDB]:
    """A server whose settings and logs are this module's alone."""
    request.getfixturevalue(request.param)  # skips where there is none
    with started(f"servers.{request.param}") as facts:
        yield (MySQL if request.param == "mysql" else MariaDB)(**facts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog_format", "statement"),
        ("binlog_row_image", "minimal"),
        ("binlog_row_image", "noblob"),
    ],
)
def test_insufficient_binlog_settings_are_refused(
    own: MariaDB, tmp_path: Path, name: str, value: str
) -> None:
    with piped(own, tmp_path, TABLE) as (pipe, cursor), setting(cursor, name, value):
        assert f"SET GLOBAL {name}" in refused(pipe)


def test_parts_of_json(mysql: MySQL, tmp_path: Path) -> None:
    script = (
        'create table t (id int primary key, j json);\ninsert into t values (1, \'{"a": 1, '
        '"b": "xxxxxxxxxx"}\')'
    )
    with piped(mysql, tmp_path, script) as (pipe, cursor):
        committed(pipe)
        run_script(
            cursor,
            "set binlog_row_value_options = partial_json;\nupdate t set j = json_set(j, '$.a', 2)",
        )
        assert "binlog_row_value_options" in refused(pipe)


def test_minimal_row_image_of_session_is_refused(own: MariaDB, tmp_path: Path) -> None:
    with piped(own, tmp_path, TABLE) as (pipe, cursor):
        committed(pipe)
        run_script(cursor, "set binlog_row_image = minimal;\nupdate t set v = 5 where id = 1")
        assert "leaves out column" in refused(pipe)


def test_statement_logging_of_session_is_refused(own: MariaDB, tmp_path: Path) -> None:
    with piped(own, tmp_path, TABLE) as (pipe, cursor):
        committed(pipe)
        run_script(cursor, "set binlog_format = statement;\nupdate t set v = 5 where id = 1")
        assert "a statement (UPDATE) in place of the rows" in refused(pipe)


def test_cascades(own: MariaDB, tmp_path: Path) -> None:
    """A foreign key's own changes of rows are not in the log."""
    script = (
        "create table parents (id int primary key);\ncreate table t (id int primary key, parent "
        "int, foreign key (parent) references parents (id) on delete cascade)"
    )
    with piped(own, tmp_path, script) as (pipe, cursor):
        cursor.execute("select version()")
        ((version,),) = cursor.fetchall()
        if "maria" not in version.lower() and tuple(
            map(int, version.split("-")[0].split(".")[:2])
        ) >= (9, 6):
            committed(pipe)
            run_script(
                cursor,
                "insert into parents values (1);\ninsert into t values (7, 1);\n"
                "delete from parents",
            )
            assert [(each["id"], each.get("deleted")) for each in changes(committed(pipe))] == [
                (1, None), (7, None), (7, True), (1, True),
            ]  # fmt: skip
        else:
            assert re.search("TAP-051 .*ON DELETE CASCADE", refused(pipe))


def test_grants(own: MariaDB, tmp_path: Path) -> None:
    """SELECT, REPLICATION SLAVE and REPLICATION CLIENT are enough.

    Without these nothing is read.
    """
    with piped(own, tmp_path, TABLE) as (pipe, cursor):
        database = pipe.config["schemas"][0]
        for statement in (
            "create or replace user reader@'%' identified by 'secret'"
            if not isinstance(own, MySQL)
            else "create user if not exists reader@'%' identified by 'secret'",
            f"grant select on {database}.* to reader@'%'",
        ):
            cursor.execute(statement)
        pipe.config |= {"user": "reader", "password": "secret"}
        assert re.match("TAP-060 .*GRANT REPLICATION CLIENT", refused(pipe))
        cursor.execute("grant replication client on *.* to reader@'%'")
        assert re.match("TAP-060 .*GRANT REPLICATION SLAVE", refused(pipe))
        cursor.execute("grant replication slave on *.* to reader@'%'")
        assert sorted(each["id"] for each in changes(committed(pipe))) == [1, 2]
        cursor.execute("insert into t values (3, 3)")
        assert [each["id"] for each in changes(committed(pipe))] == [3]
        cursor.execute("drop user reader@'%'")


@pytest.mark.parametrize(
    ("number", "code"), [(1227, "TAP-060"), (1236, "TAP-053"), (1105, "TAP-061")]
)
def test_server_log_refusal_has_its_error_code(number: int, code: str) -> None:
    """The server may refuse for a missing privilege, a purged log, or another reason."""
    packet = number.to_bytes(2, "little") + b"#HY000no more"
    assert re.fullmatch(rf"{code} .*no more \({number}\).*", str(refusal(packet)))


def test_purged_position_is_refused(own: MariaDB, tmp_path: Path) -> None:
    with piped(own, tmp_path, TABLE) as (pipe, cursor):
        committed(pipe)
        run_script(cursor, "flush binary logs;\ninsert into t values (3, 3);\nflush binary logs")
        assert [each["id"] for each in changes(committed(pipe))] == [3]
        run_script(cursor, "insert into t values (4, 4);\nflush binary logs")
        # Newer versions of MariaDB keep all files while no replica is connected.
        if cursor.execute("show variables like 'slave_connections_needed_for_purge'"):
            cursor.execute("set global slave_connections_needed_for_purge = 0")
        purge(cursor)
        assert "purged" in refused(pipe)
        with pytest.raises(StateError):
            pipe.run()
        assert sorted(each["id"] for each in changes(pipe.run(full=True))) == [1, 2, 3, 4]


def purge(cursor: pymysql.cursors.Cursor) -> None:
    """Remove all files but the last, once the engine needs none of them."""
    deadline = time.monotonic() + 60
    while cursor.execute("show binary logs") > 1 and time.monotonic() < deadline:
        last = cursor.fetchall()[-1][0]
        cursor.execute("flush engine logs")
        cursor.execute(f"purge binary logs to '{last}'")
    assert cursor.execute("show binary logs") == 1


def test_reset_log_is_refused(own: MariaDB, tmp_path: Path) -> None:
    with piped(own, tmp_path, TABLE) as (pipe, cursor):
        committed(pipe)
        cursor.execute("insert into t values (3, 3)")
        committed(pipe)
        cursor.execute(reset_log(own))
        for n in range(100):
            cursor.execute(f"insert into t values ({10 + n}, 1)")
        line = refused(pipe)
        assert (
            "was reset" in line
            or "does not have all transactions" in line
            or "does not send its log" in line
        )


def test_another_server(own: MariaDB, tmp_path: Path) -> None:
    """Without a transaction's identifier in both logs there is no place to continue at."""
    with piped(own, tmp_path, TABLE) as (pipe, _):
        state = committed(pipe).final
        (entry,) = state["bookmarks"].values()
        entry["server"] = "another"
        entry["gtids"] = ""
        pipe.save(state)
        assert "another server" in refused(pipe)


def test_bookmark_of_changed_key_is_refused(own: MariaDB, tmp_path: Path) -> None:
    with piped(own, tmp_path, TABLE) as (pipe, cursor):
        assert bookmark(committed(pipe))["key"] == ["id"]
        run_script(cursor, "alter table t drop primary key, add primary key (id, v)")
        assert "its key was id and is id, v now" in refused(pipe)


def test_table_without_key_needs_append_only(own: MariaDB, tmp_path: Path) -> None:
    with piped(own, tmp_path, "create table t (id int)") as (pipe, _):
        assert "TAP-052 " in refused(pipe)
        pipe.config["stream_options"] = {
            "*": {"replication_method": "LOG_BASED", "load_method": "append-only"}
        }
        assert not changes(committed(pipe))


def test_failover_by_gtid(own: MariaDB, tmp_path: Path) -> None:
    """A replica continues where its source was, though its log has other places."""
    mysql = isinstance(own, MySQL)
    options = [
        "--set=server-id=2",
        "--set=log-replica-updates=1" if mysql else "--set=log-slave-updates=1",
        *(WITH_GTIDS if mysql else ()),
    ]
    with own.database("mysql").connect() as connection, connection.cursor() as cursor:
        cursor.execute(reset_log(own))  # the replica has nothing of the other tests
    with started("servers.mysql" if mysql else "servers.mariadb", *options) as facts:
        replica = type(own)(**facts)
        with (
            piped(own, tmp_path, TABLE) as (pipe, cursor),
            replica.database("mysql").connect() as connection,
            connection.cursor() as follower,
        ):
            follow(follower, own)
            committed(pipe)
            cursor.execute("insert into t values (3, 3)")
            assert [each["id"] for each in changes(committed(pipe))] == [3]
            cursor.execute("insert into t values (4, 4)")
            until_same(cursor, follower, mysql=mysql)
            database = pipe.config["schemas"][0]
            there: Any = replica.database(database)
            account = {"jdbc_url": there.jdbc_url, "password": there.password}
            moved = Pipe(pipe.folder, {**pipe.config, **account})
            moved.saved = pipe.saved
            follower.execute("stop replica")
            follower.execute(f"insert into {database}.t values (5, 5)")
            connection.commit()
            assert [each["id"] for each in changes(committed(moved))] == [4, 5]
            follower.execute(f"delete from {database}.t where id = 4")
            connection.commit()
            assert [(each["id"], each["deleted"]) for each in changes(committed(moved))] == [
                (4, True)
            ]
            # The old source has not what the new one did.
            pipe.save(moved.saved or {})
            assert "does not have all transactions" in refused(pipe)


def reset_log(server: MariaDB) -> str:
    return "reset binary logs and gtids" if isinstance(server, MySQL) else "reset master"


def follow(follower: pymysql.cursors.Cursor, source: MariaDB) -> None:
    """Let a server follow another one by GTID."""
    if isinstance(source, MySQL):
        follower.execute(
            f"change replication source to source_host = '{source.host}', source_port = "
            f"{source.port}, source_user = '{source.user}', source_password = "
            f"'{source.password}', source_ssl = 1, source_auto_position = 1"
        )
    else:
        follower.execute(
            f"change master to master_host = '{source.host}', master_port = {source.port}, "
            f"master_user = '{source.user}', master_password = '{source.password}', "
            "master_use_gtid = slave_pos, master_ssl = 0"
        )
    follower.execute("start replica")


def until_same(
    cursor: pymysql.cursors.Cursor, follower: pymysql.cursors.Cursor, *, mysql: bool
) -> None:
    """Wait until a follower has all that its source has."""
    cursor.execute("select @@global.gtid_executed" if mysql else "select @@global.gtid_binlog_pos")
    ((there,),) = cursor.fetchall()
    wait = "wait_for_executed_gtid_set" if mysql else "master_gtid_wait"
    follower.execute(f"select {wait}(%s, 60)", (there,))
    assert follower.fetchall() == ((0,),)


def test_open_transaction_rows_arrive_once(own: MariaDB, tmp_path: Path) -> None:
    """A transaction open at the first read is in the table or later in the log."""
    with piped(own, tmp_path, TABLE) as (pipe, cursor), tempfile.TemporaryDirectory():
        other = pymysql.connect(
            host=own.host,
            port=own.port,
            user=own.user,
            password=own.password,
            database=pipe.config["schemas"][0],
        )
        with other, other.cursor() as writer:
            writer.execute("insert into t values (9, 9)")
            cursor.execute("insert into t values (3, 3)")
            other.commit()
            ids = [each["id"] for each in changes(committed(pipe))]
            writer.execute("insert into t values (10, 10)")
            other.commit()
            ids += [each["id"] for each in changes(committed(pipe))]
        assert sorted(ids) == [1, 2, 3, 9, 10]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the account of a server may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_server_restart_renumbers_tables(
    request: pytest.FixtureRequest, server: MariaDB, tmp_path: Path, home: Path
) -> None:
    """Rows of before and behind a restart go to their own streams, though tables exchanged their
    numbers.
    """
    module = f"servers.{request.node.callspec.params['server']}"
    names = [f"t{number}" for number in range(8)]
    script = ";\n".join(f"create table {each} (id int primary key, v int)" for each in names)
    data = ["--data", str(home)]
    with (
        started(module, *data) as facts,
        piped(type(server)(**facts), tmp_path / "pipe", script) as (pipe, cursor),
    ):
        committed(pipe)
        run_script(cursor, ";\n".join(f"insert into {each} values (1, 1)" for each in names))
        cursor.execute("shutdown")
    with started(module, *data) as facts:
        again = type(server)(**facts).database(pipe.config["schemas"][0])
        with again.connect() as connection, connection.cursor() as cursor:
            run_script(
                cursor, ";\n".join(f"insert into {each} values (2, 2)" for each in reversed(names))
            )
        moved = Pipe(
            pipe.folder, {**pipe.config, "jdbc_url": again.jdbc_url, "password": again.password}
        )
        sent = committed(moved)
    for each in names:
        assert sent.ids(f"{again.name}-{each}") == {1: 1, 2: 1}
