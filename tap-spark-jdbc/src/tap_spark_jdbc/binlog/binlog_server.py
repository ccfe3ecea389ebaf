"""The server whose binary log is read: whether that is possible, where the log ends, what it still
has, how its catalog describes the tables now, and one snapshot of several tables.

The snapshot is for several connections, and comes with the place in the binary log at that moment.
The tables are locked for a moment, until the connections have begun their transactions. If the user
may not lock them, one connection reads: MariaDB reports where its snapshot is in the log, and MySQL
reports which transactions it shows.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.binlog.position import (
    FIRST_OFFSET,
    LoggedColumn,
    LogPosition,
    MariaDbGtids,
    MySqlGtids,
)
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection, connected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")

_VARIABLES = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_value_options", "server_uuid",
    "server_uid",
    "server_id", "version", "gtid_mode", "gtid_executed", "gtid_binlog_pos", "gtid_purged",
)  # fmt: skip
_NAMED_STATUS = 80_200
_CASCADES_LOGGED = 90_600
_COLUMNS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, ''), EXTRA
FROM information_schema.COLUMNS WHERE {tables} ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""
# A constraint has no names of its own for its rules, so they are spelled as in the catalog.
_CASCADES = """
SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, CONCAT('ON DELETE ', DELETE_RULE,
  ' ON UPDATE ', UPDATE_RULE)
FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE ({tables})
  AND (DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR UPDATE_RULE IN ('CASCADE',
    'SET NULL', 'SET DEFAULT'))
"""
# Writers queue behind a lock request that waits, so each attempt is short.
_LOCK_SECONDS, _ATTEMPTS = 2, 30
# Load methods under which a change that is sent twice is kept twice.
_KEEPING = ("append-only", "append-dedup")
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_SETTLED_SECONDS = 2.0
# How long to look for a moment in which no transaction is being committed.
_QUIET_SECONDS = 5.0
# Read in this order: a transaction leaves the first set as it enters the second.
_COMMITS = "SELECT @@GLOBAL.gtid_owned, @@GLOBAL.gtid_executed"
_SHOWN = "SHOW STATUS WHERE Variable_name IN ('Binlog_snapshot_file', 'Binlog_snapshot_position')"


@dataclass(frozen=True)
class BinlogServer:
    """A server with a log of rows.

    Attributes:
        version: As a number: 90700.
        identifier: What distinguishes it from other servers.
        gtids: Whether each transaction has an identifier that every server of the group knows.
            False if MySQL's transactions have tags, which the tap does not read.
    """

    database: Database
    is_mariadb: bool
    version: int
    identifier: str
    gtids: bool
    variables: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, database: Database) -> BinlogServer:
        """The server; ConfigurationError: why its log can't be read, and what to do."""
        known = _variables(database)
        text = known.get("version", "")
        is_mariadb = "mariadb" in text.lower()
        numbers = [int(each) for each in re.findall(r"\d+", text)[:3]]
        version = numbers[0] * 10_000 + numbers[1] * 100 + numbers[2] if len(numbers) == 3 else 0
        _check(known)
        identifier = known.get("server_uuid") or known.get("server_uid")
        identifier = identifier or f"server_id {known.get('server_id', '')}"
        tagged = MySqlGtids.has_tags(known.get("gtid_executed", ""))
        gtids = is_mariadb or (known.get("gtid_mode", "").upper() == "ON" and not tagged)
        return cls(database, is_mariadb, version, identifier, gtids, known)

    @property
    def gtid_kind(self) -> type[MySqlGtids] | type[MariaDbGtids]:
        """How its sets of identifiers are read."""
        return MariaDbGtids if self.is_mariadb else MySqlGtids

    @property
    def logs_cascades(self) -> bool:
        """Whether rows that a foreign key changes are in the log."""
        return not self.is_mariadb and self.version >= _CASCADES_LOGGED

    @property
    def executed(self) -> str:
        """The identifiers of all transactions in the log, as the server writes the set.

        Empty: they have none.
        """
        if not self.gtids:
            return ""
        name = "gtid_binlog_pos" if self.is_mariadb else "gtid_executed"
        return _untagged(_variables(self.database).get(name, ""))

    def end(self) -> LogPosition:
        """Where the binary log ends now; ConfigurationError: the user may not ask."""
        named = not self.is_mariadb and self.version >= _NAMED_STATUS
        (found, *_) = self._rows(f"SHOW {'BINARY LOG' if named else 'MASTER'} STATUS") or [()]
        if not found:
            raise ConfigurationError(
                TapCode.LOG_UNSUPPORTED,
                "LOG_BASED needs the server's binary log, and it has none: start it with log_bin",
            )
        return LogPosition.of(str(found[0]), int(found[1] or 0))

    def files(self) -> dict[str, int]:
        """The files that the log still has, and their sizes in bytes."""
        return {str(name): int(size or 0) for name, size, *_ in self._rows("SHOW BINARY LOGS")}

    def _rows(self, statement: str) -> list[tuple[str | None, ...]]:
        try:
            return self.database.connection.rows(statement)
        except SourceError as error:
            user = self.database.connection.rows("SELECT CURRENT_USER()")[0][0]
            raise ConfigurationError(
                TapCode.LOG_GRANT_MISSING,
                f"the server does not say where its log ends ({error.message}): run GRANT "
                f"REPLICATION CLIENT ON *.* TO {_quoted(str(user))}",
            ) from error


def _untagged(gtids: str) -> str:
    """A set on one line; empty if the first transaction with a tag has arrived since the run
    began.
    """
    found = "".join(gtids.split())
    return "" if MySqlGtids.has_tags(found) else found


def _variables(database: Database) -> dict[str, str]:
    names = ", ".join(f"'{each}'" for each in _VARIABLES)
    rows = database.connection.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {str(name).lower(): str(value or "") for name, value in rows}


def _check(known: Mapping[str, str]) -> None:
    if known.get("log_bin", "").upper() not in ("ON", "1"):
        raise ConfigurationError(
            TapCode.LOG_UNSUPPORTED,
            "LOG_BASED needs the server's binary log, and it has none: start it with log_bin",
        )
    wanted = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": ""}
    for name, value in wanted.items():
        found = known.get(name, value)
        if found.upper() != value:
            raise ConfigurationError(
                TapCode.LOG_UNSUPPORTED,
                f"LOG_BASED needs {name} {value or 'to be empty'}, and the server has {found}: "
                f"run SET GLOBAL {name} = '{value}', and have applications reconnect; then run "
                "the streams with --full, as older changes may be missing",
            )


def _quoted(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"


@dataclass(frozen=True)
class LoggedTable:
    """A table whose rows are in the log.

    Attributes:
        columns: All its columns, in the order of its rows.
        computed: Names of columns that are computed when they are read, and may not be in the log.
    """

    schema: str
    name: str
    columns: tuple[LoggedColumn, ...]
    computed: frozenset[str]


def logged_tables(server: BinlogServer, plans: Sequence[StreamPlan]) -> dict[str, LoggedTable]:
    """The tables of streams, by stream.

    Raises:
        ConfigurationError: why a table can't be read from the log, and what to do.
    """
    dialect, rows = server.database.source.dialect, server.database.connection.rows
    if not plans:
        return {}

    def chosen(schema: str) -> str:
        pairs = (
            f"({schema} = {dialect.string(str(plan.table.schema))} AND TABLE_NAME = "
            f"{dialect.string(plan.table.name)})"
            for plan in plans
        )
        return " OR ".join(pairs)

    found: dict[tuple[str, str], list[tuple[LoggedColumn, str]]] = {}
    for schema, table, name, native, charset, extra in rows(
        _COLUMNS.replace("{tables}", chosen("TABLE_SCHEMA"))
    ):
        column = LoggedColumn(str(name), str(native), str(charset or ""))
        found.setdefault((str(schema), str(table)), []).append((column, str(extra or "").upper()))
    if not server.logs_cascades:
        _refuse_cascades(rows(_CASCADES.replace("{tables}", chosen("CONSTRAINT_SCHEMA"))), plans)
    tables = {}
    for plan in plans:
        columns = found.get((str(plan.table.schema), plan.table.name))
        if columns is None:
            raise ConfigurationError(
                TapCode.LOG_TABLE_CHANGED, f"stream {plan.stream}: its table is gone; run it again"
            )
        computed = frozenset(each.name for each, extra in columns if "VIRTUAL" in extra)
        tables[plan.stream] = LoggedTable(
            str(plan.table.schema), plan.table.name, tuple(each for each, _ in columns), computed
        )
    return tables


def _refuse_cascades(found: Sequence[tuple[str | None, ...]], plans: Sequence[StreamPlan]) -> None:
    by_table = {(plan.table.schema, plan.table.name): plan.stream for plan in plans}
    for schema, table, constraint, rules in found:
        stream = by_table.get((schema, str(table)))
        if stream is not None:
            raise ConfigurationError(
                TapCode.LOG_TABLE_UNSUITABLE,
                f"stream {stream}: its foreign key {constraint} ({rules}) changes rows without "
                "recording that in the log; set its replication_method to INCREMENTAL with "
                "detect_deletes, or to FULL_TABLE",
            )


@dataclass(frozen=True)
class TableSnapshot:
    """A snapshot of tables.

    Attributes:
        position: All that was committed before it is shown.
        gtids: The transactions that are shown, as far as known; others may be shown, too.
    """

    position: LogPosition
    gtids: str


def take_snapshot(
    database: Database, server: BinlogServer, plans: Sequence[StreamPlan]
) -> TableSnapshot:
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
        f"tables have been open for over {_LOCK_SECONDS * _ATTEMPTS} seconds, so there was no "
        "moment at which to read them; run again later",
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
        with closing(connection.createStatement()) as statement:
            shown = dict(_pairs(statement.executeQuery(_SHOWN)))
        file, offset = shown["Binlog_snapshot_file"], shown["Binlog_snapshot_position"]
        position = LogPosition.of(file, int(offset))
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
    connection = _begun(database)
    gtids, exact = _quiet_moment(connection)
    if keeping and not exact:
        connection.close()
        raise ConfigurationError(
            TapCode.LOG_GRANT_MISSING,
            f"streams {', '.join(keeping)}: the server commits transactions without a pause, so "
            "without a lock the tap does not know which of them the first reading contains: GRANT "
            "LOCK TABLES to the user for the first run",
        )
    if not exact:
        logger.info(
            "the server commits without a pause: some changes that the first reading contains will "
            "be sent again"
        )
    return TableSnapshot(position, gtids), connection


def _quiet_moment(connection: Any) -> tuple[str, bool]:
    """Begin the connection's transaction until no other is committed meanwhile.

    A transaction is visible shortly before it is among the executed ones, and is owned until then
    (https://dev.mysql.com/doc/refman/8.4/en/replication-gtids-lifecycle.html).

    Returns:
        The identifiers of what the snapshot shows, and whether these are all.
    """
    deadline = time.monotonic() + _QUIET_SECONDS
    with (
        closing(connection.createStatement()) as first,
        closing(connection.createStatement()) as second,
    ):
        while True:
            # Results are read last, so that few transactions come in between.
            shown = first.executeQuery(_COMMITS)
            second.execute(_BEGIN)
            ((_, before), (owned, after)) = (*_pairs(shown), *_pairs(second.executeQuery(_COMMITS)))
            exact = before == after and not owned and not MySqlGtids.has_tags(before)
            if exact or time.monotonic() > deadline:
                return _untagged(before), exact


def _check_no_one_waits(database: Database) -> None:
    """Raise ConfigurationError if transactions may be logged long before they are visible."""
    found = database.connection.rows("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_status'")
    names = [str(name).lower() for name, on in found if on == "ON"]
    if any(each.endswith(("source_status", "master_status")) for each in names):
        raise ConfigurationError(
            TapCode.LOG_GRANT_MISSING,
            "the server waits for a replica before it commits (semi-synchronous replication) "
            "and has no GTIDs, so only a lock shows where in the log the reading of a table "
            "begins: GRANT LOCK TABLES to the user for the first run, or set gtid_mode = ON",
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


def _pairs(result: Any) -> list[tuple[str, str]]:
    """A result of two columns, read to its end."""
    found = []
    with closing(result):
        while result.next():
            found.append((str(result.getString(1)), str(result.getString(2))))
    return found
