"""The pipe as a user runs it, with each engine: the part of the suite that each version of Spark
must pass.

`make smoke SPARK=3.5` runs it on the oldest one.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.pipe import Pipe

DAY = dt.datetime(2026, 3, 1, 12)
Row = tuple[int, dt.datetime, Decimal, float, str | None, bytes]
COLUMNS = "id, seen, price, share, note, raw"


def row(id: int, minute: int, note: str | None) -> Row:
    return (
        id,
        DAY + dt.timedelta(minutes=minute),
        Decimal(id * 137).scaleb(-2),
        id / 3,
        note,
        id.to_bytes(3, "big"),
    )


ROWS = [
    row(n, n // 4, None if n % 7 == 0 else f'line 1\nline 2 "{n}" \\ é😀') for n in range(1, 601)
]
# In the middle of the table, at the bookmark, and new.
CHANGED = [
    row(9, 200, "changed"),
    row(600, 150, "changed at the bookmark"),
    row(601, 150, "late"),
    row(602, 300, None),
]


@dataclass
class Source:
    """A table `t`, and the tap's settings for it."""

    tap: dict[str, Any]
    stream: str

    def put(self, rows: Sequence[Row]) -> None:
        """Inserts rows, or replaces those with their ids."""
        values = [(id, str(at), str(price), *others) for id, at, price, *others in rows]
        connected: Any
        if self.stream == "t":
            connected, mark = (
                sqlite3.connect(self.tap["jdbc_url"].removeprefix("jdbc:sqlite:")),
                "?",
            )
        else:
            login = {"user": self.tap["user"], "password": self.tap["password"]}
            connected, mark = (
                psycopg.connect(self.tap["jdbc_url"].removeprefix("jdbc:"), **login),
                "%s",
            )
        with closing(connected) as connection:
            cursor = connection.cursor()
            cursor.executemany(f"delete from t where id = {mark}", [each[:1] for each in values])
            cursor.executemany(
                f"insert into t ({COLUMNS}) values ({', '.join([mark] * 6)})", values
            )
            connection.commit()


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """Read by JDBC without a session, or by Spark's tasks."""
    create = (
        "create table t (id integer primary key, seen timestamp not null, price "
        "numeric(12,2), share {} not null,"
    )
    create += " note text, raw {})"
    if request.param == "sqlite":
        path = tmp_path / "source.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(create.format("double", "blob"))
            connection.execute("create index of_at on t (seen)")
        return Source({"jdbc_url": f"jdbc:sqlite:{path}"}, "t")
    database = request.getfixturevalue("postgresql").new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(create.format("double precision", "bytea"))
        connection.execute("create index on t (seen)")
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    return Source({**login, "schemas": ["public"]}, "public-t")


@pytest.mark.usefixtures("with_pandas")
@pytest.mark.parametrize(
    ("source", "engine"),
    [("sqlite", "local"), ("postgresql", "spark")],
    indirect=["source"],
)
def test_pipe_of_each_engine(source: Source, tmp_path: Path, engine: str) -> None:
    """First load, increment and merge bring the source's rows, and both programs say what does the
    work.

    A merge by Spark begins with rows that it did not write.
    """
    table = source.stream.replace("-", ".")
    tap = {**source.tap, "incremental_tables": [f"{table}:seen:timestamp!upsert"], "engine": engine}
    pipe = Pipe(tmp_path / "pipe", tap, {"engine": "local"})
    says = f"engine {engine}: the setting engine"
    source.put(ROWS)
    first = pipe.run().succeeded()
    assert first.tap_errors.count(says) == 1
    assert pipe.rows(source.stream, COLUMNS, "id") == ROWS
    source.put(CHANGED)
    pipe.target["engine"] = engine
    second = pipe.run().succeeded()
    assert second.target_errors.count(says) == 1
    expected = {each[0]: each for each in [*ROWS, *CHANGED]}
    assert pipe.rows(source.stream, COLUMNS, "id") == sorted(expected.values())
