"""Connections over which a slice was read, kept for the next slice, so that many small tables don't
need a login each.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any

from tap_spark_jdbc.source.jdbc_connection import connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tap_spark_jdbc.source.jdbc_source import JdbcSource

# The snapshot of a source whose slices are read over connections that were made for it.
PINNED = "pinned"
# A server or a firewall may close a connection that has been idle for longer.
MOST_SECONDS = 30


@dataclass
class IdleConnections:
    """The `java.sql.Connection`s of readers that wait for another slice."""

    _idle: list[tuple[JdbcSource, Any, float]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _pinned: SimpleQueue[Any] = field(default_factory=SimpleQueue)

    def pin(self, connections: Sequence[Any]) -> None:
        """Read all slices of a `PINNED` source over these, which are in one snapshot."""
        for each in connections:
            self._pinned.put(each)

    @contextmanager
    def _one_pinned(self) -> Iterator[tuple[Any, str]]:
        connection = self._pinned.get()
        try:
            yield connection, ""
        finally:
            # If it broke, it refuses the next slice as well, because another connection would not
            # see the same rows.
            self._pinned.put(connection)

    @contextmanager
    def one(self, gateway: Any, source: JdbcSource) -> Iterator[tuple[Any, str]]:
        """A connection, and the statements that its use must begin with; closed if the use fails.

        A connection in a transaction is closed as well, because it has a snapshot, or holds locks
        that others wait for.
        """
        if source.snapshot == PINNED:
            with self._one_pinned() as pinned:
                yield pinned
            return
        found = self._taken(source)
        connection = connected(gateway, source) if found is None else found
        kept = False
        try:
            yield connection, source.beginning if found is None else ""
            kept = not source.transaction and connection.getAutoCommit()
        finally:
            if kept:
                with self._lock:
                    self._idle.append((source, connection, time.monotonic()))
            else:
                _close(connection)

    def close(self) -> None:
        """Close those that are idle now."""
        with self._lock:
            idle, self._idle = self._idle, []
        while not self._pinned.empty():
            _close(self._pinned.get())
        for _, connection, _ in idle:
            _close(connection)

    def _taken(self, source: JdbcSource) -> Any | None:
        """The connection that was used last, if it is of the same source; those that have been idle
        for long are closed.
        """
        oldest = time.monotonic() - MOST_SECONDS
        with self._lock:
            late = [connection for _, connection, since in self._idle if since < oldest]
            self._idle = [each for each in self._idle if each[2] >= oldest]
            fit = [index for index, each in enumerate(self._idle) if each[0] == source]
            found = self._idle.pop(fit[-1])[1] if fit else None
        for connection in late:
            _close(connection)
        return found


def _close(connection: Any) -> None:
    # The JVM may be gone already.
    with suppress(Exception):
        connection.close()
