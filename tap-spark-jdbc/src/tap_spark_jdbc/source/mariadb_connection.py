"""A connection to MariaDB or MySQL by PyMySQL, where it logs in without TLS."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection import Row
from tap_spark_jdbc.source.connection_errors import with_hint
from tap_spark_jdbc.source.mariadb_login import MariaDbLogin, connected_to, login_of
from tap_spark_jdbc.source.python_connection import PythonConnection, UnsuitableError

# SQLSTATEs of the server's errors, which PyMySQL does not pass on, and of its own.
_STATES = {
    1044: "42000",
    1045: "28000",
    1049: "42000",
    1053: "08S01",
    1054: "42S22",
    1064: "42000",
    1142: "42000",
    1143: "42000",
    1146: "42S02",
    1227: "42000",
    1317: "70100",
    1927: "08S01",
    1969: "70100",
    2006: "08S01",
    2013: "08S01",
    2014: "08S01",
    2055: "08S01",
    4031: "08S01",
}
_GENERAL, _DENIED = "HY000", 1045
# Types of results whose texts are the same as those of the JDBC driver.
_PLAIN = frozenset({0, 2, 3, 6, 8, 9, 15, 245, 246, 249, 250, 251, 252, 253, 254})
# A packet's length and number; a command's number is 0, and a login's are greater.
_HEADER_BYTES, _NUMBER = 4, 3
# SHA-1, SHA-256, or no password.
_HASH_BYTES = (0, 20, 32)
_KEY_REQUESTS, _LEAST_KEY_BYTES = (b"\x01", b"\x02"), 128


class MariaDbConnection(PythonConnection):
    """A connection of PyMySQL."""

    module = "pymysql"

    login = staticmethod(login_of)

    @property
    def server(self) -> str:
        """The database's name and version."""
        version = self._connection.get_server_info()
        return f"{'MariaDB' if 'MariaDB' in version else 'MySQL'} {version}"

    @property
    def session(self) -> str | None:
        """The server's number of the connection."""
        return str(self._connection.thread_id())

    def abort(self) -> None:
        """End the connection; a thread that waits for it gets an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> Any:
        login = self.login(self._source)
        try:
            self._socket = _LoginSocket.to(login)
        except OSError as error:
            raise UnsuitableError(str(error)) from error
        made = self._driver.connect(
            user=login.user,
            # It would encode a text as Latin-1.
            password=login.password.encode(),
            database=login.database or None,
            charset="utf8mb4",
            autocommit=True,
            conv={},
            ssl_disabled=True,
            defer_connect=True,
        )
        try:
            made.connect(self._socket)
        # For a login or a greeting that it does not know, PyMySQL raises errors of any class, also
        # those of the libraries for keys. The JDBC driver then connects, or says what is wrong.
        except Exception as error:
            if isinstance(error, self._errors) and error.args[:1] == (_DENIED,):
                raise self._denied(error) from error
            raise UnsuitableError(" ".join(str(error).split())) from error
        return made

    def _denied(self, error: Any) -> SourceError:
        """A refused login, which is not repeated: servers lock an account after some refusals."""
        reason = with_hint(self._failure(error)[1], _STATES[_DENIED], connecting=True)
        location = self._source.location
        return SourceError(TapCode.CONNECTION_FAILED, f"can't connect to {location}: {reason}")

    def _result(self, sql: str) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            kinds = {column[1] for column in cursor.description or ()}
            if not kinds <= _PLAIN:
                raise UnsuitableError(f"the JDBC driver has its own text of types {kinds - _PLAIN}")
            return [tuple(map(_text, row)) for row in cursor.fetchall()]

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return self._driver.MySQLError, OSError

    def _failure(self, error: Any) -> tuple[str, str]:
        code, *said = error.args or (0,)
        lost = isinstance(error, OSError) or (self._connection and not self._connection.open)
        state = "08S01" if lost else _STATES.get(code, _GENERAL)
        return state, f"({code}) {' '.join(str(each) for each in said)}".strip()

    @property
    def _statements(self) -> tuple[str, ...]:
        return (self.login(self._source).isolation, *self._source.session_statements)


class _LoginSocket(socket.socket):
    """A socket that sends no password in clear text, nor encrypted by a key of an unknown server,
    although PyMySQL does both if the server asks it to.
    """

    _login: MariaDbLogin
    _greeted = False

    @classmethod
    def to(cls, login: MariaDbLogin) -> _LoginSocket:
        """A connection to the server."""
        connected = cls(fileno=connected_to(login).detach())
        connected._login = login
        return connected

    def sendall(self, data: Any, *flags: int) -> None:
        """As a socket's; raises UnsuitableError."""
        packet = bytes(data)
        if self._greeted and packet[_NUMBER] and not self._may_send(packet[_HEADER_BYTES:]):
            raise UnsuitableError("the server wants more than a hash of the password")
        self._greeted = True
        super().sendall(data, *flags)

    def _may_send(self, secret: bytes) -> bool:
        if self._login.password and secret.rstrip(b"\0") == self._login.password.encode():
            return False
        is_by_key = secret in _KEY_REQUESTS or len(secret) >= _LEAST_KEY_BYTES
        return len(secret) in _HASH_BYTES or (self._login.may_ask_key and is_by_key)


def _text(value: str | bytes | None) -> str | None:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise UnsuitableError("the JDBC driver has its own text of bytes") from error
