"""The run's open connections: those kept for the next slice, and the watch over all of them, so
that none waits forever for a server that is gone.

A connection over which a slice was read is kept, so that many small tables don't need a login each.

A broken network reports nothing: what was sent is repeated for a quarter of an hour, and a
connection that only waits is never probed. So the kernel is instructed to probe each connection of
the JVM. Its drivers have no setting for this, or only for part of it; libpq has one, see `libpq`.
If nothing has arrived for a while, the server is also asked over a new connection. If it doesn't
answer, the run ends. If it answers, but does nothing for the connection that waits, that connection
is closed, and its query is repeated. A slow query is left alone.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from singer_spark.core.signals import stop_by_error
from singer_spark.engine.spark_jvm import jvm_process_id
from singer_spark.errors import ConnectionLostError, SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection_errors import first_sql_state
from tap_spark_jdbc.source.jdbc_connection import connected, java_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tap_spark_jdbc.source.connection import Connection
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

# The snapshot of a source whose slices are read over connections that were made for it.
PINNED = "pinned"
# A server or a firewall may close a connection that has been idle for longer.
MOST_SECONDS = 30
logger = logging.getLogger("tap-spark-jdbc")
LOOK_SECONDS = 5.0
# After this long without an answer or a row, the server is asked whether it is there.
QUIET_SECONDS = 30.0
# How long it may be out of reach.
DEAD_SECONDS = 45.0
# Options of sockets on Linux: level, option, value (`socket(7)`, `tcp(7)`). Java names only some of
# them.
KEEPALIVE_SECONDS, PROBE_SECONDS, PROBES = 30, 10, 4
USER_TIMEOUT_MILLISECONDS = 80_000
SOCKET_OPTIONS = (
    (1, 9, 1),  # SO_KEEPALIVE
    (6, 4, KEEPALIVE_SECONDS),
    (6, 5, PROBE_SECONDS),
    (6, 6, PROBES),
    (6, 18, USER_TIMEOUT_MILLISECONDS),
)
_ESTABLISHED = "01"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
# The server itself refused a connection, so it is there.
_REFUSED = ("08004", "28", "53", "57")


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
    def one(self, gateway: Any, source: JdbcSource) -> Iterator[tuple[Any, str]]:
        """A connection, and the statements that its use must begin with; closed if the use fails.

        A connection in a transaction is closed as well, because it has a snapshot, or holds locks
        that others wait for.
        """
        if source.snapshot == PINNED:
            connection = self._pinned.get()
            try:
                yield connection, ""
            finally:
                # If it broke, it refuses the next slice, too: another would not see the same rows.
                self._pinned.put(connection)
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


class ServerWatch:
    """A thread that watches the connections of a run until it is stopped."""

    def __init__(
        self,
        ask: Callable[[], Connection],
        gateway: Callable[[], Any],
        moved_at: Callable[[], float],
    ) -> None:
        """Nothing is watched yet.

        Args:
            ask: Opens a connection that does not wait long.
            gateway: The JVM's.
            moved_at: When rows last moved, by the monotonic clock.
        """
        self._moved_at = moved_at
        self._began = 0.0
        self._ask = ask
        self._gateway = gateway
        self._connections: list[Connection] = []
        self._over = Event()
        self._thread: Thread | None = None
        self._sockets: set[str] = set()
        self._silent_since: float | None = None
        self._idle: set[str] = set()

    def start(self) -> None:
        """Start watching, before the first connection is opened."""
        if self._thread is None:
            self._began = time.monotonic()
            self._thread = Thread(target=self._watch, name="server-watch", daemon=True)
            self._thread.start()

    def add(self, connection: Connection) -> None:
        """Watch over a connection, too."""
        self._connections.append(connection)

    def stop(self) -> None:
        """Stop watching; does not wait for a check that is under way."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._limit_sockets()
                self._look()
            except Exception as error:  # as Py4J raises it if the JVM has ended
                logger.debug("no longer watching the connections: %s", error)
                return

    def _look(self) -> None:
        now = time.monotonic()
        waiting = [
            each for each in self._connections if now - (each.waits_since or now) > QUIET_SECONDS
        ]
        if not waiting and now - self._heard_at() <= QUIET_SECONDS:
            self._silent_since = None
            return
        try:
            connection = self._ask()
        except SourceError as error:
            if first_sql_state(error.__cause__ or error).startswith(_REFUSED):
                self._silent_since = None
                return
            self._unreachable(now, error)
            return
        self._silent_since = None
        try:
            self._close_idle(connection, waiting)
        finally:
            connection.close()

    def _unreachable(self, now: float, error: SourceError) -> None:
        self._silent_since = self._silent_since or now
        if now - self._silent_since >= DEAD_SECONDS:
            stop_by_error(
                ConnectionLostError(
                    TapCode.CONNECTION_LOST,
                    f"the database has gone silent and can't be reached: {error}",
                )
            )

    def _close_idle(self, connection: Connection, waiting: list[Connection]) -> None:
        """Close connections that wait for an answer while their session does nothing, as seen in
        two successive checks.
        """
        sessions = {each.session: each for each in waiting if each.session is not None}
        idle = {session for session in sessions if connection.is_idle(session)}
        for session in idle & self._idle:
            logger.debug("session %s waits for nothing: the connection was cut silently", session)
            sessions[session].abort()
        self._idle = idle

    def _heard_at(self) -> float:
        return max(self._began, self._moved_at(), *(each.answered_at for each in self._connections))

    def _limit_sockets(self) -> None:
        """Let the kernel probe each connection of the JVM, including those of Spark's tasks; on
        Linux only.
        """
        with suppress(OSError):
            for number, inode in list(_connections(jvm_process_id())):
                if inode in self._sockets:
                    continue
                self._sockets.add(inode)
                try:
                    _set_options(self._gateway(), number)
                # It has just been closed, or another JDK has no such function.
                except Py4JJavaError as error:
                    logger.debug("the kernel can't be told to probe socket %d: %s", number, error)


def _connections(process: int | None) -> Iterator[tuple[int, str]]:
    """The process's TCP connections: their descriptors and inodes."""
    folder = Path(f"/proc/{process}")
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in (folder / "net" / name).read_text().splitlines()
    ]
    established = {words[9] for words in lines if words[3] == _ESTABLISHED}
    for path in (folder / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            match = _SOCKET.fullmatch(str(path.readlink()))
            if match and match[1] in established:
                yield int(path.name), match[1]


def _set_options(gateway: Any, number: int) -> None:
    """Set a socket's options by the JDK's own `sun.nio.ch.Net` (read in Java 17 to 25)."""
    java = gateway.jvm.java.lang
    whole, truth = java.Integer.TYPE, java.Boolean.TYPE
    kind = java.Class.forName("java.io.FileDescriptor")
    make = kind.getDeclaredConstructor(java_array(gateway, java.Class, whole))
    types = java_array(gateway, java.Class, kind, truth, whole, whole, whole, truth)
    change = java.Class.forName("sun.nio.ch.Net").getDeclaredMethod("setIntOption0", types)
    for each in (make, change):
        each.setAccessible(True)
    descriptor = make.newInstance(java_array(gateway, java.Object, number))
    for level, option, value in SOCKET_OPTIONS:
        arguments = (descriptor, False, level, option, value, False)
        change.invoke(None, java_array(gateway, java.Object, *arguments))
