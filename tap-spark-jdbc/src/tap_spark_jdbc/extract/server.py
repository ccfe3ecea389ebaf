"""A PostgreSQL server as snapshots need it: its support for them, queried once a run, and the
transactions that are open there. Short ones are awaited, the others are returned.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError
from tap_spark_jdbc.plan.late_rows import ALL_JOINED, NONE_JOINED, K, LateRows, LateSearch

if TYPE_CHECKING:
    from singer_spark.core.bookmark import TransactionSnapshot
    from tap_spark_jdbc.dialects.tables import Table
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.source.connection import Connection
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")

# The first version that shows snapshots, and the transactions they include, by numbers that don't
# wrap around.
_OLDEST = 13
# With distinct names: Spark can't read two columns of the same name.
_VERSION = (
    "SELECT pg_catalog.current_setting('server_version_num') AS number, "
    "pg_catalog.current_setting('server_version') AS version"
)
_SERVER = """
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '1' ELSE '0' END AS recovers,
  CASE WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') THEN
    CASE WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE')
      AND pg_catalog.has_function_privilege('pg_catalog.pg_control_recovery()', 'EXECUTE') THEN '2'
        ELSE '1' END
    ELSE '0' END AS may_ask,
  CAST(pg_catalog.pg_current_snapshot() AS text) AS snapshot
"""
_SYSTEM = (
    "SELECT CAST(system_identifier AS text) AS system, {timeline} AS timeline FROM "
    "pg_catalog.pg_control_system(){more}"
)
# A promoted server's own timeline is in its control file at once; that of the last checkpoint
# follows a moment later.
_TIMELINE = {
    "{timeline}": "CAST(greatest(c.timeline_id, r.min_recovery_end_timeline) AS text)",
    "{more}": ", pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r",
}
_NO_TIMELINE = {"{timeline}": "CAST(NULL AS text)", "{more}": ""}
_SNAPSHOT = "SELECT CAST(pg_catalog.pg_current_snapshot() AS text)"
# Only rows of heaps have a writer: those of views and foreign tables (or partitions) don't.
_HEAPS = """
WITH RECURSIVE tree AS (
  SELECT c.oid, c.relkind, c.relam, FALSE AS joined
  FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass({table})
  UNION
  SELECT c.oid, c.relkind, c.relam, tree.joined OR ({joined})
  FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
)
SELECT CASE WHEN pg_catalog.bool_and(tree.relkind = 'p' OR (tree.relkind = 'r'
  AND m.amname = 'heap'))
  AND pg_catalog.has_table_privilege(pg_catalog.to_regclass({table}), 'SELECT') THEN '1'
    ELSE '0' END AS written,
  CAST(CAST(pg_catalog.to_regclass({table}) AS oid) AS text) AS relation,
  (SELECT pg_catalog.string_agg(CAST(tree.oid AS text), ',') FROM tree
    WHERE tree.joined) AS added{more}
FROM tree LEFT JOIN pg_catalog.pg_am m ON m.oid = tree.relam
"""
_JOINED = "CAST(CAST(i.xmin AS text) AS bigint)"
# A heap's rows are in pages, which this version and later ones can find by number; a parent's rows
# are in other tables.
_PAGES = """
SELECT CAST(pg_catalog.pg_relation_size(c.oid) /
  CAST(pg_catalog.current_setting('block_size') AS int) AS text)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname = 'heap'
WHERE c.oid = pg_catalog.to_regclass({table}) AND c.relkind IN ('r', 'm') AND NOT c.relhassubclass
  AND CAST(pg_catalog.current_setting('server_version_num') AS int) >= 140000
"""
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


@dataclass(frozen=True)
class Heaps:
    """A table whose rows have a writer, by its object identifier, and those of its parts that were
    added to it.
    """

    relation: int
    added: tuple[int, ...]

    def joined(self, last: TransactionSnapshot) -> str:
        """The condition for rows of tables that were no part of the stream when the last run read
        it.
        """
        if last.relation not in (None, self.relation):
            return ALL_JOINED
        return f"tableoid IN ({','.join(map(str, self.added))})" if self.added else NONE_JOINED


class SnapshotServer:
    """The server behind a database connection."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def beside(self, database: Database) -> SnapshotServer:
        """The same server over another connection; what is known is not queried or logged again."""
        other = SnapshotServer(database)
        found = ("has_snapshots", "has_unicode_text", "_answers", "_identity")
        other.__dict__ |= {name: self.__dict__[name] for name in found if name in self.__dict__}
        return other

    @cached_property
    def has_snapshots(self) -> bool:
        """Whether the server has snapshots: one that speaks PostgreSQL's protocol may not."""
        try:
            ((number, version),) = self._database.connection.rows(_VERSION)
            if int(number or 0) < _OLDEST * 10_000:
                logger.warning(
                    "PostgreSQL %s is older than %d: slices are not read in one snapshot, and "
                        "rows that are committed late are found only by safety_lag_seconds",
                    version, _OLDEST,
                )  # fmt: skip
                return False
            if self.is_standby:
                warn(
                    "this is a standby, which does not show the transactions that are open on its "
                    "primary"
                )
            if self._database.connection.holds:
                # It is too late to ask within a transaction, which a refusal would end.
                _ = self.system
        except SourceError as error:
            warn(f"this server has no transaction snapshots ({error.message})")
            return False
        return True

    @property
    def is_standby(self) -> bool:
        """Whether it follows a primary: a long-held snapshot would stop its replay."""
        return self._answers[0] == "1"

    @property
    def system(self) -> str:
        """The server's system identifier; empty if it is not accessible."""
        return self._identity[0]

    @property
    def timeline(self) -> int | None:
        """The server's timeline, which changes with a failover and with a restore to an earlier
        state; None: not accessible.
        """
        return self._identity[1]

    @cached_property
    def _identity(self) -> tuple[str, int | None]:
        may_ask, query = self._answers[1], _SYSTEM
        if may_ask == "0":
            return "", None
        for slot, text in (_TIMELINE if may_ask == "2" else _NO_TIMELINE).items():
            query = query.replace(slot, text)
        ((system, timeline),) = self._database.connection.rows(query)
        return str(system), None if timeline is None else int(timeline)

    @cached_property
    def has_unicode_text(self) -> bool:
        """Whether every text of the database is certain to be Unicode."""
        ((encoding,),) = self._database.connection.rows(
            "SELECT pg_catalog.current_setting('server_encoding') AS encoding"
        )
        return encoding != "SQL_ASCII"

    def snapshot(self) -> str:
        """The server's text of a snapshot taken now."""
        ((text,),) = self._database.connection.rows(_SNAPSHOT)
        return str(text)

    def heaps(self, table: Table, late: LateRows[K] | None = None) -> Heaps | None:
        """A table whose rows have a writer, with what was added to it that the last run could not
        see.

        None: its rows have no writer, as in views, queries and foreign tables.
        """
        query = self.heaps_query(table, late)
        if query is None:
            return None
        ((written, relation, added),) = self._database.connection.rows(query)
        if written != "1" or relation is None:
            return None
        return Heaps(int(relation), tuple(int(oid) for oid in added.split(",")) if added else ())

    def heaps_query(
        self, table: Table, late: LateRows[K] | None = None, *, more: str = ""
    ) -> str | None:
        """SQL of `heaps` (`written`, `relation`, `added`, and `more` of its `tree`).

        None: its rows have no writer.
        """
        if table.is_query:
            return None
        dialect = self._database.source.dialect
        name = dialect.string(dialect.table(replace(table, query=None)))
        joined = NONE_JOINED if late is None else late.unseen(_JOINED)
        return _HEAPS.replace("{joined}", joined).replace("{table}", name).replace("{more}", more)

    def pages(self, table: Table) -> int:
        """The number of physical pages by which a table can be cut; 0: it can't be."""
        if table.query is not None:
            return 0
        dialect = self._database.source.dialect
        name = dialect.string(dialect.table(table))
        found = self._database.connection.rows(_PAGES.replace("{table}", name))
        return int(found[0][0] or 0) if found else 0

    def usable(
        self,
        extraction: Extraction,
        search: LateSearch,
        last: TransactionSnapshot | None,
        xmax: int,
    ) -> TransactionSnapshot | None:
        """The last run's snapshot, if it is valid on this server; None: it is not."""
        system, timeline = self.system, self.timeline
        if last is None or (last.is_of(system, timeline) and last.xmax <= xmax):
            return last
        stream, bookmark = extraction.plan.stream, extraction.bookmark
        at = "" if bookmark is None else f" {bookmark.value.text}"
        if search.kind in ("all", "window"):
            reach = (
                "all rows" if search.kind == "all" else f"the rows of the window of {search.span}"
            )
            logger.warning(
                "stream %s: this server is not the last run's (upgraded, restored or failed "
                    "over), so the last run's transaction numbers mean nothing here: %s up to the "
                    "bookmark%s are sent again, and an append-only table then holds twice those "
                    "that it already had%s",
                stream, reach, at,
                "" if search.kind == "all" else "; older rows that were committed around the move "
                    f"may be missing: `spark-lake verify --repair --stream {stream}` adds them",
            )  # fmt: skip
            return None
        logger.warning(
            "stream %s: this server is not the last run's (upgraded, restored or failed over), "
                "so this run does not know which rows at or below the bookmark%s were committed "
                "late around the move, or written there since: such rows may be missing; add them "
                "by `spark-lake verify --repair --stream %s` or a run with --full, or lower the "
                "bookmark by `spark-lake state set --stream %s --value …`; rows that are committed "
                "late from now on are found again",
            stream, at, stream, stream,
        )  # fmt: skip
        if last.system != system or last.xmax > xmax:
            return None
        # After a failover, transaction numbers continue: what the last run saw may be lost, and its
        # number may be another row's.
        return replace(last, seen=(), timeline=timeline)

    @cached_property
    def _answers(self) -> tuple[str, str]:
        ((recovers, may_ask, _),) = self._database.connection.rows(_SERVER)
        return str(recovers), str(may_ask)


def snapshot_numbers(text: str) -> tuple[int, int]:
    """`xmin` and `xmax` of a snapshot, given the server's text of it."""
    xmin, xmax = (int(number) for number in text.split(":")[:2])
    return xmin, xmax


def warn(why: str) -> None:
    """Warn that slices share no snapshot."""
    logger.warning(
        "%s: slices are not read in one snapshot; a row that is committed meanwhile may come again "
        "in the next run",
        why,
    )


class OpenTransactions:
    """The open transactions at each look.

    A transaction that has once outlasted `PATIENCE_SECONDS` is not awaited again.
    """

    def __init__(self, connection: Connection, own_name: str, long: set[str]) -> None:
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
