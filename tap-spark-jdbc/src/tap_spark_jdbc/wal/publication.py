"""The publication of a run, created if missing, with the tables that are to be read from the
write-ahead log.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.wal.change_log import lost

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.wal.log_source import LogServer, LogTable

logger = logging.getLogger("tap-spark-jdbc")
# How long a table that joins a slot waits for its open writers.
WRITERS_SECONDS = 60
_ALL_KINDS = "publish = 'insert, update, delete, truncate'"
_PUBLICATION = """
SELECT CAST(oid AS text), CASE WHEN pubinsert AND pubupdate AND pubdelete AND pubtruncate THEN '1'
  ELSE '0' END,
  CASE WHEN pubviaroot THEN '1' ELSE '0' END
FROM pg_catalog.pg_publication WHERE pubname = {publication}
"""
_PUBLISHED = """
SELECT CAST(c.oid AS text), CAST(coalesce((SELECT r.oid FROM pg_catalog.pg_publication_rel r
    WHERE r.prpubid = p.oid AND r.prrelid = c.oid), {of_schema}p.oid) AS text) AS entry,
  coalesce(pg_catalog.to_jsonb(t) ->> 'attnames', '') AS columns,
  coalesce(pg_catalog.to_jsonb(t) ->> 'rowfilter', '') AS filter
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = {publication}
"""
_OF_SCHEMA = """(SELECT s.oid FROM pg_catalog.pg_publication_namespace s
    WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace), """
# Every transaction that has changed a row holds such a lock until it ends, even a prepared one.
_WRITERS = """
SELECT DISTINCT l.virtualtransaction, coalesce(CAST(l.pid AS text), '') FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = pg_catalog.current_database()
WHERE l.locktype = 'relation' AND l.granted
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
    'AccessExclusiveLock')
  AND l.relation IN (SELECT relid FROM pg_catalog.pg_partition_tree({oid}) UNION SELECT {oid})
"""


@dataclass(frozen=True)
class Published:
    """A table in the publication.

    Attributes:
        entry: OID of what publishes it: its own entry, its schema's, or the publication of all
            tables. It changes if the table is taken out and added again.
        columns: The column list; None if no list is known.
        row_filter: The condition on rows that are published; empty: all.
    """

    entry: str
    columns: frozenset[str] | None
    row_filter: str


class Publication:
    """A publication."""

    def __init__(self, database: Database, server: LogServer, name: str) -> None:
        """Nothing is queried yet."""
        self._database = database
        self._server = server
        self._dialect = database.source.dialect
        self.name = name

    def publish(
        self, tables: Sequence[LogTable], *, going_on: Collection[str] = (), slot: str | None = None
    ) -> dict[str, Published]:
        """Create the publication, or add tables to it; returns its tables by stream.

        Streams that are `going_on` need what was logged before; `slot` is None if it does not exist
        yet. SourceError: changes are lost, or rights are missing.
        """
        made = self._queried(_PUBLICATION)
        quoted = self._dialect.quote(self.name)
        if not made:
            if slot is not None:
                raise self.too_new(slot)
            names = ", ".join(table.name for table in tables)
            options = f"{_ALL_KINDS}, publish_via_partition_root = true"
            if self._server.version >= 180_000:
                options += ", publish_generated_columns = stored"
            self._change(f"CREATE PUBLICATION {quoted} FOR TABLE {names} WITH ({options})")
            return self._published(tables)
        _, all_kinds, via_root = made[0]
        if all_kinds != "1" or via_root != "1":
            raise ConfigurationError(
                TapCode.LOG_PUBLICATION,
                f"publication {self.name} must publish all changes, of partitioned tables by their "
                "root: ALTER "
                f"PUBLICATION {quoted} SET ({_ALL_KINDS}, publish_via_partition_root = true)",
            )
        known = self._published(tables)
        lacking = [table for table in tables if table.stream not in known]
        for table in lacking:
            if table.stream in going_on:
                raise lost(table.stream, f"its table is not in publication {self.name} any more")
        for table in lacking:
            self._change(f"ALTER PUBLICATION {quoted} ADD TABLE {table.name}")
        return self._published(tables) if lacking else known

    def too_new(self, slot: str) -> SourceError:
        """The error for a publication younger than the slot: the server reads its log with the
        catalogs of the time when it was written.
        """
        return SourceError(
            TapCode.LOG_PUBLICATION,
            f"publication {self.name} does not exist, or is younger than the write-ahead log "
            f"that slot {slot} keeps, so that log can't be read with it: run `spark-lake log "
            "drop`, then the tap with --full; or set log_publication to the one that existed "
            "then",
        )

    def wait_for_writers(self, tables: Sequence[LogTable]) -> None:
        """Wait for transactions that wrote before their table was published, because their changes
        may not be in the log.

        Raises:
            SourceError: one of these transactions does not end.
        """
        has_waited = [self._wait(table) for table in tables]
        if any(has_waited) and self._server.version < 180_000:
            # Because of such a transaction, older minor versions remember that the table is not
            # published until this is run.
            try:
                self._database.connection.execute(
                    f"ALTER PUBLICATION {self._dialect.quote(self.name)} SET ({_ALL_KINDS})"
                )
            except SourceError as error:
                logger.debug("publication %s: %s", self.name, error)

    def drop(self) -> list[str]:
        """Remove it, if it exists; returns what was removed."""
        if not self._queried(_PUBLICATION):
            return []
        self._change(f"DROP PUBLICATION {self._dialect.quote(self.name)}")
        return [f"publication {self.name}"]

    def _wait(self, table: LogTable) -> bool:
        question = _WRITERS.replace("{oid}", table.oid)
        waited = {row[0]: row[1] for row in self._rows(question)}
        end, had_to = time.monotonic() + WRITERS_SECONDS, bool(waited)
        while waited:
            if time.monotonic() > end:
                processes = ", ".join(pid or "none: it is prepared" for pid in waited.values())
                raise SourceError(
                    TapCode.LOG_WAITS,
                    f"stream {table.stream}: a transaction that may have begun before the table "
                    "was published is still "
                    f"open (process {processes}); end it, or run again later",
                )
            time.sleep(0.1)
            there = {row[0] for row in self._rows(question)}
            waited = {one: pid for one, pid in waited.items() if one in there}
        return had_to

    def _published(self, tables: Sequence[LogTable]) -> dict[str, Published]:
        of_schema = _OF_SCHEMA if self._server.version >= 150_000 else ""
        found = self._queried(_PUBLISHED.replace("{of_schema}", of_schema))
        by_oid = {oid: rest for oid, *rest in found}
        published = {}
        for table in tables:
            if table.oid in by_oid:
                entry, columns, row_filter = by_oid[table.oid]
                named = frozenset(json.loads(columns)) if columns else None
                published[table.stream] = Published(str(entry), named, str(row_filter))
        return published

    def _queried(self, question: str) -> list[tuple[str | None, ...]]:
        return self._rows(question.replace("{publication}", self._dialect.string(self.name)))

    def _change(self, statement: str) -> None:
        try:
            self._database.connection.execute(statement)
        except SourceError as error:
            raise SourceError(
                TapCode.LOG_PUBLICATION,
                f"publication {self.name}: {error.message}; let a superuser, or the owner of the "
                f"tables with CREATE on the database, run: {statement}",
            ) from error

    def _rows(self, sql: str) -> list[tuple[str | None, ...]]:
        return self._database.connection.rows(sql)


def restricted(plan: StreamPlan, table: LogTable, published: Published) -> StreamPlan:
    """The stream restricted to the columns and rows that are in the log."""
    has = published.columns
    left_out = [
        each.name
        for each in plan.columns
        if each.name in table.generated or (has is not None and each.name not in has)
    ]
    if set(left_out) & set(plan.key_properties):
        raise ConfigurationError(
            TapCode.LOG_KEY_UNSUITABLE,
            f"stream {plan.stream}: the publication leaves out {', '.join(left_out)}, which is "
            "part of its key; take "
            "its column list out of the publication, or set another replication_method",
        )
    if left_out:
        logger.warning(
            "stream %s: the publication leaves out column(s) %s, and so does the stream",
            *(plan.stream, ", ".join(left_out)),
        )
    columns = tuple(each for each in plan.columns if each.name not in left_out)
    return replace(plan, columns=columns, where=published.row_filter or None)
