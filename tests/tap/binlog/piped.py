"""A pipeline of streams that are read from the binlog of a database of its own, and what its runs
send.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql

from servers.mariadb import MariaDB
from tap.dying import Pipe
from tap.wal.piped import committed, records, refused

__all__ = ["committed", "piped", "records", "refused", "rows_of", "run_script", "setting"]

LOGGED = {"*": {"replication_method": "LOG_BASED"}}


@contextmanager
def piped(
    server: MariaDB, folder: Path, script: str, **settings: Any
) -> Iterator[tuple[Pipe, pymysql.cursors.Cursor]]:
    """A pipeline of log-based streams over a new database."""
    database = server.new_database()
    with database.connect() as connection, connection.cursor() as cursor:
        connection.autocommit(True)
        cursor.execute("set sql_mode = ''")
        cursor.execute("set time_zone = '+00:00'")
        run_script(cursor, script)
        login = {
            "jdbc_url": database.jdbc_url,
            "user": database.user,
            "password": database.password,
        }
        given = {"schemas": [database.name], "stream_options": LOGGED, "n_jobs": 1}
        yield Pipe(folder, {**login, **given, **settings}), cursor


@contextmanager
def setting(cursor: pymysql.cursors.Cursor, name: str, value: str) -> Iterator[None]:
    """A global setting for a while."""
    cursor.execute(f"select @@global.{name}")
    ((before,),) = cursor.fetchall()
    cursor.execute(f"set global {name} = {value}")
    try:
        yield
    finally:
        cursor.execute(f"set global {name} = %s", (before,))


def run_script(cursor: pymysql.cursors.Cursor, script: str) -> None:
    """Run statements that end with a semicolon and a newline, or with the text."""
    for each in filter(None, (each.strip() for each in script.split(";\n"))):
        cursor.execute(each.rstrip(";"))


def rows_of(pipe: Pipe, **settings: Any) -> list[dict[str, Any]]:
    """The rows as the readers have them, whole."""
    own = {
        **{name: value for name, value in pipe.config.items() if name != "stream_options"},
        **settings,
    }
    sent = Pipe(pipe.folder / "whole", own).run()
    return [each["record"] for each in sent.messages if each["type"] == "RECORD"]
