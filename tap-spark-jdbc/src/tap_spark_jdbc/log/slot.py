"""The replication slot of a run: made where it lacks, checked, and moved to what is committed."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.log.log_server import log_server
from tap_spark_jdbc.log.position import bookmarks_of, lsn_of, lsn_text
from tap_spark_jdbc.log.publication import Publication
from tap_spark_jdbc.source.libpq import conninfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.log.log_server import LogServer
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")
# A name of the server has at most so many characters.
_LONGEST = 63
# So long a run waits for another one.
_OTHERS_SECONDS = 60
_SLOT = """
SELECT plugin, CAST(database AS text) AS database, CAST(active_pid AS text) AS active,
  CAST(confirmed_flush_lsn AS text) AS confirmed, coalesce(wal_status, '') AS status,
  coalesce(to_jsonb(s) ->> 'invalidation_reason', '') AS reason,
  substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8) AS timeline
FROM pg_catalog.pg_replication_slots s WHERE slot_name = {slot}
"""
_HELD_BACK = """
SELECT CAST(coalesce(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn), 0) AS text)
FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}
"""
_PLACES = "SELECT CAST(pg_current_wal_insert_lsn() AS text) AS a, CAST(pg_current_wal_flush_lsn() AS text) AS b"
_FLUSH = "SELECT set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'tap-spark-jdbc', '')"


class LogSlot:
    """A slot, which is read through a publication.

    Attributes:
        confirmed: Where it begins.
        timeline: Of the server; another one with each failover, and each return to an earlier moment.
    """

    def __init__(self, database: Database, server: LogServer, slot: str, publication: Publication) -> None:
        """Asks nothing yet."""
        self._database = database
        self._server = server
        self._dialect = database.source.dialect
        self.slot = slot
        self.publication = publication
        self.confirmed = 0
        self.timeline = ""

    def look(self, *, waits: bool = True) -> bool:
        """Whether the slot is there, and where it begins; SourceError: it is of no use any more, or not ours."""
        found = self._made() if waits else next(iter(self._found()), None)
        if found is None:
            return False
        plugin, database, _, confirmed, status, reason, timeline = found
        if plugin != "pgoutput" or database != self._server.database:
            raise ConfigurationError(
                f"slot {self.slot} is another one's (plug-in {plugin}, database {database}): name another log_slot"
            )
        if status == "lost" or reason or confirmed is None:
            raise SourceError(
                f"the server has dropped log that slot {self.slot} needs ({reason or status}, see "
                "max_slot_wal_keep_size): changes are lost; run `spark-lake log drop`, then the tap with --full"
            )
        self.confirmed, self.timeline = lsn_of(confirmed), str(timeline)
        return True

    def _made(self) -> tuple[str | None, ...] | None:
        """The slot, once nobody uses it: a tap that was killed may have left a server that still makes or reads it."""
        end, told = time.monotonic() + _OTHERS_SECONDS, False
        while True:
            found = self._found()
            _, _, active, confirmed, status, *_ = found[0] if found else (None,) * 6
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
        return removed + self.publication.drop()

    def has_changes(self, until: int) -> bool:
        """Whether there is any message up to a place; the server decodes what it must to find the first one."""
        return self._with_slot("read", self.peeking(until, 1, "CAST(count(*) AS text)")) != [("0",)]

    def peeking(self, until: int, most: int | None, asked: str = "data") -> str:
        """The question for all messages up to a place, or for not many more than `most`."""
        text = self._dialect.string
        options = ("proto_version", "1", "publication_names", self._dialect.quote(self.publication.name))
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

    def _with_slot(self, done: str, sql: str) -> list[tuple[str | None, ...]]:
        try:
            return self._rows(sql)
        except SourceError as error:
            raise self.refused(done, str(error)) from error

    def refused(self, done: str, told: str) -> SourceError:
        """The server refused to do something with the slot."""
        if f'publication "{self.publication.name}" does not exist' in told:
            return self.publication.too_new(self.slot)
        return SourceError(f"slot {self.slot} could not be {done}: {told}{self._server.way_out}")

    def _rows(self, sql: str) -> list[tuple[str | None, ...]]:
        return self._database.connection.rows(sql)


def opened(database: Database, pipeline: str, entries: Mapping[str, Mapping[str, Any]]) -> LogSlot:
    """The slot that the settings name, the bookmarks, or the pipeline; ConfigurationError: there is no log to read."""
    if database.source.dialect.name != "postgresql":
        raise ConfigurationError(
            f"LOG_BASED is for PostgreSQL, and this is {database.source.dialect.name}; set another method"
        )
    try:
        conninfo(database.source)
    except ValueError as error:
        raise ConfigurationError(f"LOG_BASED reads by the columnar driver, which can't connect: {error}") from error
    server, settings = log_server(database), database.settings
    slots = {bookmark.slot for bookmark in bookmarks_of(entries).values() if bookmark.slot}
    # A bookmark is of one slot alone, however this run was started.
    known = next(iter(slots)) if len(slots) == 1 and settings.log_slot is None else None
    named = ("spark_tap_" + re.sub("[^a-z0-9_]", "_", (pipeline or server.database).lower()))[:_LONGEST]
    publication = Publication(database, server, settings.log_publication or known or named)
    return LogSlot(database, server, settings.log_slot or known or named, publication)
