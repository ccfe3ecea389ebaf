"""URLs of databases that keep states, and names of their tables.

Passwords are registered with `redact`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlencode

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, register_secret

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
            raise ConfigurationError(
                RunCode.BAD_STATE_BACKEND,
                f"{text!r} is not a table's name: give name or schema.name",
            )
        if any(len(part.encode()) > LONGEST_NAME for part in parts):
            raise ConfigurationError(
                RunCode.BAD_STATE_BACKEND,
                f"{text!r} is too long for a table: {LONGEST_NAME} bytes at most",
            )
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
        raise ConfigurationError(
            RunCode.BAD_STATE_BACKEND,
            f"sqlite knows no {next(iter(other))}, give sqlite:///file.db?table=T&pipeline=P",
        )
    if not location.startswith("///") or location in ("///", "///:memory:"):
        raise ConfigurationError(
            RunCode.BAD_STATE_BACKEND,
            "give a file, sqlite:///relative.db or sqlite:////absolute.db",
        )
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
        raise ConfigurationError(
            RunCode.BAD_STATE_BACKEND, "give postgresql://user:password@host:port/database"
        )
    host, _, database = location.removeprefix("//").rpartition("@")[2].partition("/")
    has_port = re.search(r":\d+(,|$)", host) is not None
    named = {"host": host, "port": has_port, "dbname": database}
    others = {
        name: other.get(name) or os.environ.get(variable) for name, variable in _WHERE.items()
    }
    added = [f"{name}={value}" for name, value in others.items() if value and not named.get(name)]
    return f"postgresql://{host}/{database}" + (f"?{'&'.join(added)}" if added else "")
