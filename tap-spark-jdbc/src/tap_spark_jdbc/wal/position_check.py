"""Check that the log still has everything after a bookmark: otherwise an error with what to do,
never a gap.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError
from tap_spark_jdbc.wal.position import LogBookmark, lost, lsn_text

if TYPE_CHECKING:
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.wal.published_tables import LogTable
    from tap_spark_jdbc.wal.slot import LogSlot

logger = logging.getLogger("tap-spark-jdbc")
# Including rows of the attaching transaction: those inserted before the partition was attached are
# not in the log.
_OLDER = "SELECT CASE WHEN EXISTS (SELECT FROM {table} WHERE {older}) THEN '1' ELSE '0' END"


def check_bookmark(
    table: LogTable, bookmark: LogBookmark, slot: LogSlot, system: str, *, there: bool
) -> None:
    """Raise StateError if a stream can't continue from its bookmark in this slot, which is `there`
    or not.
    """
    stream = table.stream
    if bookmark.slot is not None and bookmark.slot != slot.slot:
        raise lost(
            stream,
            f"its bookmark is of slot {bookmark.slot}, and the run reads {slot.slot} (log_slot)",
        )
    if bookmark.system and system and bookmark.system != system:
        raise lost(stream, "its bookmark is of another server")
    if not there:
        raise lost(stream, f"slot {slot.slot} is gone (dropped, or lost with a failover)")
    if slot.confirmed > bookmark.lsn:
        raise lost(
            stream,
            f"slot {slot.slot} begins at {lsn_text(slot.confirmed)}, behind its bookmark "
            f"{lsn_text(bookmark.lsn)}: "
            "the changes in between are gone (an older state was restored, or someone else moved "
            "or remade the slot: "
            "two pipelines that read one database need a log_slot each)",
        )
    if bookmark.timeline not in ("", slot.timeline) and bookmark.lsn > slot.confirmed:
        raise lost(
            stream,
            f"its bookmark is of the server's timeline {bookmark.timeline}, and this is "
            f"{slot.timeline} (a failover, "
            "or a return to an earlier moment): other changes than those that were read may lie "
            "before it",
        )
    if bookmark.table and bookmark.table != table.oid:
        raise lost(stream, "its table was dropped and made anew")
    if bookmark.key is not None and set(bookmark.key) != set(table.key):
        was, now = (", ".join(each) or "none" for each in (bookmark.key, table.key))
        raise lost(stream, f"its key was {was} and is {now} now; the lake's rows have the former")


def check_end(stream: str, bookmark: LogBookmark, until: int) -> None:
    """Raise StateError if the log ends before the bookmark."""
    if bookmark.lsn > until:
        raise lost(
            stream,
            f"its bookmark {lsn_text(bookmark.lsn)} lies behind the end of the server's log "
            f"{lsn_text(until)}: the "
            "server was restored to an earlier moment",
        )


def check_partitions(database: Database, table: LogTable, bookmark: LogBookmark) -> None:
    """Raise StateError if a partition was attached with rows.

    Warn of detached ones, whose rows may stay on purpose.
    """
    if bookmark.partitions is None or table.partitions is None:
        return
    for oid in table.partitions - bookmark.partitions:
        name, transactions = table.attached.get(oid, ("", ()))
        if transactions and _had_rows(database, name, transactions):
            raise lost(
                table.stream, f"partition {name} was attached with rows, which the log doesn't have"
            )
    if gone := len(bookmark.partitions - table.partitions):
        logger.warning(
            "stream %s: %d partition(s) were detached or dropped since the last run, which the log "
            "does not say: their "
            "rows stay in the lake; run with --full if they are to go",
            *(table.stream, gone),
        )


def _had_rows(database: Database, table: str, attached: tuple[str, ...]) -> bool:
    older = " OR ".join(
        f"pg_catalog.age(xmin) >= pg_catalog.age(CAST('{each}' AS xid))" for each in attached
    )
    try:
        ((found,),) = database.connection.rows(
            _OLDER.replace("{table}", table).replace("{older}", older)
        )
    except SourceError as error:
        logger.debug("partition %s could not be asked for its rows: %s", table, error)
        return True
    return found == "1"
