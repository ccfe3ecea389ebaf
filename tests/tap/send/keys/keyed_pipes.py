"""Pipes on new databases whose tables a test keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tap.dying import Pipe
from tap.opened import login

Source = tuple[Pipe, str, Callable[[str], Any]]


@pytest.fixture(params=["postgresql", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path, spark) -> Iterator[Source]:
    """A pipe on a database, the prefix of its streams, and a way to change it."""
    del spark
    settings = {"spark": {"master": "local[2]"}}
    if request.param == "sqlite":
        path = tmp_path / "source.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            yield (
                Pipe(tmp_path, {"jdbc_url": f"jdbc:sqlite:{path}", **settings}),
                "",
                connection.execute,
            )
        return
    database = request.getfixturevalue("postgresql").new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        yield Pipe(tmp_path, login(database, **settings)), "public-", connection.execute


@pytest.fixture
def sqlite_pipe(spark: Any, tmp_path: Path) -> Iterator[tuple[Pipe, sqlite3.Connection]]:
    del spark
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        yield (
            Pipe(tmp_path, {"jdbc_url": f"jdbc:sqlite:{path}", "spark": {"master": "local[2]"}}),
            database,
        )
