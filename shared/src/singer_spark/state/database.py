"""Databases that keep states: SQLite by Python's own module, PostgreSQL by psycopg, both through
Python's DB-API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, StorageError, redact
from singer_spark.state.database_url import (
    POSTGRESQL,
    SQLITE,
    WITHOUT_PACKAGE,
    DatabaseUrl,
    TableName,
)

LONGEST_WAIT_SECONDS = 20
# A server that has gone silent causes an error within two minutes.
_DEFAULTS = {
    "connect_timeout": LONGEST_WAIT_SECONDS,
    "application_name": "spark-lake",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 4,
    "tcp_user_timeout": 80_000,
}
_DRIVERS = {SQLITE: "sqlite3", POSTGRESQL: "psycopg"}
_FIND = {
    SQLITE: "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') AND lower(name) = "
    "lower(:name)",
    POSTGRESQL: "SELECT 1 WHERE pg_catalog.to_regclass(:quoted) IS NOT NULL",
}
_BEGIN_READING = {SQLITE: "BEGIN", POSTGRESQL: "SET TRANSACTION READ ONLY"}
_BEGIN_WRITING = {
    SQLITE: "BEGIN IMMEDIATE",
    POSTGRESQL: f"SET LOCAL lock_timeout = '{LONGEST_WAIT_SECONDS}s'",
}
_MOMENT = {SQLITE: "TEXT", POSTGRESQL: "TIMESTAMP WITH TIME ZONE"}
# "SPARKLAK" as a number, so that no other program uses the same advisory lock.
_CREATION_LOCK = 0x535041524B4C414B
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class StateSession:
    """One transaction, in SQL that all supported databases accept."""

    def __init__(self, connection: Any, kind: str, table: TableName) -> None:
        self._connection = connection
        self._kind = kind
        self._tables = (table, table.history)
        self._names = {
            "table": table.quoted,
            "history": table.history.quoted,
            "moment": _MOMENT[kind],
        }

    @property
    def is_ascii_only(self) -> bool:
        """Whether the database can't hold every character."""
        return (
            self._kind == POSTGRESQL
            and self._connection.info.parameter_status("server_encoding") != "UTF8"
        )

    def has_table(self) -> bool:
        """Whether the table of states exists."""
        return self._has(self._tables[0])

    def create(self, *statements: str) -> None:
        """Create the tables of states and history if they are missing.

        Creations wait for one another, because a concurrent one would fail.
        """
        if all(self._has(table) for table in self._tables):
            return
        if self._kind == POSTGRESQL:
            self.execute(f"SELECT pg_catalog.pg_advisory_xact_lock({_CREATION_LOCK})", {})
        for table, statement in zip(self._tables, statements, strict=True):
            if not self._has(
                table
            ):  # perhaps in another schema of the search path than a new one would be
                self.execute(statement, {})

    def execute(self, sql: str, values: Mapping[str, Any]) -> Any:
        """Execute SQL and return a cursor.

        In the text, `{table}` and `{history}` are the tables, `{moment}` is a type, and `:name` a
        value.
        """
        if self._kind == SQLITE:
            return self._connection.execute(sql.format(**self._names), values)
        names = {name: quoted.replace("%", "%%") for name, quoted in self._names.items()}
        return self._connection.execute(
            _PARAMETER.sub(r"%(\1)s", sql).format(**names).encode(), values
        )

    def _has(self, table: TableName) -> bool:
        return (
            self.execute(_FIND[self._kind], {"name": table.name, "quoted": table.quoted}).fetchone()
            is not None
        )


class StateDatabase:
    """A database with a table of states.

    Each transaction opens its own connection, so that none is held for hours.

    StorageError: it can't be read, or written to.
    """

    def __init__(self, url: DatabaseUrl, table: TableName) -> None:
        self.location = f"{url.location}, table {table}"
        self._url = url
        self._table = table

    @contextmanager
    def reading(self) -> Iterator[StateSession | None]:
        """A read-only transaction; None if there is no table yet."""
        with self._transaction(writes=False) as session:
            yield session if session and session.has_table() else None

    @contextmanager
    def writing(self) -> Iterator[StateSession]:
        """A transaction that is committed at its end, or rolled back on an error.

        It does not wait long for other transactions.
        """
        with self._transaction(writes=True) as session:
            assert session is not None
            yield session

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[StateSession | None]:
        kind = self._url.kind
        try:
            driver = import_module(_DRIVERS[kind])
        except ImportError as error:
            raise ConfigurationError(
                RunCode.PACKAGE_MISSING, f"{self._url.location}: {WITHOUT_PACKAGE}"
            ) from error
        try:
            if not writes and kind == SQLITE and not Path(self._url.connect).exists():
                yield None
                return
            connected = (
                _file(driver, Path(self._url.connect), writes)
                if kind == SQLITE
                else _server(driver, self._url)
            )
            with closing(connected) as connection:  # without a commit it is undone
                connection.execute((_BEGIN_WRITING if writes else _BEGIN_READING)[kind])
                yield StateSession(connection, kind, self._table)
                connection.commit()
        except (driver.Error, OSError) as error:
            verb, reason = (
                "write to" if writes else "read",
                " ".join(str(error).split()) or type(error).__name__,
            )
            way_out = (
                "check state_backend, its user's rights and that the database runs, and run again"
            )
            raise StorageError(
                RunCode.STATE_DATABASE_FAILED,
                redact(f"can't {verb} {self.location}: {reason}; {way_out}"),
            ) from error


def _file(sqlite3: Any, file: Path, writes: bool) -> Any:
    if writes:
        file.parent.mkdir(parents=True, exist_ok=True)
    # As a URI, so that reading creates no file, and read-write, so that what a killed writer left
    # is rolled back.
    url = f"{file.as_uri()}?mode={'rwc' if writes else 'rw'}"
    connection = sqlite3.connect(url, uri=True, isolation_level=None, timeout=LONGEST_WAIT_SECONDS)
    # Text written by hand may not be UTF-8.
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    return connection


def _server(psycopg: Any, url: DatabaseUrl) -> Any:
    parameters = psycopg.conninfo.conninfo_to_dict(url.connect)
    parameters = {**_DEFAULTS, **parameters}
    # Poolers that share connections between transactions do not support prepared statements.
    connection = psycopg.connect(**parameters, client_encoding="utf-8", prepare_threshold=None)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection
