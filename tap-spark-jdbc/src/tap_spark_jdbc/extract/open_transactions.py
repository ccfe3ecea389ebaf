"""Transactions that are open in the database: short ones are awaited, the others are returned
(PostgreSQL).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

PATIENCE_SECONDS = 1.0
PAUSE_SECONDS = 0.02

# Every transaction locks its own number while it lasts, whether it writes or not, and any user can
# see these locks. Transactions of other databases, of the server itself (no user) and of taps can't
# write a row of this one. Numbers begin again when the server restarts, so a name has the server's
# start too. A prepared transaction no longer belongs to a session, so prepared ones are queried
# after the others: one that is prepared between the two queries is in the first.
_OPEN = """
WITH begun AS MATERIALIZED (
SELECT l.virtualxid FROM pg_catalog.pg_locks l LEFT
  JOIN pg_catalog.pg_stat_activity s ON s.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.pid <> pg_catalog.pg_backend_pid()
  AND (s.pid IS NULL OR (s.usesysid IS NOT NULL AND s.application_name IS DISTINCT FROM {name}
    AND s.datid = (SELECT d.oid FROM pg_catalog.pg_database d
      WHERE d.datname = pg_catalog.current_database())))
)
SELECT virtualxid || '@' || CAST(pg_catalog.date_part('epoch',
  pg_catalog.pg_postmaster_start_time()) AS text)
FROM begun UNION ALL
SELECT 'prepared ' || CAST(transaction AS text) FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database() AND (SELECT COUNT(*) FROM begun) >= 0
"""


class OpenTransactions:
    """The open transactions at each look.

    A transaction that has once outlasted `PATIENCE_SECONDS` is not awaited again.
    """

    def __init__(self, connection: JdbcConnection, own_name: str, long: set[str]) -> None:
        """Nothing is queried yet; `connection` must be outside of a transaction.

        `own_name` is a literal, the application name of taps' sessions; `long` has those that have
        outlasted `PATIENCE_SECONDS`.
        """
        self._connection = connection
        self._open = _OPEN.replace("{name}", own_name)
        self._long = long

    def lasting(self) -> frozenset[str]:
        """The transactions open now that are still open after `PATIENCE_SECONDS`."""
        first = still = self.now()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while still - self._long and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
            still = first & self.now()
        self._long |= still
        return still

    def now(self) -> frozenset[str]:
        """The open transactions."""
        return frozenset(name for (name,) in self._connection.rows(self._open) if name is not None)
