"""The replication slot of a run: created if missing, checked, and moved to what is committed."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.libpq import conninfo
from tap_spark_jdbc.wal.change_log import bookmarks_of, lsn_of, lsn_text
from tap_spark_jdbc.wal.log_source import LogServer, log_server
from tap_spark_jdbc.wal.publication import Publication

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")
# Maximum length of a slot's name.
_LONGEST = 63
# How long a run waits for another that uses the slot.
_OTHERS_SECONDS = 60
_SLOT = """
SELECT plugin, CAST(database AS text) AS database, CAST(active_pid AS text) AS active,
  CAST(confirmed_flush_lsn AS text) AS confirmed, coalesce(wal_status, '') AS status,
  coalesce(pg_catalog.to_jsonb(s) ->> 'invalidation_reason', '') AS reason,
  pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()), 1,
    8) AS timeline
FROM pg_catalog.pg_replication_slots s WHERE slot_name = {slot}
"""
_HELD_BACK = """
SELECT CAST(coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(),
  restart_lsn), 0) AS text)
FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}
"""
_POSITIONS = (
    "SELECT CAST(pg_catalog.pg_current_wal_insert_lsn() AS text) AS a, "
    "CAST(pg_catalog.pg_current_wal_flush_lsn() AS text) AS b"
)
_FLUSH = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'local', true), "
    "pg_catalog.pg_logical_emit_message(true, 'tap-spark-jdbc', '')"
)
# An encoding in which any bytes are a text; the session reads them as they are.
_NO_ENCODING = "SQL_ASCII"
_AS_STORED = f"SET client_encoding = '{_NO_ENCODING}'"


class LogSlot:
    """A slot, which is read through a publication.

    Attributes:
        confirmed: The position at which it begins.
        timeline: The server's timeline; it changes with each failover, and each restore to an
            earlier moment.
    """

    def __init__(
        self, database: Database, server: LogServer, slot: str, publication: Publication
    ) -> None:
        """Nothing is queried yet."""
        self._database = database
        self._server = server
        self._dialect = database.source.dialect
        self.slot = slot
        self.publication = publication
        self.confirmed = 0
        self.timeline = ""

    def look(self, *, waits: bool = True) -> bool:
        """Whether the slot exists; updates where it begins.

        SourceError: it is no longer usable, or not ours.
        """
        found = self._made() if waits else next(iter(self._found()), None)
        if found is None:
            return False
        plugin, database, _, confirmed, status, reason, timeline = found
        if plugin != "pgoutput" or database != self._server.database:
            raise ConfigurationError(
                TapCode.LOG_SLOT_FOREIGN,
                f"slot {self.slot} belongs to something else (plug-in {plugin}, database "
                f"{database}): name another log_slot",
            )
        if status == "lost" or reason or confirmed is None:
            raise SourceError(
                TapCode.LOG_SLOT_LOST,
                f"the server has dropped write-ahead log that slot {self.slot} needs "
                f"({reason or status}, see max_slot_wal_keep_size): changes are lost; run "
                "`spark-lake log drop`, then the tap with --full",
            )
        self.confirmed, self.timeline = lsn_of(confirmed), str(timeline)
        return True

    def _made(self) -> tuple[str | None, ...] | None:
        """The slot, once it is free; a killed tap may have left a server process that still makes
        or reads it.
        """
        end, logged = time.monotonic() + _OTHERS_SECONDS, False
        while True:
            found = self._found()
            _, _, active, confirmed, status, *_ = found[0] if found else (None,) * 6
            if active is None or status == "lost":
                return found[0] if found else None
            if time.monotonic() > end:
                if confirmed is None:
                    raise SourceError(
                        TapCode.LOG_WAITS,
                        f"slot {self.slot} is still being created by process {active}, which "
                        "waits for open transactions to end; end them, or run again later",
                    )
                raise SourceError(
                    TapCode.LOG_SLOT_BUSY,
                    f"slot {self.slot} is in use by process {active}, of another run or another "
                    "program: wait for it, or set another log_slot",
                )
            if not logged:
                logger.info("slot %s is in use by process %s: waiting for it", self.slot, active)
                logged = True
            time.sleep(0.1)

    def _found(self) -> list[tuple[str | None, ...]]:
        return self._rows(_SLOT.replace("{slot}", self._dialect.string(self.slot)))

    def make(self) -> None:
        """Create the slot; the server waits for its open transactions first."""
        logger.info("creating slot %s, which waits for open transactions to end", self.slot)
        slot = self._dialect.string(self.slot)
        self._with_slot(
            "created",
            f"SELECT slot_name FROM pg_catalog.pg_create_logical_replication_slot({slot}, "
            "'pgoutput')",
        )
        self.look()
        self._see_committed()

    def advance(self, lsn: int) -> None:
        """Move the slot to a position up to which everything is committed in the lake."""
        if lsn > self.confirmed:
            position = self._dialect.string(lsn_text(lsn))
            slot = self._dialect.string(self.slot)
            self._with_slot(
                "moved",
                f"SELECT CAST(end_lsn AS text) FROM pg_catalog.pg_replication_slot_advance({slot}, "
                f"{position})",
            )
            self.confirmed = lsn

    def end_of_log(self) -> int:
        """The position up to which commits can be read; write-ahead log that is only in memory is
        flushed first.
        """
        ((inserted, flushed),) = self._rows(_POSITIONS)
        if lsn_of(str(flushed)) < lsn_of(str(inserted)):
            try:
                self._rows(_FLUSH)
            except SourceError as error:
                logger.debug("the write-ahead log could not be flushed: %s", error)
            ((_, flushed),) = self._rows(_POSITIONS)
        return lsn_of(str(flushed))

    def held_back(self) -> int | None:
        """Bytes of write-ahead log that the server keeps for the slot; None: the slot does not
        exist.
        """
        found = self._rows(_HELD_BACK.replace("{slot}", self._dialect.string(self.slot)))
        return int(found[0][0] or 0) if found else None

    def drop(self) -> list[str]:
        """Remove slot and publication, if they exist; returns what was removed."""
        slot, removed = self._dialect.string(self.slot), []
        if self.held_back() is not None:
            self._with_slot(
                "removed", f"SELECT CAST(pg_catalog.pg_drop_replication_slot({slot}) AS text)"
            )
            removed.append(f"slot {self.slot}")
        return removed + self.publication.drop()

    def has_changes(self, until: int) -> bool:
        """Whether there may be any message up to a position; the server decodes only as much as
        needed to find one.
        """
        if self._server.encoding == _NO_ENCODING:
            # Over JDBC it would refuse a text that is not UTF-8.
            return True
        return self._with_slot("read", self.peeking(until, 1, "CAST(count(*) AS text)")) != [("0",)]

    def peeking(self, until: int, most: int | None, selected: str = "data") -> str:
        """The query for all messages up to a position, or for not many more than `most`."""
        text = self._dialect.string
        published = self._dialect.quote(self.publication.name)
        options = ("proto_version", "1", "publication_names", published)
        limit = "NULL" if most is None else str(min(most, 2**31 - 1))
        arguments = ", ".join([text(self.slot), text(lsn_text(until)), limit, *map(text, options)])
        return f"SELECT {selected} FROM pg_catalog.pg_logical_slot_peek_binary_changes({arguments})"

    @property
    def session_statements(self) -> tuple[str, ...]:
        """Statements that begin a session in which messages are read."""
        pinned = self._dialect.session_statements
        # The server would refuse a text that is not UTF-8 without naming its column, or even its
        # table.
        return (*pinned, _AS_STORED) if self._server.encoding == _NO_ENCODING else pinned

    def _see_committed(self) -> None:
        """Wait for transactions whose commit is logged but not yet visible, because the slot begins
        after them.
        """
        ((snapshot,),) = self._rows("SELECT CAST(pg_catalog.pg_current_snapshot() AS text)")
        waited = frozenset(filter(None, str(snapshot).split(":")[2].split(",")))
        end = time.monotonic() + 1
        while waited and time.monotonic() < end:
            time.sleep(0.02)
            ((snapshot,),) = self._rows("SELECT CAST(pg_catalog.pg_current_snapshot() AS text)")
            waited &= frozenset(str(snapshot).split(":")[2].split(","))

    def _with_slot(self, done: str, sql: str) -> list[tuple[str | None, ...]]:
        try:
            return self._rows(sql)
        except SourceError as error:
            raise self.refused(done, error.message) from error

    def refused(self, done: str, message: str) -> SourceError:
        """The error for a slot operation that the server refused with `message`."""
        if f'publication "{self.publication.name}" does not exist' in message:
            return self.publication.too_new(self.slot)
        return SourceError(
            TapCode.LOG_SLOT_REFUSED,
            f"slot {self.slot} could not be {done}: {message}{self._server.way_out}",
        )

    def _rows(self, sql: str) -> list[tuple[str | None, ...]]:
        return self._database.connection.rows(sql)


def opened(database: Database, pipeline: str, entries: Mapping[str, Mapping[str, Any]]) -> LogSlot:
    """The slot named by the settings, the bookmarks, or the pipeline.

    ConfigurationError: there is no log to read.
    """
    if database.source.dialect.name != "postgresql":
        raise ConfigurationError(
            TapCode.LOG_UNSUPPORTED,
            f"LOG_BASED is for PostgreSQL, and this is {database.source.dialect.name}; set another "
            "method",
        )
    try:
        conninfo(database.source)
    except ValueError as error:
        raise ConfigurationError(
            TapCode.LOG_UNSUPPORTED,
            f"LOG_BASED reads by the columnar driver, which can't connect: {error}",
        ) from error
    server, settings = log_server(database), database.settings
    slots = {bookmark.slot for bookmark in bookmarks_of(entries).values() if bookmark.slot}
    # A bookmark belongs to one slot, however this run was started.
    known = next(iter(slots)) if len(slots) == 1 and settings.log_slot is None else None
    words = re.sub("[^a-z0-9_]", "_", (pipeline or server.database).lower())
    named = f"spark_tap_{words}"[:_LONGEST]
    publication = Publication(database, server, settings.log_publication or known or named)
    return LogSlot(database, server, settings.log_slot or known or named, publication)
