"""One snapshot of the database for several connections, one after the other (PostgreSQL).

A connection of its own holds it: its transaction locks what is read against a rewrite, which a snapshot would not
outlive, and then exports the snapshot; so nothing can come between.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError

if TYPE_CHECKING:
    from tap_spark_jdbc.database import Database
    from tap_spark_jdbc.jdbc_source import JdbcSource

logger = logging.getLogger("tap-spark-jdbc")

_ISOLATION = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A transaction that waits for slices to be read must not be ended for waiting.
_WAITS = """
SELECT count(set_config(name, '0', true)) FROM pg_catalog.pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""


class SharedSnapshot:
    """The snapshot that the connection for bounds, and each reader, sees the database by.

    Attributes:
        identifier: The server's name of it, while it is held.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held = False
        self.identifier: str | None = None

    @property
    def source(self) -> JdbcSource:
        """The source as readers open it: in the snapshot, while there is one."""
        source = self._database.source
        if self.identifier is None:
            return source
        snapshot = source.dialect.string(self.identifier)
        begin = f"SET TRANSACTION {_ISOLATION}", f"SET TRANSACTION SNAPSHOT {snapshot}"
        return replace(source, transaction=begin, snapshot=self.identifier)

    def begin(self, touch: str) -> str:
        """Takes a snapshot and shares it until `end`.

        Args:
            touch: A statement over all that is going to be read, which gives no row.

        Returns:
            The server's own text of it.

        Raises:
            SourceError: the server can't share one.
        """
        holder, connection = self._database.snapshot_connection, self._database.connection
        self._held = True
        holder.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
        holder.execute(touch)
        holder.execute(_WAITS)
        ((identifier, snapshot),) = holder.rows("SELECT pg_export_snapshot(), CAST(pg_current_snapshot() AS text)")
        connection.execute(f"BEGIN {_ISOLATION}")
        connection.execute(f"SET TRANSACTION SNAPSHOT {self._database.source.dialect.string(identifier or '')}")
        connection.execute(_WAITS)
        self.identifier = identifier
        return str(snapshot)

    def end(self) -> None:
        """Lets go of the snapshot, whatever became of the transactions; never raises."""
        self.identifier = None
        if not self._held:
            return
        self._held = False
        for connection in (self._database.connection, self._database.snapshot_connection):
            try:
                connection.execute("ROLLBACK")
            except SourceError as error:
                # What is asked next is asked over new ones.
                logger.debug("a transaction of the snapshot ended with its connection: %s", error)
                self._database.close_snapshot()
