"""Whether the log still has all that follows a bookmark: else an error that says what to do, never a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.errors import StateError
from tap_spark_jdbc.log.position import lsn_text

if TYPE_CHECKING:
    from tap_spark_jdbc.log.position import LogBookmark
    from tap_spark_jdbc.log.published_tables import LogTable
    from tap_spark_jdbc.log.slot import LogSlot

_ANEW = "run the tap with --full, or `spark-lake state reset --stream {stream}`, so that the table is read anew"


def check_bookmark(table: LogTable, bookmark: LogBookmark, slot: LogSlot, system: str, *, there: bool) -> None:
    """StateError: a stream can't go on from its bookmark in this slot of this server, if it is `there` at all."""
    stream = table.stream
    if bookmark.slot is not None and bookmark.slot != slot.slot:
        raise lost(stream, f"its bookmark is of slot {bookmark.slot}, and the run reads {slot.slot} (log_slot)")
    if bookmark.system and system and bookmark.system != system:
        raise lost(stream, "its bookmark is of another server")
    if not there:
        raise lost(stream, f"slot {slot.slot} is gone (dropped, or lost with a failover)")
    if slot.confirmed > bookmark.lsn:
        raise lost(
            stream,
            f"slot {slot.slot} begins at {lsn_text(slot.confirmed)}, behind its bookmark {lsn_text(bookmark.lsn)}: "
            "the changes in between are gone (an older state was restored, or somebody else moved or remade the slot)",
        )
    if bookmark.table and bookmark.table != table.oid:
        raise lost(stream, "its table was dropped and made anew")


def check_end(stream: str, bookmark: LogBookmark, until: int) -> None:
    """StateError: the log ends before the bookmark."""
    if bookmark.lsn > until:
        raise lost(
            stream,
            f"its bookmark {lsn_text(bookmark.lsn)} lies behind the end of the server's log {lsn_text(until)}: the "
            "server was restored to an earlier moment",
        )


def lost(stream: str, why: str) -> StateError:
    """The stream's place in the log is of no use any more."""
    return StateError(f"stream {stream}: {why}; {_ANEW.replace('{stream}', stream)}")
