"""The publication and the replication slot of a run: made where they lack, checked, and moved to what is committed."""

from __future__ import annotations

import json
import logging
import re
import time
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.log.position import lsn_of, lsn_text
from tap_spark_jdbc.log.published_tables import Published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tap_spark_jdbc.log.log_server import LogServer
    from tap_spark_jdbc.log.published_tables import LogTable
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")
# A name of the server has at most so many characters.
_LONGEST = 63
# So long a table that joins a slot waits for those who have written to it.
_WRITERS_SECONDS = 60
_SLOT = """
SELECT plugin, CAST(database AS text) AS database, CAST(active_pid AS text) AS active,
  CAST(confirmed_flush_lsn AS text) AS confirmed, coalesce(wal_status, '') AS status,
  coalesce(to_jsonb(s) ->> 'invalidation_reason', '') AS reason
FROM pg_catalog.pg_replication_slots s WHERE slot_name = {slot}
"""
_PUBLICATION = """
SELECT CAST(oid AS text), CASE WHEN pubinsert AND pubupdate AND pubdelete AND pubtruncate THEN '1' ELSE '0' END,
  CASE WHEN pubviaroot THEN '1' ELSE '0' END
FROM pg_catalog.pg_publication WHERE pubname = {publication}
"""
_PUBLISHED = """
SELECT CAST(c.oid AS text), coalesce((SELECT CAST(r.oid AS text) FROM pg_catalog.pg_publication_rel r
    WHERE r.prpubid = p.oid AND r.prrelid = c.oid), '') AS entry,
  coalesce(to_jsonb(t) ->> 'attnames', '') AS columns, coalesce(to_jsonb(t) ->> 'rowfilter', '') AS filter
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = {publication}
"""
_HELD_BACK = """
SELECT CAST(coalesce(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn), 0) AS text)
FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}
"""
_PLACES = "SELECT CAST(pg_current_wal_insert_lsn() AS text) AS a, CAST(pg_current_wal_flush_lsn() AS text) AS b"
_FLUSH = "SELECT set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'tap-spark-jdbc', '')"
# Whoever has changed a row holds this until the transaction ends, a prepared one too.
_WRITERS = """
SELECT DISTINCT l.virtualtransaction, coalesce(CAST(l.pid AS text), '') FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = current_database()
WHERE l.locktype = 'relation' AND l.granted
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.relation IN (SELECT relid FROM pg_partition_tree({oid}) UNION SELECT {oid})
"""


def object_name(setting: str | None, pipeline: str, database: str) -> str:
    """The name of the slot or publication: the setting's, else by the pipeline, else by the database."""
    if setting:
        return setting
    return ("spark_tap_" + re.sub("[^a-z0-9_]", "_", (pipeline or database).lower()))[:_LONGEST]


class LogSlot:
    """A slot and its publication."""

    def __init__(self, database: Database, server: LogServer, slot: str, publication: str) -> None:
        """Asks nothing yet."""
        self._database = database
        self._server = server
        self._dialect = database.source.dialect
        self.slot = slot
        self.publication = publication
        self.confirmed = 0

    def look(self, *, waits: bool = True) -> bool:
        """Whether the slot is there, and where it begins; SourceError: it is of no use any more, or not ours."""
        found = self._made() if waits else next(iter(self._found()), None)
        if found is None:
            return False
        plugin, database, _, confirmed, status, reason = found
        if plugin != "pgoutput" or database != self._server.database:
            raise ConfigurationError(
                f"slot {self.slot} is another one's (plug-in {plugin}, database {database}): name another log_slot"
            )
        if status == "lost" or reason or confirmed is None:
            raise SourceError(
                f"the server has dropped log that slot {self.slot} needs ({reason or status}, see "
                "max_slot_wal_keep_size): changes are lost; run `spark-lake log drop`, then the tap with --full"
            )
        self.confirmed = lsn_of(confirmed)
        return True

    def _made(self) -> tuple[str | None, ...] | None:
        """The slot, once nobody uses it: a tap that was killed may have left a server that still makes or reads it."""
        end, told = time.monotonic() + _WRITERS_SECONDS, False
        while True:
            found = self._found()
            _, _, active, confirmed, status, _ = found[0] if found else (None,) * 6
            if active is None or status == "lost":
                return found[0] if found else None
            if time.monotonic() > end:
                if confirmed is None:
                    raise SourceError(
                        f"slot {self.slot} is still being made by process {active}, which waits for transactions that "
                        "are open; end these, or run again later"
                    )
                raise SourceError(
                    f"slot {self.slot} is in use by process {active}, of another run or another program: wait for it, "
                    "or set a log_slot of its own"
                )
            if not told:
                logger.info("slot %s is in use by process %s: waiting for it", self.slot, active)
                told = True
            time.sleep(0.1)

    def _found(self) -> list[tuple[str | None, ...]]:
        return self._rows(_SLOT.replace("{slot}", self._dialect.string(self.slot)))

    def make(self) -> None:
        """Makes the slot; it waits for the transactions that are open on the server."""
        logger.info("making slot %s, which waits for the transactions that are open", self.slot)
        slot = self._dialect.string(self.slot)
        self._with_slot("made", f"SELECT slot_name FROM pg_create_logical_replication_slot({slot}, 'pgoutput')")
        self.look()
        self._see_committed()

    def publish(self, tables: Sequence[LogTable]) -> dict[str, Published]:
        """Makes the publication, or adds tables to it; gives what it has, by the stream."""
        names = ", ".join(table.name for table in tables)
        made = self._rows(_PUBLICATION.replace("{publication}", self._dialect.string(self.publication)))
        quoted = self._dialect.quote(self.publication)
        if not made:
            options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
            if self._server.version >= 180_000:
                options += ", publish_generated_columns = stored"
            self._change(f"CREATE PUBLICATION {quoted} FOR TABLE {names} WITH ({options})")
            return self._published(tables)
        _, all_kinds, via_root = made[0]
        if all_kinds != "1" or via_root != "1":
            raise ConfigurationError(
                f"publication {self.publication} must publish all changes, of partitioned tables by their root: ALTER "
                f"PUBLICATION {quoted} SET (publish = 'insert, update, delete, truncate', publish_via_partition_root = "
                "true)"
            )
        known = self._published(tables)
        lacking = [table for table in tables if table.stream not in known]
        for table in lacking:
            self._change(f"ALTER PUBLICATION {quoted} ADD TABLE {table.name}")
            self._wait_for_writers(table)
        return self._published(tables) if lacking else known

    def advance(self, lsn: int) -> None:
        """Moves the slot to a place up to which all is committed in the lake."""
        if lsn > self.confirmed:
            place = self._dialect.string(lsn_text(lsn))
            slot = self._dialect.string(self.slot)
            self._with_slot("moved", f"SELECT CAST(end_lsn AS text) FROM pg_replication_slot_advance({slot}, {place})")
            self.confirmed = lsn

    def end_of_log(self) -> int:
        """The place up to which all that is committed can be read; what only lies in memory is written first."""
        ((inserted, flushed),) = self._rows(_PLACES)
        if lsn_of(str(flushed)) < lsn_of(str(inserted)):
            try:
                self._rows(_FLUSH)
            except SourceError as error:
                logger.debug("the log could not be flushed: %s", error)
            ((_, flushed),) = self._rows(_PLACES)
        return lsn_of(str(flushed))

    def held_back(self) -> int | None:
        """How many bytes of log the server keeps for the slot; None: it is not there."""
        found = self._rows(_HELD_BACK.replace("{slot}", self._dialect.string(self.slot)))
        return int(found[0][0] or 0) if found else None

    def drop(self) -> list[str]:
        """Removes slot and publication, as far as they are there; gives what was removed."""
        slot, removed = self._dialect.string(self.slot), []
        if self.held_back() is not None:
            self._with_slot("removed", f"SELECT CAST(pg_drop_replication_slot({slot}) AS text)")
            removed.append(f"slot {self.slot}")
        if self._rows(_PUBLICATION.replace("{publication}", self._dialect.string(self.publication))):
            self._change(f"DROP PUBLICATION {self._dialect.quote(self.publication)}")
            removed.append(f"publication {self.publication}")
        return removed

    def has_changes(self, until: int) -> bool:
        """Whether there is any message up to a place; the server decodes what it must to find the first one."""
        return self._with_slot("read", self.peeking(until, 1, "CAST(count(*) AS text)")) != [("0",)]

    def peeking(self, until: int, most: int | None, asked: str = "data") -> str:
        """The question for all messages up to a place, or for not many more than `most`."""
        text = self._dialect.string
        options = ("proto_version", "1", "publication_names", self._dialect.quote(self.publication))
        limit = "NULL" if most is None else str(min(most, 2**31 - 1))
        given = ", ".join([text(self.slot), text(lsn_text(until)), limit, *map(text, options)])
        return f"SELECT {asked} FROM pg_logical_slot_peek_binary_changes({given})"

    def _see_committed(self) -> None:
        """Waits for those who have written their commit, and are not seen yet: the slot begins behind them."""
        ((snapshot,),) = self._rows("SELECT CAST(pg_current_snapshot() AS text)")
        waited = frozenset(filter(None, str(snapshot).split(":")[2].split(",")))
        end = time.monotonic() + 1
        while waited and time.monotonic() < end:
            time.sleep(0.02)
            ((snapshot,),) = self._rows("SELECT CAST(pg_current_snapshot() AS text)")
            waited &= frozenset(str(snapshot).split(":")[2].split(","))

    def _wait_for_writers(self, table: LogTable) -> None:
        """Changes of transactions that began before the table was published may not be in the log."""
        question = _WRITERS.replace("{oid}", table.oid)
        waited = {row[0]: row[1] for row in self._rows(question)}
        end = time.monotonic() + _WRITERS_SECONDS
        while waited:
            if time.monotonic() > end:
                processes = ", ".join(pid or "none: it is prepared" for pid in waited.values())
                raise SourceError(
                    f"stream {table.stream}: a transaction that began before the table was published is still open "
                    f"(process {processes}); end it, or run again later"
                )
            time.sleep(0.1)
            there = {row[0] for row in self._rows(question)}
            waited = {one: pid for one, pid in waited.items() if one in there}

    def _published(self, tables: Sequence[LogTable]) -> dict[str, Published]:
        found = self._rows(_PUBLISHED.replace("{publication}", self._dialect.string(self.publication)))
        by_oid = {row[0]: row[1:] for row in found}
        published = {}
        for table in tables:
            if table.oid in by_oid:
                entry, columns, row_filter = by_oid[table.oid]
                named = frozenset(json.loads(columns)) if columns else None
                published[table.stream] = Published(str(entry), named, str(row_filter))
        return published

    def _change(self, statement: str) -> None:
        try:
            self._database.connection.execute(statement)
        except SourceError as error:
            raise SourceError(
                f"publication {self.publication}: {error}; let a superuser, or the owner of the tables with CREATE on "
                f"the database, run: {statement}"
            ) from error

    def _with_slot(self, done: str, sql: str) -> list[tuple[str | None, ...]]:
        try:
            return self._rows(sql)
        except SourceError as error:
            raise self.refused(done, str(error)) from error

    def refused(self, done: str, told: str) -> SourceError:
        """The server refused to do something with the slot."""
        return SourceError(f"slot {self.slot} could not be {done}: {told}{self._server.way_out}")

    def _rows(self, sql: str) -> list[tuple[str | None, ...]]:
        return self._database.connection.rows(sql)
