"""A connection to the database for small results: metadata, bounds, answers about changes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from singer_spark.errors import SourceError
from tap_spark_jdbc.dialects.templates import Alive
from tap_spark_jdbc.source.connection_errors import again

Row = tuple[str | None, ...]
T = TypeVar("T")


class Connection(ABC):
    """A connection in autocommit mode, for one thread at a time; SourceError: refusals.

    Attributes:
        holds: Whether a transaction, once begun, is still open in the next query.
        waits_since: Since when an answer of the database is due, by the monotonic clock.
        answered_at: When the last answer came.
    """

    holds = True

    def __init__(
        self,
        connection: Any = None,
        *,
        alive: Alive | None = None,
        reopen: Callable[[], Any] | None = None,
    ) -> None:
        """Wrap a connection of the driver; if it breaks, `reopen` makes another one."""
        self._connection = connection
        self._reopen = reopen
        self.waits_since: float | None = None
        self.answered_at = time.monotonic()
        self._alive = alive
        self._asking = Lock()
        self._begin: str | None = None

    def within(self, *begin: str) -> None:
        """Run each later `rows` in a short transaction that begins with these statements; without
        any, in no transaction.
        """
        with self._asking:
            self._begin = "; ".join(begin) or None

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Execute a statement without a result."""

    def rows(self, sql: str) -> list[Row]:
        """All rows of a small result (MAX, COUNT, bounds), each value as the database's text."""
        return self._answer(partial(self._rows, sql))

    @abstractmethod
    def describe(self, query: str) -> list[dict[str, str | None]]:
        """The columns of a query, which is not run, with the fields named as in `getColumns`."""

    @abstractmethod
    def metadata(
        self, method: str, *arguments: str | bool | tuple[str, ...] | None
    ) -> list[dict[str, str | None]]:
        """All rows of `DatabaseMetaData.<method>`, in one call, by column name in upper case."""

    @property
    @abstractmethod
    def server(self) -> str:
        """The database's name and version."""

    @abstractmethod
    def identifier_quote(self) -> str:
        """The identifier quote that the driver reports."""

    @abstractmethod
    def search_pattern(self, name: str) -> str:
        """A name as a pattern for the metadata methods that matches only this name."""

    @property
    def session(self) -> str | None:
        """The connection's number at the server; None if it is not known."""
        return None

    def is_idle(self, session: str) -> bool:
        """Whether a session of ours waits for a statement; False if the server does not say."""
        sql = self._alive.idle if self._alive else None
        return sql is not None and bool(self.rows(sql.replace("{session}", session)))

    def abort(self) -> None:
        """Close the connection; if it is a server's, a thread that waits for it gets an error."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connection; never raises."""

    def _rows(self, sql: str) -> list[Row]:
        if self._begin is None:
            return self._selected(sql)
        try:
            self.execute(self._begin)
            found = self._selected(sql)
        except SourceError:
            with suppress(SourceError):
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")
        return found

    @abstractmethod
    def _selected(self, sql: str) -> list[Row]:
        """All rows of a result, in no transaction of its own."""

    def _answer(self, ask: Callable[[], T]) -> T:
        """The result of `ask`, repeated over a new connection if the old one breaks."""
        reopen = self._reopen
        if reopen is None:
            with self._asking:
                return ask()
        broken = False

        def attempt() -> T:
            nonlocal broken
            if broken:
                self.close()
                self._connection = reopen()
            broken = True
            return ask()

        # The thread that cut the slices of a failed stream may still be waiting for its last
        # answer.
        with self._asking:
            return again(attempt)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Wrap everything that waits for an answer of the database."""
        self.waits_since = time.monotonic()
        try:
            yield
        finally:
            self.waits_since, self.answered_at = None, time.monotonic()
