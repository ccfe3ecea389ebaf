"""A connection to PostgreSQL by psycopg."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any

from tap_spark_jdbc.source.connection import Row
from tap_spark_jdbc.source.libpq import conninfo, forget_environment
from tap_spark_jdbc.source.python_connection import PythonConnection, UnsuitableError

# The SQLSTATE of a connection that failed, which libpq does not give.
_FAILED = "08006"
# Texts of such a database are bytes of any encoding.
_NO_ENCODING = "SQL_ASCII"


class LibpqConnection(PythonConnection):
    """A connection of psycopg."""

    module = "psycopg"

    login = staticmethod(conninfo)

    @property
    def server(self) -> str:
        """The database's name and version."""
        version = self._connection.info.parameter_status("server_version")
        return f"PostgreSQL {version}"

    @property
    def session(self) -> str | None:
        """The process of the server."""
        return str(self._connection.info.backend_pid)

    def abort(self) -> None:
        """End the connection; a thread that waits for it gets an error."""
        with suppress(OSError, *self._errors):
            # A copy of the descriptor, so that the driver still closes its own.
            with socket.socket(fileno=os.dup(self._connection.fileno())) as connected:
                connected.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> Any:
        forget_environment()
        login = self.login(self._source)
        try:
            # Poolers that share connections between transactions support no prepared statements.
            made = self._driver.connect(login, autocommit=True, prepare_threshold=None)
        except self._errors as error:
            raise UnsuitableError(" ".join(str(error).split())) from error
        if made.info.parameter_status("server_encoding") == _NO_ENCODING:
            made.close()
            raise UnsuitableError(f"the database's encoding is {_NO_ENCODING}")
        return made

    def _result(self, sql: str) -> list[Row]:
        with self._connection.cursor() as cursor:
            # Without parameters it is sent as it is, and its values come as the server's texts.
            found = cursor.execute(sql.encode()).pgresult
            columns = range(found.nfields)
            return [
                tuple(_text(found.get_value(row, column)) for column in columns)
                for row in range(found.ntuples)
            ]

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (self._driver.Error,)

    def _failure(self, error: Any) -> tuple[str, str]:
        state = error.sqlstate or (_FAILED if self._connection.broken else "")
        said = error.diag
        labelled = (
            (said.severity, said.message_primary),
            ("Detail", said.message_detail),
            ("Hint", said.message_hint),
        )
        parts = [f"{label}: {text}" for label, text in labelled if text]
        return state, " ".join(" ".join(parts or [str(error)]).split())


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
