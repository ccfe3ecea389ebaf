"""The columnar driver's way to PostgreSQL: a JDBC URL as a libpq connection string, and ADBC's
database for it, opened once a run, because it queries all types on opening.

Every table is a type in PostgreSQL, so with a few hundred tables that takes a tenth of a second
each time. For the URL see pgjdbc's `org.postgresql.Driver.parseURL` and libpq's "Connection
Strings".
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.source.jdbc_source import JdbcSource

_PREFIX = "jdbc:postgresql:"
_SAME = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "options": "options",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
}
_SERVERS = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "preferSecondary": "prefer-standby",
}
# A server that is gone causes an error within two minutes; see `open_connections`.
_LIMITS = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "4",
    "tcp_user_timeout": "80000",
}
# Parameters that change neither where it connects nor what it reads.
_OF_THE_DRIVER = frozenset(
    """
    prepareThreshold preparedStatementCacheQueries preparedStatementCacheSizeMiB
    defaultRowFetchSize maxResultBuffer adaptiveFetch adaptiveFetchMinimum adaptiveFetchMaximum
    tcpKeepAlive tcpNoDelay loggerLevel loggerFile binaryTransfer reWriteBatchedInserts
    logUnclosedConnections assumeMinServerVersion disableColumnSanitiser loginTimeout readOnly
    readOnlyMode
    """.split()
)
_OPTIONS = re.compile(r"(?:^| )options='((?:[^'\\]|\\.)*)'")
_PINNED = "-c search_path=pg_catalog -c quote_all_identifiers=off"
_REFUSED = "startup parameter"
# The JDBC driver also reads this one, a file with passwords.
_SHARED = "PGPASSFILE"


def conninfo(source: JdbcSource) -> str:
    """The connection string, including the password.

    Raises:
        ValueError: why libpq can't connect in the same way.
    """
    if source.driver != source.dialect.driver or not source.url.startswith(_PREFIX):
        raise ValueError(f"the driver is {source.driver}")
    address, _, query = source.url.removeprefix(_PREFIX).partition("?")
    pairs = (part.partition("=") for part in query.split("&") if part)
    parameters = {
        **source.connection_properties(),
        **{name: unquote_plus(value) for name, _, value in pairs},
    }
    words = {**_LIMITS, **_location(address), **_words(parameters)}
    words.setdefault("dbname", words.get("user", ""))
    # The encoding of the role, the database or the environment would change bytes of texts, in both
    # directions.
    words["client_encoding"] = "UTF8"
    return " ".join(f"{name}={_quoted(value)}" for name, value in words.items() if value)


def _location(address: str) -> dict[str, str]:
    if not address.startswith("//"):
        named = {"dbname": unquote_plus(address)} if address.strip("/") else {}
        return {"host": "localhost", **named}
    servers, _, database = address.removeprefix("//").partition("/")
    hosts, ports = [], []
    for server in servers.split(","):
        match = re.fullmatch(r"(?:\[(?P<six>[^]]+)\]|(?P<name>[^:]*))(?::(?P<port>\d+))?", server)
        if match is None:
            raise ValueError("its URL names a host in a way that only the JDBC driver reads")
        hosts.append(match["six"] or match["name"] or "localhost")
        ports.append(match["port"] or "5432")
    found = {"host": ",".join(hosts), "port": ",".join(ports)}
    return {**found, "dbname": unquote_plus(database)} if database else found


def _words(parameters: Mapping[str, str]) -> dict[str, str]:
    words: dict[str, str] = {}
    for name, value in parameters.items():
        if name in _SAME:
            words[_SAME[name]] = value
        elif name == "targetServerType" and value in _SERVERS:
            words["target_session_attrs"] = _SERVERS[value]
        elif name == "ssl":
            if value not in ("false", "0"):
                words.setdefault("sslmode", "verify-full")
        elif name not in (*_OF_THE_DRIVER, "currentSchema"):
            raise ValueError(f"its URL has {name}, which only the JDBC driver knows")
    if schema := parameters.get("currentSchema"):
        escaped = re.sub(r"([\\\s])", r"\\\1", schema)
        words["options"] = f"{words.get('options', '')} -c search_path={escaped}".strip()
    return words


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class ColumnarDatabase:
    """A database opened on first use, for connections of any thread.

    Attributes:
        is_out_of_reach: Whether the driver failed to reach it; it is not tried again in this run.
        processes: How many of ConnectorX have read few rows so that no JVM had to start.
    """

    def __init__(self) -> None:
        self.is_out_of_reach = False
        self.processes = 0
        self._opening = Lock()
        self._opened: dict[str, Any] = {}

    def opened(self, connection: str) -> Any:
        """ADBC's database for this libpq connection string.

        Raises ImportError or ADBC's Error if there is none.
        """
        with self._opening:
            if connection not in self._opened:
                forget_environment()
                # A new one only if the login has changed; the last one may still be in use.
                self._opened[connection] = _opened(connection)
            return self._opened[connection]

    def close(self) -> None:
        """Close it; if a thread is still reading, its connection ends with the process."""
        with self._opening:
            opened, self._opened = [*self._opened.values()], {}
        if not opened:
            return
        from adbc_driver_manager import Error

        for each in opened:
            # A RuntimeError: it has open connections.
            with suppress(Error, RuntimeError):
                each.close()


def _opened(connection: str) -> Any:
    """ADBC's database; its own queries, about types and version, depend on no setting of a role."""
    from adbc_driver_manager import Error
    from adbc_driver_postgresql import connect

    options = _OPTIONS.search(connection)
    given = f"{options[1]} {_PINNED}" if options else _PINNED
    try:
        opened = connect(f"{connection} options='{given}'")
    except Error as error:
        # Poolers may not accept them.
        if _REFUSED not in str(error):
            raise
        return connect(connection)
    # For all connections to come: the session's own statements keep the user's path.
    opened.set_options(uri=connection)
    return opened


def forget_environment() -> None:
    """Remove libpq's environment variables, in the tap as in a worker, because they would replace
    whatever no setting says.

    They could lead to another server (PGHOSTADDR, PGSERVICE), or change a session (PGOPTIONS, PGTZ,
    PGDATESTYLE).
    """
    for name in [each for each in os.environ if each.startswith("PG") and each != _SHARED]:
        del os.environ[name]
