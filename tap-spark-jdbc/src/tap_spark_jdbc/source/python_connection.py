"""A connection by a Python driver, in this process: a run that finds nothing new starts no JVM.

The JDBC driver connects only for what it alone can answer, and where the Python driver can't
connect: its error has an SQLSTATE.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
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

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

T = TypeVar("T")
logger = logging.getLogger("tap-spark-jdbc")


class UnsuitableError(Exception):
    """Only the JDBC driver can connect, or answer."""


class PythonConnection(Connection):
    """A connection of the driver `module`."""

    module: ClassVar[str]

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
        self._open_jdbc = jdbc
        try:
            self._driver = import_module(self.module)
        except ImportError as error:
            raise UnsuitableError(f"{self.module} can't be imported: {error}") from error
        self._opened()

    @classmethod
    def suits(cls, source: JdbcSource) -> bool:
        """Whether it may connect as the URL says; whether it can, is known once it does."""
        try:
            cls.login(source)
        except ValueError:
            return False
        return True

    @staticmethod
    @abstractmethod
    def login(source: JdbcSource) -> Any:
        """How the driver connects; ValueError: why only the JDBC driver connects in that way."""

    def execute(self, sql: str) -> None:
        """Execute a statement without a result."""
        self._by_either(sql, lambda: self._jdbc.execute(sql))

    def describe(self, query: str) -> list[dict[str, str | None]]:
        """The columns of a query, as the JDBC driver names them."""
        return self._jdbc.describe(query)

    def metadata(
        self, method: str, *arguments: str | bool | tuple[str, ...] | None
    ) -> list[dict[str, str | None]]:
        """All rows of `DatabaseMetaData.<method>` of the JDBC driver."""
        return self._jdbc.metadata(method, *arguments)

    def identifier_quote(self) -> str:
        """The dialect's quote."""
        return self._source.dialect.quote_mark

    def search_pattern(self, name: str) -> str:
        """A name as a pattern for the metadata methods that matches only this name."""
        return self._jdbc.search_pattern(name)

    def close(self) -> None:
        """Close the connection; never raises."""
        _close(self._connection)
        if opened := self.__dict__.pop("_jdbc", None):
            opened.close()

    @cached_property
    def _jdbc(self) -> JdbcConnection:
        """A connection of the JDBC driver, for what it alone answers."""
        return self._open_jdbc()

    @abstractmethod
    def _connected(self) -> Any:
        """A connection of the driver; UnsuitableError: there is none."""

    @abstractmethod
    def _result(self, sql: str) -> list[Row]:
        """All rows of a statement's result; UnsuitableError: JDBC has other texts."""

    @abstractmethod
    def _failure(self, error: Any) -> tuple[str, str]:
        """A failure's SQLSTATE, which may be empty, and its message in one line."""

    @property
    @abstractmethod
    def _errors(self) -> tuple[type[Exception], ...]:
        """The classes of the driver's failures."""

    @property
    def _statements(self) -> tuple[str, ...]:
        """Those that begin a session."""
        return self._source.session_statements

    def _selected(self, sql: str) -> list[Row]:
        return self._by_either(sql, lambda: self._jdbc.rows(sql))

    def _by_either(self, sql: str, by_jdbc: Callable[[], T]) -> list[Row] | T:
        """The result of this driver, or that of the JDBC driver if this one is unsuitable."""
        try:
            with self._refusing(f"the database refused {shown(sql)}: "):
                return self._result(sql)
        except UnsuitableError as error:
            logger.debug("the JDBC driver executes %s: %s", shown(sql), error)
        return by_jdbc()

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        with self._waiting():
            try:
                yield
            except self._errors as error:
                state, message = self._failure(error)
                lost = is_lost_state(state)
                hidden = self._source.hides_values and not lost and state_may_quote(state)
                kind, code = refusal(state, message, TapCode.STATEMENT_REFUSED, lost=lost)
                reason = with_hint(message, state, hides_values=hidden)
                raise kind(code, f"{what}{reason}") from None if hidden else error

    def _opened(self) -> Any:
        """A connection with a session that is set up; it becomes this one's."""
        self._connection = made = self._connected()
        # A run that failed leaves it open.
        finalize(self, _close, made).atexit = False
        for statement in self._statements:
            self.execute(statement)
        return made

    def _reopened(self) -> Any:
        """Another connection of the driver; SourceError: as the JDBC driver reports it."""
        try:
            return self._opened()
        except UnsuitableError as error:
            self._open_jdbc().close()
            raise ConnectionLostError(
                TapCode.CONNECTION_LOST, f"can't connect to {self._source.location}: {error}"
            ) from error


def _close(connection: Any) -> None:
    # It may have broken, or be closed.
    with suppress(Exception):
        connection.close()
