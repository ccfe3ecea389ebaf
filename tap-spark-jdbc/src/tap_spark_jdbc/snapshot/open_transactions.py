"""Transactions that are open in the database: short ones are waited for, the others are named (PostgreSQL)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

PATIENCE_SECONDS = 1.0
PAUSE_SECONDS = 0.02

# Every transaction locks its own number from its first moment to its last, whether it writes or not; anyone sees that.
# Those of other databases, of the server itself (no user) and of taps can't write a row of this one.
# A prepared one belongs to no session any more, so these are looked at behind the others: one that is being prepared
# between both looks is in the first.
_OPEN = """
WITH begun AS MATERIALIZED (
SELECT l.virtualxid FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity s ON s.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
  AND (s.pid IS NULL OR (s.usesysid IS NOT NULL AND s.application_name IS DISTINCT FROM {name}
    AND s.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())))
)
SELECT virtualxid FROM begun UNION ALL
SELECT 'prepared ' || CAST(transaction AS text) FROM pg_catalog.pg_prepared_xacts
WHERE database = current_database() AND (SELECT COUNT(*) FROM begun) >= 0
"""


class OpenTransactions:
    """Which transactions are open, look by look; one that outlasted the patience once is not waited for again."""

    def __init__(self, connection: JdbcConnection, own_name: str, long: set[str]) -> None:
        """Looks at nothing yet; asks outside of a transaction.

        `own_name` is a literal, the application name of taps' sessions; `long` has those that outlasted the patience.
        """
        self._connection = connection
        self._open = _OPEN.replace("{name}", own_name)
        self._long = long

    def lasting(self) -> frozenset[str]:
        """Those that are open now and still are after `PATIENCE_SECONDS`."""
        first = still = self.now()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while still - self._long and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
            still = first & self.now()
        self._long |= still
        return still

    def now(self) -> frozenset[str]:
        """Those that are open."""
        return frozenset(name for (name,) in self._connection.rows(self._open) if name is not None)
