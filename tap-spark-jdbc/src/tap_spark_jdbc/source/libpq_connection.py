"""A connection to PostgreSQL by psycopg, in this process: a run that only asks starts no JVM.

The JDBC driver is opened only for what it alone can answer, and where libpq can't connect: its
error has an SQLSTATE.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import finalize

from singer_spark.errors import ConnectionLostError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection import Connection, Row
from tap_spark_jdbc.source.connection_errors import (
    is_lost_state,
    refusal,
    shown,
    state_may_quote,
    with_hint,
)
from tap_spark_jdbc.source.libpq import conninfo, forget_environment

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

logger = logging.getLogger("tap-spark-jdbc")
# The SQLSTATE of a connection that failed, which libpq does not give.
_FAILED = "08006"
# Texts of such a database are bytes of any encoding.
_NO_ENCODING = "SQL_ASCII"


class UnsuitableError(Exception):
    """Only the JDBC driver can connect."""


class LibpqConnection(Connection):
    """A connection of psycopg."""

    def __init__(
        self,
        source: JdbcSource,
        jdbc: Callable[[], JdbcConnection],
        *,
        lasting: bool = False,
    ) -> None:
        """Connect.

        A `lasting` connection is reopened if it breaks, and holds no transaction. `jdbc` opens one
        by the JDBC driver.

        Raises:
            UnsuitableError: only the JDBC driver can connect, or none can.
            SourceError: the server refuses a statement that begins the session.
        """
        super().__init__(alive=source.dialect.alive, reopen=self._reopened if lasting else None)
        self._source = source
        self._jdbc = jdbc
        self._opened()

    def execute(self, sql: str) -> None:
        """Execute a statement without a result."""
        self._result(sql)

    def describe(self, query: str) -> list[dict[str, str | None]]:
        """The columns of a query, as the JDBC driver names them."""
        with closing(self._jdbc()) as connection:
            return connection.describe(query)

    def metadata(
        self, method: str, *arguments: str | bool | tuple[str, ...] | None
    ) -> list[dict[str, str | None]]:
        """All rows of `DatabaseMetaData.<method>` of the JDBC driver."""
        with closing(self._jdbc()) as connection:
            return connection.metadata(method, *arguments)

    @property
    def server(self) -> str:
        """The database's name and version."""
        version = self._connection.info.parameter_status("server_version")
        return f"PostgreSQL {version}"

    def identifier_quote(self) -> str:
        """The identifier quote of the SQL standard."""
        return '"'

    def search_pattern(self, name: str) -> str:
        """A name as a pattern for the metadata methods that matches only this name."""
        with closing(self._jdbc()) as connection:
            return connection.search_pattern(name)

    @property
    def session(self) -> str | None:
        """The process of the server."""
        return str(self._connection.info.backend_pid)

    def abort(self) -> None:
        """End the connection; a thread that waits for it gets an error."""
        with suppress(OSError, self._psycopg.Error):
            # A copy of the descriptor, so that the driver still closes its own.
            with socket.socket(fileno=os.dup(self._connection.fileno())) as connected:
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; never raises."""
        with suppress(Exception):
            self._connection.close()

    def _selected(self, sql: str) -> list[Row]:
        return self._result(sql)

    def _result(self, sql: str) -> list[Row]:
        connection = self._connection
        with self._refusing(f"the database refused {shown(sql)}: "), connection.cursor() as cursor:
            found = cursor.execute(sql.encode()).pgresult
            columns = range(found.nfields)
            return [
                tuple(_text(found.get_value(row, column)) for column in columns)
                for row in range(found.ntuples)
            ]

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        with self._waiting():
            try:
                yield
            except self._psycopg.Error as error:
                raise self._refusal(what, error) from self._cause(error)

    def _refusal(self, what: str, error: Any) -> Exception:
        state = self._state(error)
        message = _message(error)
        hidden = self._cause(error) is None
        lost = is_lost_state(state)
        kind, code = refusal(state, message, TapCode.STATEMENT_REFUSED, lost=lost)
        return kind(code, f"{what}{with_hint(message, state, hides_values=hidden)}")

    def _state(self, error: Any) -> str:
        return error.sqlstate or (_FAILED if self._connection.broken else "")

    def _cause(self, error: Any) -> Exception | None:
        """The cause to chain to an error; None if it may quote a masked value."""
        state = self._state(error)
        is_quoting = not is_lost_state(state) and state_may_quote(state)
        return None if self._source.hides_values and is_quoting else error

    def _opened(self) -> Any:
        """A connection with a session that is set up; it becomes this one's."""
        self._connection = made = self._connected()
        # A run that failed leaves it open.
        finalize(self, made.close).atexit = False
        for statement in self._source.session_statements:
            self.execute(statement)
        return made

    def _connected(self) -> Any:
        try:
            import psycopg
        except ImportError as error:
            raise UnsuitableError(f"{error.name} is not installed") from error
        self._psycopg = psycopg
        forget_environment()
        try:
            # Poolers that share connections between transactions support no prepared statements.
            made = psycopg.connect(conninfo(self._source), autocommit=True, prepare_threshold=None)
        except (ValueError, psycopg.Error) as error:
            raise UnsuitableError(" ".join(str(error).split())) from error
        if made.info.parameter_status("server_encoding") == _NO_ENCODING:
            made.close()
            raise UnsuitableError(f"the database's encoding is {_NO_ENCODING}")
        return made

    def _reopened(self) -> Any:
        """Another connection of psycopg; SourceError: as the JDBC driver reports it."""
        try:
            return self._opened()
        except UnsuitableError as error:
            self._jdbc().close()
            raise ConnectionLostError(
                TapCode.CONNECTION_LOST, f"can't connect to {self._source.location}: {error}"
            ) from error


def _message(error: Any) -> str:
    """The server's message in one line, as the JDBC driver words it."""
    found = error.diag
    parts = [
        f"{label}: {text}"
        for label, text in (
            (found.severity, found.message_primary),
            ("Detail", found.message_detail),
            ("Hint", found.message_hint),
        )
        if text
    ]
    return " ".join(" ".join(parts or [str(error)]).split())


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
