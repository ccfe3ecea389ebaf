"""A table, a tap on it, and connections whose transactions a test drives, so that they happen
between a run's lines.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from tap.dying import Pipe
from tap_spark_jdbc.extract import server

TABLE = (
    "create table t (id integer primary key, k integer not null, v text not null); create "
    "index t_k on t (k);"
)
PREPARED = "select gid from pg_prepared_xacts where database = current_database()"
UNINDEXED = "create table t (id integer primary key, k integer not null, v text not null);"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is open in a test stays open until the test ends it: waiting for it is in vain."""
    monkeypatch.setattr(server, "PATIENCE_SECONDS", 0.05)


@dataclass
class Source:
    """A table, a tap on it, and connections whose transactions the test drives."""

    pipe: Pipe
    dsn: str
    database: psycopg.Connection
    opened: list[psycopg.Connection] = field(default_factory=list)

    def transaction(self, *statements: str) -> psycopg.Connection:
        """A transaction that is open, and has done this."""
        connection = psycopg.connect(self.dsn)
        self.opened.append(connection)
        for statement in statements or ["select 1"]:
            connection.execute(statement)
        return connection

    def ids(self) -> list[int]:
        """What a run sends, whose state is then the saved one."""
        sent = self.pipe.run()
        self.pipe.save(sent.final)
        return sorted(sent.ids("public-t").elements())

    @property
    def bookmark(self) -> dict[str, Any]:
        return self.pipe.saved["bookmarks"]["public-t"]

    def rows(self) -> Counter[str]:
        """The table as the tap would send it now."""
        found = self.database.execute("select id, k, v from t").fetchall()
        return Counter(json.dumps(["public-t", {"id": n, "k": k, "v": v}]) for n, k, v in found)


@pytest.fixture
def source(spark, postgres, tmp_path) -> Iterator[Callable[..., Source]]:
    made = []

    def make(script: str = TABLE, **settings: Any) -> Source:
        tap, database = postgres(
            script, **{"incremental_tables": ["public.t:k:integer"], "slice_rows": 5, **settings}
        )
        info = database.info
        dsn = f"postgresql://postgres:{info.password}@{info.host}:{info.port}/"
        made.append(
            Source(Pipe(tmp_path / "lake", tap.config), dsn + database.info.dbname, database)
        )
        return made[-1]

    yield make
    for each in made:
        for connection in each.opened:
            connection.close()
        for (name,) in each.database.execute(PREPARED).fetchall():
            each.database.execute(f"rollback prepared '{name}'")


class Between(io.BytesIO):
    """An output that lets something happen whenever lines of a stream have been written to it."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens
        self._began = False

    def write(self, data: Any) -> int:
        written = super().write(data)
        self._began = self._began or b'"SCHEMA"' in data[:100]
        if self._began and b'"final"' not in data:
            self._happens()
        return written
