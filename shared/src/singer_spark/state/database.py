"""Databases that keep states: their URLs, the names of their tables, and access to them.

SQLite is reached by Python's own module, PostgreSQL by psycopg, both through Python's DB-API. The
passwords of URLs are registered with `redact`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, StorageError, redact, register_secret

SQLITE, POSTGRESQL = "sqlite", "postgresql"
WITHOUT_PACKAGE = (
    "PostgreSQL needs a package that is not installed: pip install "
    "'target-spark-lake[postgresql]', and 'tap-spark-jdbc[postgresql]' where only the tap is"
)
# PostgreSQL truncates names to 63 bytes; the history's table has a longer name.
LONGEST_NAME = 63 - len("_history")
_SCHEMES = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "postgres": POSTGRESQL}
_OURS = ("table", "pipeline")
_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')
# Parameters that identify the database, besides the URL's host and path, and libpq's environment
# variables for them.
_WHERE = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "service": "PGSERVICE",
}
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


@dataclass(frozen=True)
class TableName:
    """A table, in a schema or in the database's default one."""

    name: str
    schema: str | None = None

    @staticmethod
    def parse(text: str) -> TableName:
        """Parse `name` or `schema.name`; a part that contains a dot is in double quotes.

        Raises:
            ConfigurationError: it is not a table's name.
        """
        parts, rest = [], f".{text}"
        while rest.startswith(".") and (found := _PART.match(rest, 1)):
            parts.append(found[1].replace('""', '"') if found[1] else found[2])
            rest = rest[found.end() :]
        if (
            rest
            or not 1 <= len(parts) <= 2
            or any("\0" in part or not part.strip() for part in parts)
        ):
            raise _malformed(f"{text!r} is not a table's name: give name or schema.name")
        if any(len(part.encode()) > LONGEST_NAME for part in parts):
            raise _malformed(f"{text!r} is too long for a table: {LONGEST_NAME} bytes at most")
        return TableName(parts[-1], parts[0] if len(parts) == 2 else None)

    @property
    def history(self) -> TableName:
        """The table of its earlier states."""
        return TableName(f"{self.name}_history", self.schema)

    @property
    def quoted(self) -> str:
        """The name quoted for SQL."""
        parts = (part for part in (self.schema, self.name) if part is not None)
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class DatabaseUrl:
    """A database.

    Attributes:
        kind: `sqlite` or `postgresql`.
        connect: The path or URL for the driver; may contain a password.
        location: The database, as text for users and the journal; without user and password.
    """

    kind: str
    connect: str = field(repr=False)
    location: str
    table: str | None = None
    pipeline: str | None = None

    @staticmethod
    def parse(url: str) -> DatabaseUrl | None:
        """Parse a URL; None if it is not a database's.

        Raises:
            ConfigurationError: it names no database file.
        """
        scheme, colon, rest = url.partition(":")
        kind = _SCHEMES.get(scheme.lower()) if colon else None
        if kind is None:
            return None
        location, _, query = rest.partition("?")
        # As in libpq, a plus sign is not a space.
        parameters = [
            (name, unquote(value))
            for name, _, value in (part.partition("=") for part in query.split("&"))
            if name
        ]
        ours = {name: value for name, value in parameters if name in _OURS}
        other = {name: value for name, value in parameters if name not in _OURS}
        if kind == SQLITE:
            file = _sqlite_file(location, other)
            return DatabaseUrl(kind, str(file), f"sqlite:///{file}", **ours)
        _register_password(location, other)
        connect = f"postgresql:{location}" + (
            f"?{urlencode(other, quote_via=quote)}" if other else ""
        )
        return DatabaseUrl(kind, connect, _postgresql_location(location, other), **ours)


def _sqlite_file(location: str, other: Mapping[str, str]) -> Path:
    if other:
        raise _malformed(
            f"sqlite has no option {next(iter(other))}; give sqlite:///file.db?table=T&pipeline=P"
        )
    if not location.startswith("///") or location in ("///", "///:memory:"):
        raise _malformed("give a file, sqlite:///relative.db or sqlite:////absolute.db")
    return Path(location[3:]).expanduser().absolute()


def _register_password(location: str, other: Mapping[str, str]) -> None:
    user, at, _ = location.removeprefix("//").rpartition("@")
    password = user.partition(":")[2] if at else ""
    for secret in (
        password,
        unquote(password),
        *(value for name, value in other.items() if "password" in name),
    ):
        register_secret(secret)


def _postgresql_location(location: str, other: Mapping[str, str]) -> str:
    if location and not location.startswith("//"):
        raise _malformed("give postgresql://user:password@host:port/database")
    host, _, database = location.removeprefix("//").rpartition("@")[2].partition("/")
    has_port = re.search(r":\d+(,|$)", host) is not None
    named = {"host": host, "port": has_port, "dbname": database}
    others = {
        name: other.get(name) or os.environ.get(variable) for name, variable in _WHERE.items()
    }
    added = [f"{name}={value}" for name, value in others.items() if value and not named.get(name)]
    return f"postgresql://{host}/{database}" + (f"?{'&'.join(added)}" if added else "")


def _malformed(problem: str) -> ConfigurationError:
    return ConfigurationError(RunCode.BAD_STATE_BACKEND, problem)


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
        values = {"name": table.name, "quoted": table.quoted}
        return self.execute(_FIND[self._kind], values).fetchone() is not None


class StateDatabase:
    """A database with a table of states; StorageError: it can't be read, or written to.

    Each transaction opens its own connection, so that none is held for hours.
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
            verb = "write to" if writes else "read"
            reason = " ".join(str(error).split()) or type(error).__name__
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
