"""What a run sends of the log, in which order, and where the next one continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servers.mariadb import MariaDB
from tap.binlog.piped import committed, piped, records, refused, run_script, setting
from tap.dying import Sent
from tap_spark_jdbc.binlog.position import LogPosition

TABLE = """
create table orders (id int primary key, note varchar(20), body text);
insert into orders values (1, 'old', 'x'), (2, 'old', 'y'), (3, 'old', 'z')
"""


def changes(sent: Sent) -> list[dict[str, Any]]:
    """The records without their place in the log."""
    found = records(sent)
    for each in found:
        each.pop("_sdc_log_position", None)
    return found


def places(sent: Sent) -> list[int]:
    return [each["record"]["_sdc_lsn"] for each in sent.messages if each["type"] == "RECORD"]


def bookmark(sent: Sent) -> dict[str, Any]:
    (found,) = (each for each in sent.final["bookmarks"].values())
    return dict(found)


def test_changes_in_their_order(server: MariaDB, tmp_path: Path) -> None:
    """An idle run sends nothing and keeps the state."""
    with piped(server, tmp_path, TABLE + ";\ncreate table items (id int primary key)") as (
        pipe,
        cursor,
    ):
        first = committed(pipe)
        assert sorted(each["id"] for each in changes(first)) == [1, 2, 3]
        assert set(first.extents.values()) == {"full"}
        run_script(
            cursor,
            "begin;\nupdate orders set note = 'new' where id = 1;\ninsert into items values (7);\n"
            "update orders set id = 30, note = 'moved' where id = 3;\ndelete from orders where id "
            "= 2;\n"
            "insert into orders values (2, 'again', null);\ncommit;\nbegin;\ninsert into items "
            "values (8);\nrollback",
        )
        second = committed(pipe)
        assert changes(second) == [
            {"id": 1, "note": "new", "body": "x"},
            {"id": 7},
            {"id": 3, "note": "old", "body": "z", "deleted": True},
            {"id": 30, "note": "moved", "body": "z"},
            {"id": 2, "note": "old", "body": "y", "deleted": True},
            {"id": 2, "note": "again", "body": None},
        ]
        assert len(set(places(second))) == 1
        texts = {
            each["record"]["_sdc_log_position"]
            for each in second.messages
            if each["type"] == "RECORD"
        }
        assert [LogPosition.parse(each).lsn for each in texts] == [places(second)[0]]
        idle = committed(pipe)
        assert not records(idle)
        assert committed(pipe).final == idle.final


def test_rows_of_one_statement_keep_their_order(server: MariaDB, tmp_path: Path) -> None:
    with piped(server, tmp_path, "create table t (id int primary key, v int)") as (pipe, cursor):
        committed(pipe)
        values = ",".join(f"({n}, {n})" for n in range(2000))
        cursor.execute(f"insert into t values {values}")
        cursor.execute("update t set v = v + 1 order by id desc")
        sent = changes(committed(pipe))
        assert [each["id"] for each in sent[:2000]] == list(range(2000))
        assert sorted((each["id"], each["v"]) for each in sent[2000:]) == [
            (n, n + 1) for n in range(2000)
        ]
        assert not any(each.get("deleted") for each in sent)


@pytest.mark.parametrize("statement", ["truncate t", "truncate table `t`"])
def test_truncate_starts_new_version(server: MariaDB, tmp_path: Path, statement: str) -> None:
    with piped(
        server, tmp_path, "create table t (id int primary key);\ninsert into t values (1)"
    ) as (pipe, cursor):
        committed(pipe)
        run_script(cursor, f"insert into t values (2);\n{statement};\ninsert into t values (3)")
        sent = [
            each
            for each in committed(pipe).messages
            if each["type"] in ("RECORD", "ACTIVATE_VERSION")
        ]
        assert [each["type"] for each in sent] == ["RECORD", "ACTIVATE_VERSION", "RECORD"]
        assert sent[2]["version"] == sent[1]["version"]
        assert "version" not in sent[0]


@pytest.mark.parametrize("metadata", ["FULL", None])
def test_old_rows_keep_their_columns_after_alter(
    server: MariaDB, tmp_path: Path, metadata: str | None
) -> None:
    """Rows logged before an ALTER have the old columns, even if one was added mid-table."""
    with piped(server, tmp_path, "create table t (id int primary key, a int, z text)") as (
        pipe,
        cursor,
    ):
        before = "MINIMAL" if server.database("mysql").is_mysql else "NO_LOG"
        cursor.execute(f"set global binlog_row_metadata = {metadata or before}")
        try:
            committed(pipe)
            run_script(
                cursor,
                "insert into t values (1, 10, 'x');\nalter table t add column b int after id;\n"
                "insert into t values (2, 20, 30, 'y')",
            )
            assert changes(committed(pipe)) == [
                {"id": 1, "a": 10, "z": "x"},
                {"id": 2, "b": 20, "a": 30, "z": "y"},
            ]
            run_script(cursor, "insert into t values (3, 1, 1, 'z');\nalter table t drop column a")
            cursor.execute("insert into t values (4, 2, 'w')")
            assert [each["b"] for each in changes(committed(pipe))] == [1, 2]
        finally:
            cursor.execute(f"set global binlog_row_metadata = {before}")


def test_column_added_and_dropped_between_runs(server: MariaDB, tmp_path: Path) -> None:
    """The log includes the column names, so each row is read correctly."""
    with piped(server, tmp_path, "create table t (id int primary key, a int)") as (pipe, cursor):
        cursor.execute("select @@global.binlog_row_metadata")
        ((before,),) = cursor.fetchall()
        cursor.execute("set global binlog_row_metadata = full")
        try:
            committed(pipe)
            run_script(
                cursor,
                "alter table t add column b int first;\ninsert into t values (1, 2, 3);\n"
                "alter table t drop column b;\ninsert into t values (4, 5)",
            )
            assert changes(committed(pipe)) == [{"id": 2, "a": 3}, {"id": 4, "a": 5}]
        finally:
            cursor.execute(f"set global binlog_row_metadata = {before}")


def test_two_alters_without_column_names_are_refused(server: MariaDB, tmp_path: Path) -> None:
    """The columns between the two changes are unknown."""
    with piped(server, tmp_path, "create table t (id int primary key, a int)") as (pipe, cursor):
        committed(pipe)
        run_script(
            cursor,
            "alter table t add column b int;\ninsert into t values (1, 2, 3);\nalter table t add "
            "column c int first",
        )
        assert "it was altered in between" in refused(pipe)


@pytest.mark.parametrize(
    "statement",
    [
        "drop table t",
        "rename table t to other",
        "alter table t rename to other",
        "create or replace table t (id int primary key)",
    ],
)
def test_dropped_or_renamed_table_is_refused(
    server: MariaDB, tmp_path: Path, statement: str
) -> None:
    with piped(server, tmp_path, "create table t (id int primary key)") as (pipe, cursor):
        if "or replace" in statement and server.database("mysql").is_mysql:
            statement = "drop table t"
        committed(pipe)
        cursor.execute(statement)
        if "or replace" not in statement:
            cursor.execute("create table t (id int primary key)")
        assert "dropped, recreated or renamed" in refused(pipe)


def test_xa_transactions_count_once_committed(server: MariaDB, tmp_path: Path) -> None:
    """Also in a later run, behind changes that came after them."""
    with piped(server, tmp_path, "create table t (id int primary key)") as (pipe, cursor):
        committed(pipe)
        for name, ends in (("a", "commit"), ("b", "rollback"), ("c", "later"), ("d", "one phase")):
            run_script(
                cursor, f"xa start '{name}';\ninsert into t values ({ord(name)});\nxa end '{name}'"
            )
            if ends == "one phase":
                cursor.execute(f"xa commit '{name}' one phase")
                continue
            cursor.execute(f"xa prepare '{name}'")
            if ends != "later":
                cursor.execute(f"xa {ends} '{name}'")
            else:
                # A session that has one prepared does nothing else.
                connection = cursor.connection
                connection.close()
                connection.connect()
                cursor = connection.cursor()
                connection.autocommit(True)
        cursor.execute("insert into t values (1)")
        first = committed(pipe)
        assert [each["id"] for each in changes(first)] == [97, 100, 1]
        assert bookmark(first)["prepared"]
        cursor.execute("insert into t values (2)")
        assert [each["id"] for each in changes(committed(pipe))] == [2]
        cursor.execute("xa commit 'c'")
        last = committed(pipe)
        assert [each["id"] for each in changes(last)] == [99]
        assert "prepared" not in bookmark(last)


def test_savepoints(server: MariaDB, tmp_path: Path) -> None:
    with piped(server, tmp_path, "create table t (id int primary key)") as (pipe, cursor):
        committed(pipe)
        run_script(
            cursor,
            "begin;\ninsert into t values (1);\nsavepoint s;\ninsert into t values (2);\nrollback "
            "to s;\n"
            "insert into t values (3);\ncommit",
        )
        assert [each["id"] for each in changes(committed(pipe))] == [1, 3]


def test_budget(server: MariaDB, tmp_path: Path) -> None:
    """A run of few rows ends behind a transaction; the next one continues there."""
    with piped(server, tmp_path, "create table t (id int primary key)", max_run_rows=5) as (
        pipe,
        cursor,
    ):
        committed(pipe)
        for n in range(4):
            cursor.execute(f"insert into t values ({3 * n}), ({3 * n + 1}), ({3 * n + 2})")
        seen = []
        for _ in range(3):
            seen.append([each["id"] for each in changes(committed(pipe))])
        assert seen == [list(range(6)), list(range(6, 12)), []]


def test_large_rows_and_transactions(server: MariaDB, tmp_path: Path) -> None:
    """An update of more than 16 MB, before and after, comes in several packets."""
    script = (
        "begin;\ninsert into t values (1, 'a');\ninsert into t select 2, repeat('x', 9 * 1024 * "
        "1024);\n"
        "insert into t select 3, repeat('y', 1024 * 1024);\nupdate t set b = concat(b, 'z') "
        "where id = 2;\n"
        "insert into t values (4, 'b');\ncommit"
    )
    with piped(server, tmp_path, "create table t (id int primary key, b longtext)") as (
        pipe,
        cursor,
    ):
        committed(pipe)
        with setting(cursor, "max_allowed_packet", "1073741824"):
            cursor.connection.close()
            cursor.connection.connect()
            run_script(cursor.connection.cursor(), script)
        sent = changes(committed(pipe))
        assert [(each["id"], len(each["b"]), each["b"][-1]) for each in sent] == [
            (1, 1, "a"),
            (2, 9 << 20, "x"),
            (3, 1 << 20, "y"),
            (2, (9 << 20) + 1, "z"),
            (4, 1, "b"),
        ]


def test_compressed_transactions(server: MariaDB, tmp_path: Path) -> None:
    name = (
        "binlog_transaction_compression"
        if server.database("mysql").is_mysql
        else "log_bin_compress"
    )
    with piped(server, tmp_path, "create table t (id int primary key, b varchar(2000))") as (
        pipe,
        cursor,
    ):
        committed(pipe)
        scope = "session" if server.database("mysql").is_mysql else "global"
        cursor.execute(f"set {scope} {name} = 1")
        try:
            cursor.connection.ping()
            values = ",".join(f"({n}, '{'x' * 1000}')" for n in range(50))
            run_script(
                cursor,
                f"insert into t values {values};\nupdate t set b = 'y' where id = 7;\ndelete from "
                "t where id = 8",
            )
        finally:
            cursor.execute(f"set {scope} {name} = 0")
        sent = changes(committed(pipe))
        assert [each["id"] for each in sent] == [*range(50), 7, 8]
        assert sent[50]["b"] == "y"
        assert sent[51]["deleted"]
        assert not changes(committed(pipe))


def test_resumed_run(server: MariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the STATE at which it died: each change comes once."""
    with piped(server, tmp_path, "create table t (id int primary key)", max_run_rows=1000) as (
        pipe,
        cursor,
    ):
        committed(pipe)
        for n in range(6):
            cursor.execute(f"insert into t values ({n})")
        whole = pipe.run()
        assert len(whole.states) > 4
        for _, dead in whole.deaths():
            rest = pipe.resumed(dead)
            ids = [each["id"] for each in changes(dead)] + [each["id"] for each in changes(rest)]
            assert ids == list(range(6))
            assert json.dumps(rest.final) == json.dumps(whole.final)
