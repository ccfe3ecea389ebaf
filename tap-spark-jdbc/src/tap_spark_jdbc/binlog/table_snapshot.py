"""One snapshot of several tables for several connections, and the place in the binary log at that
moment.

The tables are locked for a moment, until the connections have begun their transactions. If the user
may not lock them, one connection reads: MariaDB reports where its snapshot is in the log, and MySQL
reports which transactions it shows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.binlog.position import FIRST_OFFSET, LogPosition
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection, connected

if TYPE_CHECKING:
    from tap_spark_jdbc.binlog.binlog_server import BinlogServer
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")
# Writers queue behind a lock request that waits, so each attempt is short.
_LOCK_SECONDS, _ATTEMPTS = 2, 30
# Load methods under which a change that is sent twice is kept twice.
_KEEPING = ("append-only", "append-dedup")
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_SETTLED_SECONDS = 2.0
# Attempts to find a moment without a commit.
_QUIET_ATTEMPTS = 100
_SHOWN = "SHOW STATUS WHERE Variable_name IN ('Binlog_snapshot_file', 'Binlog_snapshot_position')"


@dataclass(frozen=True)
class TableSnapshot:
    """A snapshot of tables.

    Attributes:
        position: All that was committed before it is shown.
        gtids: The identifiers of the transactions that are shown, as far as they are known; others
            may be shown, too.
    """

    position: LogPosition
    gtids: str


def take(database: Database, server: BinlogServer, plans: Sequence[StreamPlan]) -> TableSnapshot:
    """Take a snapshot, in which `Database.idle_connections` read from now on.

    SourceError: writers hold the tables.
    """
    if database.by_spark:
        # Each slice is read at its own moment; what changes meanwhile comes again from the log.
        shown, connection = _without_lock(database, server, [])
        connection.close()
        return shown
    quote = database.source.dialect.quote
    tables = ", ".join(
        f"{quote(str(plan.table.schema))}.{quote(plan.table.name)} READ" for plan in plans
    )
    with closing(JdbcConnection.open(database.gateway, database.source)) as holder:
        if not _locked(holder, tables, plans):
            keeping = [plan.stream for plan in plans if plan.load_method in _KEEPING]
            shown, connection = _without_lock(database, server, keeping)
            database.idle_connections.pin([connection])
            return shown
        try:
            database.idle_connections.pin([_begun(database) for _ in range(database.n_jobs)])
            return TableSnapshot(server.end(), server.executed)
        finally:
            with suppress(SourceError):
                holder.execute("UNLOCK TABLES")


def _locked(holder: JdbcConnection, tables: str, plans: Sequence[StreamPlan]) -> bool:
    """Lock the tables against writers; False: the user may not."""
    holder.execute(f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
    for _ in range(_ATTEMPTS):
        try:
            holder.execute(f"LOCK TABLES {tables}")
            return True
        except SourceError as error:
            if "lock wait timeout" not in str(error).lower():
                return False
    raise SourceError(
        TapCode.LOG_WAITS,
        f"streams {', '.join(plan.stream for plan in plans)}: transactions that write to their "
        f"tables have been open for over {_LOCK_SECONDS * _ATTEMPTS} seconds, so there is no "
        "moment to read them at; run it again later",
    )


def _without_lock(
    database: Database, server: BinlogServer, keeping: Sequence[str]
) -> tuple[TableSnapshot, Any]:
    """A snapshot, and the connection that is in it.

    ConfigurationError: it is unknown what the snapshot contains, and the streams in `keeping` must
    not get any change twice.
    """
    if server.is_mariadb:
        connection = _begun(database)
        shown = dict(_rows(connection, _SHOWN))
        position = LogPosition.of(
            shown["Binlog_snapshot_file"], int(shown["Binlog_snapshot_position"])
        )
        return TableSnapshot(position, _gtids_at(database, position)), connection
    position = server.end()
    if not server.gtids:
        _check_no_one_waits(database)
        # A transaction is in the log shortly before it becomes visible; what comes in between is
        # sent twice.
        time.sleep(_SETTLED_SECONDS)
        return TableSnapshot(position, ""), _begun(database)
    # Transactions that are in the log may not be visible yet. A file ends once everything in it is
    # visible, so the snapshot lacks nothing from before this file. For this file, identifiers show
    # what the snapshot has.
    position = LogPosition.of(position.file, FIRST_OFFSET)
    for _ in range(_QUIET_ATTEMPTS):
        before = server.executed
        connection = _begun(database)
        if before == server.executed:
            return TableSnapshot(position, before), connection
        connection.close()
    if keeping:
        raise ConfigurationError(
            TapCode.LOG_GRANT_MISSING,
            f"streams {', '.join(keeping)}: the server commits transactions without a pause, so "
            "without a lock the tap does not know which of them the first reading contains: GRANT "
            "LOCK TABLES to the user for the first run",
        )
    logger.info(
        "the server commits without a pause: some changes that the first reading contains will be "
        "sent again"
    )
    return TableSnapshot(position, before), _begun(database)


def _check_no_one_waits(database: Database) -> None:
    """Raise ConfigurationError if transactions may be in the log long before they become
    visible.
    """
    found = database.connection.rows("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_status'")
    names = [str(name).lower() for name, on in found if on == "ON"]
    if any(each.endswith(("source_status", "master_status")) for each in names):
        raise ConfigurationError(
            TapCode.LOG_GRANT_MISSING,
            "the server commits only what a replica has (semi-synchronous replication) and has no "
            "GTIDs, so only a lock shows where in the log a table's reading begins: GRANT LOCK "
            "TABLES to the user for the first run, or set gtid_mode = ON",
        )


def _gtids_at(database: Database, position: LogPosition) -> str:
    """MariaDB's identifiers of what lies before a position."""
    ((found,),) = database.connection.rows(
        f"SELECT BINLOG_GTID_POS('{position.file}', {position.offset})"
    )
    return str(found or "")


def _begun(database: Database) -> Any:
    """A connection in a transaction that sees the database as it is now."""
    connection = connected(database.gateway, database.source)
    with closing(connection.createStatement()) as statement:
        for each in (*database.source.session_statements, _BEGIN):
            statement.execute(each)
    return connection


def _rows(connection: Any, sql: str) -> list[tuple[str, str]]:
    found = []
    with (
        closing(connection.createStatement()) as statement,
        closing(statement.executeQuery(sql)) as result,
    ):
        while result.next():
            found.append((str(result.getString(1)), str(result.getString(2))))
    return found
