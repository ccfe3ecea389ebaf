"""Whether a whole table is continued where a dead run stopped: only if the rows sent are all still
there, unchanged.

A row version never changes: it is deleted, or replaced by another one with a later writer. So if
all the rows that were visible then, by their number, are still visible in the same part of the same
table, none of them was changed or deleted. Rows with a later writer were added since, and are sent
too (PostgreSQL). Without this proof a table is read from its start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import TransactionSnapshot
from tap_spark_jdbc.extract.stream_progress import TableMoment
from tap_spark_jdbc.plan.late_rows import FAR, WRITER, LateRows
from tap_spark_jdbc.plan.slices import Range, Slice

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.extract.server import SnapshotServer
    from tap_spark_jdbc.plan.stream_sql import Point

_UNKNOWN = "nothing shows whether a row of it was changed or deleted since"
_OTHER = "the database is another one, or was restored to an earlier state"
_REPLACED = "the table was emptied, rewritten or altered since"
_CHANGED = "rows of it were changed or deleted since"


def moment_of(
    server: SnapshotServer, snapshot: str | None, relations: str | None
) -> TableMoment | None:
    """The moment of a snapshot, given the server's text of it and the relations' digest; None
    without both.
    """
    if snapshot is None or relations is None:
        return None
    xmin, xmax = (int(number) for number in snapshot.split(":")[:2])
    return TableMoment(
        TransactionSnapshot(server.system, xmin, xmax, timeline=server.timeline), relations
    )


def continued(
    extraction: Extraction, server: SnapshotServer | None, now: TableMoment | None
) -> Extraction:
    """The extraction of a whole table, with what a dead run has sent of it if none of these rows
    has changed.

    If nothing can be proven, a table that was read completely stays as it was then, and any other
    is read from its start.
    """
    progress = extraction.progress
    if not progress.begun:
        return replace(extraction, progress=replace(progress, moment=now))
    before = progress.moment
    if server is None or before is None or now is None:
        return extraction if progress.complete else extraction.from_the_start(_UNKNOWN, now)
    since = now.snapshot.xmax - before.snapshot.xmin
    same = before.snapshot.is_of(now.snapshot.system, now.snapshot.timeline)
    if not same or before.snapshot.xmax > now.snapshot.xmax or since >= FAR:
        return extraction.from_the_start(_OTHER, now)
    if before.relations != now.relations:
        return extraction.from_the_start(_REPLACED, now)
    if server.heaps(extraction.plan.table) is None:
        return extraction if progress.complete else extraction.from_the_start(_UNKNOWN, now)
    sent = _sent(extraction)
    late = LateRows(before.snapshot, now.snapshot.xmax, (sent,))
    found = _found(extraction, late, sent)
    if found.old != progress.rows:
        return extraction.from_the_start(_CHANGED, now)
    if not found.new:
        return replace(extraction, progress=replace(progress, moment=now))
    return replace(extraction, sql=replace(extraction.sql, late=late), moment=now)


@dataclass(frozen=True)
class _Found:
    """Rows of the part that was sent: those that were certainly visible then, and those that were
    added since.
    """

    old: int
    new: int


def _sent(extraction: Extraction) -> Slice[Point]:
    """The part of the table that the dead run has sent."""
    position, split = extraction.progress.split, extraction.sql.split
    if position is None or split is None:
        return Slice()
    return Slice(split=Range(None, extraction.bounds(split).point_of_bookmark(position.next)))


def _found(extraction: Extraction, late: LateRows[Point], sent: Slice[Point]) -> _Found:
    sql, unseen = extraction.sql, late.unseen(WRITER)
    ((rows, new),) = extraction.connection.rows(
        f"SELECT CAST(COUNT(*) AS text) AS n, CAST(COUNT(CASE WHEN {unseen} THEN 1 END) AS text) "
        f"AS added {sql.source} AND {sql.condition(sent)}"
    )
    return _Found(int(rows or 0) - int(new or 0), int(new or 0))
