"""Watch for sessions that wait for locks of our transactions, and end these transactions at once
(PostgreSQL).

Reading a table locks it against DDL, and all other queries queue behind waiting DDL. Our
transactions, including those of executors, are recognised by a shared advisory lock that each of
them takes: `pg_locks` shows it to every user.
"""

from __future__ import annotations

import logging
import secrets
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

logger = logging.getLogger("tap-spark-jdbc")

LOOK_SECONDS = 0.4
_OURS = """
WITH ours AS MATERIALIZED (
  SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND l.granted
    AND l.objsubid = 1
    AND CAST(CAST(l.classid AS text) AS bigint) = {high}
      AND CAST(CAST(l.objid AS text) AS bigint) = {low}
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
      WHERE d.datname = pg_catalog.current_database())
)
"""
_WAITING = f"""{_OURS}
SELECT CAST(MIN(w.pid) AS text) FROM pg_catalog.pg_locks w
WHERE NOT w.granted AND w.pid NOT IN (SELECT pid FROM ours)
  AND pg_catalog.pg_blocking_pids(w.pid) && ARRAY(SELECT pid FROM ours)
"""
_END = (
    f"{_OURS} SELECT COUNT(pg_catalog.pg_terminate_backend(pid)) FROM ours WHERE pid <> "
    "pg_catalog.pg_backend_pid()"
)


class LockWatch:
    """Watches over the connection that holds a snapshot, until it is stopped.

    Attributes:
        mark: The statement that marks a transaction as one of ours.
        waiter: The process of the session that waited, if any.
    """

    def __init__(self, holder: JdbcConnection) -> None:
        """Nothing is watched yet.

        The holder's transaction is ended first, so that no further reader can begin.
        """
        number = secrets.randbits(62)
        halves = {"high": number >> 32, "low": number & 0xFFFFFFFF}
        # No query: a transaction's snapshot must be set before the first one is parsed, and some
        # drivers parse ahead.
        self.mark = f"DO 'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared({number}); END'"
        self.waiter: str | None = None
        self._waiting, self._end = (each.format(**halves) for each in (_WAITING, _END))
        self._holder = holder
        self._over = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start watching."""
        self._thread = Thread(target=self._watch, name="lock-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; when this returns, the holder is free for other uses."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # as Py4J raises it where the JVM has ended
                # The snapshot has ended with its connection: reading in it fails.
                logger.debug(
                    "no longer checking whether other sessions wait for this one: %s", error
                )
                return

    def _look(self) -> None:
        if self.waiter is None:
            self.waiter = self._holder.rows(self._waiting)[0][0]
            if self.waiter is None:
                return
            self._holder.execute("ROLLBACK")
        # Repeated until there is no reader: one may just have begun.
        self._holder.rows(self._end)
