"""Streams in which nothing has changed since the last run, found by one statement for many of them (PostgreSQL).

A stream is unchanged if its greatest key is that of the bookmark, no row lacks a key, and no row has a writer that the
last run could not see; or if it has no bookmark and is still empty. Its state does not move: what is committed
meanwhile is seen by the next run as by this one, so this needs no snapshot that outlasts the statement. Any other
stream is read as usual, which finds out what is new.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import ConnectionLostError, SourceError
from tap_spark_jdbc.extraction.extraction import Extraction, split_key, unbegun
from tap_spark_jdbc.extraction.settling import warn_of_the_future
from tap_spark_jdbc.extraction.slice_bounds import ColumnBounds
from tap_spark_jdbc.plan.late_rows import FAR, WRITER, LateRows
from tap_spark_jdbc.plan.slices import Range
from tap_spark_jdbc.plan.stream_sql import StreamSql, range_condition
from tap_spark_jdbc.snapshot.shared_snapshot import LOCK_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.singer.bookmark import Bookmark
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.snapshot.server import SnapshotServer
    from tap_spark_jdbc.snapshot.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")

TOGETHER = 50
# A larger table is scanned for late rows in its own turn: beside others, and under the watch over locks.
MOST_BYTES = 16_000_000
# DDL of others waits for a statement no longer than this. Compiling it (JIT) would take longer than running it.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
    LOCK_TIMEOUT,
    "SET LOCAL statement_timeout = '2s'",
    "SET LOCAL jit = off",
)
_BYTES = ", pg_catalog.sum(pg_catalog.pg_relation_size(tree.oid)) AS bytes"
_EVERY = "SELECT pg_catalog.string_agg(n, ',') AS streams FROM ({parts}) every"


@dataclass(frozen=True)
class _Part:
    """One stream's part of the statement: a condition that holds if nothing has changed."""

    extraction: Extraction
    condition: str


@dataclass(frozen=True)
class UnchangedStreams:
    """Asks a server which of many streams are unchanged."""

    database: Database
    snapshots: StreamSnapshots
    may_end_early: bool = False

    @property
    def server(self) -> SnapshotServer:
        """The server they are asked of."""
        return self.snapshots.server

    def among(self, bookmarks: Sequence[tuple[StreamPlan, Bookmark | None]]) -> Mapping[str, Extraction]:
        """The extraction of each unchanged stream, given where the last run ended in it, if it did; it reads no row."""
        bookmarks = [(plan, bookmark) for plan, bookmark in bookmarks if _can_be_asked(plan, bookmark)]
        if not bookmarks or not self.database.source.dialect.shares_snapshots or not self.server.has_snapshots:
            return {}
        bookmarks = self._without_open(bookmarks)
        text = self.server.snapshot()
        xmax = int(text.split(":")[1])
        parts = [part for each in bookmarks if (part := self._part(*each, xmax)) is not None]
        connection = self.database.connection
        if connection.holds:
            connection.within(*_BEGIN)
        try:
            groups = [parts[first : first + TOGETHER] for first in range(0, len(parts), TOGETHER)]
            found = [part.extraction for group in groups for part in self._unchanged(group)]
        finally:
            connection.within()
        for each in found:
            warn_of_the_future(each.plan, each.sql.upper)
        return {each.plan.stream: each for each in found}

    def _without_open(
        self, bookmarks: Sequence[tuple[StreamPlan, Bookmark | None]]
    ) -> Sequence[tuple[StreamPlan, Bookmark | None]]:
        """Those whose bookmarks need not name what is open now: below a window, only that is looked for."""
        known = self.snapshots.searches.known
        windows = {
            each.stream for each, last in bookmarks if last and ((how := known(each)) is None or how.kind == "window")
        }
        if not windows:
            return bookmarks
        is_open = self.snapshots.is_open()
        return [
            (plan, last)
            for plan, last in bookmarks
            if plan.stream not in windows or (not is_open and last and last.snapshot and last.snapshot.quiet)
        ]

    def _unchanged(self, parts: Sequence[_Part]) -> list[_Part]:
        """The unchanged ones; a stream whose part fails is not among them, and does not keep others from it."""
        asked = " UNION ALL ".join(f"SELECT '{place}' AS n WHERE {part.condition}" for place, part in enumerate(parts))
        try:
            ((places,),) = self.database.connection.rows(_EVERY.replace("{parts}", asked))
        except ConnectionLostError:
            raise
        except SourceError as error:
            if len(parts) == 1:
                logger.debug("stream %s is asked by itself: %s", parts[0].extraction.plan.stream, error)
                return []
            half = len(parts) // 2
            return [*self._unchanged(parts[:half]), *self._unchanged(parts[half:])]
        return [parts[int(place)] for place in places.split(",")] if places else []

    def _part(self, plan: StreamPlan, bookmark: Bookmark | None, xmax: int) -> _Part | None:
        """The part of a stream; None: it can't be asked in this way."""
        dialect, connection = self.database.source.dialect, self.database.connection
        sql = StreamSql(dialect, plan, split_key(plan, dialect))
        progress = unbegun(plan, bookmark, may_end_early=self.may_end_early)
        if bookmark is None:
            return _Part(Extraction(plan, sql, None, None, connection, progress), f"NOT EXISTS (SELECT 1 {sql.source})")
        key, last = plan.replication_key, bookmark.snapshot
        assert key is not None and last is not None
        late: LateRows[Point] = LateRows(last, xmax, ())
        heaps = self.server.heaps_query(plan.table, late, more=_BYTES)
        same_server = last.is_of(self.server.system, self.server.timeline) and last.xmax <= xmax
        if heaps is None or not same_server or not late.is_exact or xmax - last.xmin >= FAR:
            return None
        at = ColumnBounds(connection, sql, key).point_of_bookmark(bookmark)
        name = dialect.operand(key.column)
        # Else nothing was written in any database of the server.
        moved = not last.xmin == last.xmax == xmax
        terms = []
        if moved or not key.indexed:
            same = "" if last.relation is None else f" AND h.relation = '{last.relation}'"
            known = f"h.written = '1' AND h.added IS NULL AND h.bytes <= {MOST_BYTES}{same}"
            # Before the conditions that may scan the table.
            terms.append(f"(SELECT {known} FROM ({heaps}) h)")
        # In the order of its index: for what does not exist, a table without statistics would be scanned.
        order = f"ORDER BY {dialect.column_of(plan.table, key.column.name)} DESC {dialect.limited(1)}"
        terms.append(f"(SELECT {name} {sql.source} AND {range_condition(name, Range())} {order}) = {at.literal}")
        if key.column.nullable:
            terms.append(f"NOT EXISTS (SELECT 1 {sql.source} AND {name} IS NULL)")
        if moved:
            terms.append(f"NOT EXISTS (SELECT 1 {sql.source} AND {late.unseen(WRITER)})")
        sql = StreamSql(dialect, plan, sql.split, at, at)
        found = Extraction(plan, sql, bookmark, None, connection, progress, snapshot=last)
        return _Part(found, " AND ".join(terms))


def _can_be_asked(plan: StreamPlan, bookmark: Bookmark | None) -> bool:
    """Whether its rows at the bookmark are known to be sent, and the server can tell that they are still the same."""
    key = plan.replication_key
    if key is None or plan.end_value is not None or plan.detect_deletes:
        return False
    if bookmark is None:
        # A view may take long to find its first row.
        return not plan.table.is_view and plan.table.query is None
    boundary = bookmark.boundary
    return (
        not (key.textual and bookmark.raw is None)
        and boundary is not None
        and boundary.rows > 0
        and bookmark.snapshot is not None
    )
