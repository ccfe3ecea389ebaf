"""Pipes on new databases of MariaDB and MySQL, filled as its own client does it, and the records
that they send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tap.dying import Pipe, Sent
from tap.opened import login

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from servers.mariadb import MariaDatabase, MariaDB


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> MariaDB:
    """Each of the two."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def database(server: MariaDB) -> MariaDatabase:
    return server.new_database()


@pytest.fixture
def pipe(spark: SparkSession, database: MariaDatabase, tmp_path: Path):
    def make(*specs: str, **settings: Any) -> Pipe:
        config = login(
            database, schemas=[database.name], incremental_tables=list(specs), **settings
        )
        return Pipe(tmp_path / "lake", config)

    return make


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def run(database: MariaDatabase, *statements: str) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def counted(last: int, first: int = 1) -> str:
    """A table `s` of whole numbers, in the column `seq`, because MariaDB's `seq_1_to_9` is unknown
    to MySQL.
    """
    return f"json_table('{list(range(first, last + 1))}', '$[*]' columns (seq int path '$')) s"


def literal(text: str) -> str:
    """Under the rules of the tests' connections, where a backslash is one."""
    return "'" + text.replace("'", "''") + "'"


def records(sent: Sent, stream: str) -> list[dict[str, Any]]:
    return [
        each["record"]
        for each in sent.messages
        if each["type"] == "RECORD" and each["stream"] == stream
    ]
