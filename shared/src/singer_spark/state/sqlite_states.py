"""States in a file of SQLite, by Python's own module."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from singer_spark.state.database_url import TableName

LONGEST_WAIT_SECONDS = 20


class SqliteSession:
    """One transaction."""

    moment_type = "TEXT"
    ascii_only = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def has_table(self, table: TableName) -> bool:
        """Whether the table is there."""
        found = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = lower(?)"
        return self._connection.execute(found, (table.name,)).fetchone() is not None

    def keep_others_from_creating(self) -> None:
        """Who writes is alone already."""

    def query(self, sql: str, table: TableName, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The first row, texts as bytes: a person may have written what is no UTF-8."""
        row: tuple[Any, ...] | None = self._connection.execute(sql.format(table=table.quoted), dict(values)).fetchone()
        return row

    def execute(self, sql: str, table: TableName, values: Mapping[str, Any]) -> int:
        """Changes rows, and tells how many."""
        return self._connection.execute(sql.format(table=table.quoted), dict(values)).rowcount


class SqliteStates:
    """A file of SQLite; made with its folder when a state is first written."""

    def __init__(self, file: str) -> None:
        self.place = f"sqlite:///{file}"
        self._file = Path(file)

    @contextmanager
    def reading(self) -> Iterator[SqliteSession | None]:
        """One look; None where there is no file yet."""
        if not self._file.exists():
            yield None
            return
        with closing(self._connected("rw")) as connection:
            yield SqliteSession(connection)

    @contextmanager
    def writing(self) -> Iterator[SqliteSession]:
        """A transaction of the only writer; others wait for its end."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._connected("rwc")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteSession(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def is_error(self, error: Exception) -> bool:
        """Whether the driver says so of the database."""
        return isinstance(error, sqlite3.Error | OSError)

    def _connected(self, mode: str) -> sqlite3.Connection:
        # As a URI, so that no file is made by a look; read-write, so that what a killed writer left is undone.
        url = f"{self._file.as_uri()}?mode={mode}"
        connection = sqlite3.connect(url, uri=True, isolation_level=None, timeout=LONGEST_WAIT_SECONDS)
        connection.text_factory = bytes
        return connection
