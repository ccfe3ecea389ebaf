"""Streams in which nothing has changed since the last run, found by one statement for many of them.

A stream is unchanged if its greatest key is that of the bookmark, no row lacks a key, and the rows
at the bookmark are those that were sent. On PostgreSQL that is the case if no row has a writer that
the last run could not see; on other databases, if the marks of the rows in the bookmark's window
have the saved sum. A stream is also unchanged if it has no bookmark and is still empty. Its state
does not move: the next run sees what is committed meanwhile, just as this one would, so this needs
no snapshot that outlasts the statement. Any other stream is read as usual, which finds out what is
new.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import ConnectionLostError, SourceError
from tap_spark_jdbc.extract.extraction import Extraction, since_of, split_key, unbegun
from tap_spark_jdbc.extract.late_window import LateWindow, warn_of_the_future
from tap_spark_jdbc.extract.server import SnapshotServer, snapshot_numbers
from tap_spark_jdbc.extract.shared_snapshot import LOCK_TIMEOUT
from tap_spark_jdbc.extract.slice_bounds import ColumnBounds
from tap_spark_jdbc.plan.late_rows import FAR, WRITER, LateRows
from tap_spark_jdbc.plan.slices import Range
from tap_spark_jdbc.plan.stream_sql import (
    StreamSql,
    checksum,
    mark,
    marks_of,
    range_condition,
    sum_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.core.bookmark import Bookmark, Boundary
    from tap_spark_jdbc.dialects.templates import Marks
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.source.connection import Connection
    from tap_spark_jdbc.source.database import Database

    # Streams, and where the last run ended in each, if it did.
    Asked = Sequence[tuple[StreamPlan, Bookmark | None]]

logger = logging.getLogger("tap-spark-jdbc")

TOGETHER = 50
# A larger table is scanned for late rows in its own turn, beside other streams, while its locks are
# watched.
MOST_BYTES = 16_000_000
# DDL of other sessions waits for a statement no longer than this. Compiling it (JIT) would take
# longer than running it.
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
    LOCK_TIMEOUT,
    "SET LOCAL statement_timeout = '2s'",
    "SET LOCAL jit = off",
)
_BYTES = ", pg_catalog.sum(pg_catalog.pg_relation_size(tree.oid)) AS bytes"


@dataclass(frozen=True)
class _Part:
    """One stream's part of the statement.

    Attributes:
        found: SQL of its answer, and where it is found; a stream without an answer has changed.
        boundary: What is known of the rows whose marks it has to sum up; None: any answer will do.
    """

    extraction: Extraction
    found: str
    boundary: Boundary | None = None

    @property
    def is_large(self) -> bool:
        """Whether so many rows have to be summed up that it has a statement of its own."""
        return self.boundary is not None and bool(self.boundary.buckets)

    def is_same(self, answer: str) -> bool:
        """Whether this answer says that nothing has changed."""
        if self.boundary is None:
            return True
        dialect, plan = self.extraction.sql.dialect, self.extraction.plan
        assert dialect.marks is not None
        rows, total = sum_of(dialect.marks, answer)
        return (
            rows == self.boundary.rows
            and checksum(dialect, plan, rows, total) == self.boundary.checksum
        )


@dataclass(frozen=True)
class UnchangedStreams:
    """Asks a database which of many streams are unchanged."""

    database: Database
    snapshots: StreamSnapshots
    may_end_early: bool = False

    @property
    def server(self) -> SnapshotServer:
        """The server they are asked of."""
        return self.snapshots.server

    def among(self, bookmarks: Asked) -> Mapping[str, Extraction]:
        """The extraction of each unchanged stream, given where the last run ended in it, if it did.

        It reads no row.
        """
        bookmarks = [
            (plan, bookmark) for plan, bookmark in bookmarks if self._can_be_asked(plan, bookmark)
        ]
        dialect, settings = self.database.source.dialect, self.database.settings
        if not bookmarks or (dialect.marks is None and not dialect.shares_snapshots):
            return {}
        if dialect.marks is not None:
            found = self._by_marks(bookmarks, dialect.marks)
        elif settings.safety_lag_seconds or settings.safety_lag_rows:
            return {}
        elif not self.server.has_snapshots:
            return {}
        else:
            found = self._by_writers(bookmarks)
        for each in found:
            warn_of_the_future(each.plan, each.sql.upper)
        return {each.plan.stream: each for each in found}

    def _by_marks(self, bookmarks: Asked, marks: Marks) -> list[Extraction]:
        """The unchanged ones, by the marks of their rows."""
        parts = [
            part for each in bookmarks if (part := self._marked_part(*each, marks)) is not None
        ]
        # The rows of a large one would otherwise be read by one statement, which takes longer.
        large = [part for part in parts if part.is_large]
        found = self._asked(large, self.database.connection, together=1)
        return found + self._by_few_marks([part for part in parts if not part.is_large], marks)

    def _by_few_marks(self, parts: Sequence[_Part], marks: Marks) -> list[Extraction]:
        """The unchanged ones among streams of few rows each."""
        if not parts:
            return []
        if not marks.begin or not self.database.connection.holds:
            return self._asked(parts, self.database.connection)
        with closing(self.database.another_connection()) as connection:
            for statement in marks.begin:
                connection.execute(statement)
            return self._asked(parts, connection)

    def _by_writers(self, bookmarks: Asked) -> list[Extraction]:
        """The unchanged ones, by the writers of their rows (PostgreSQL)."""
        bookmarks = self._without_open(bookmarks)
        xmax = snapshot_numbers(self.server.snapshot())[1]
        parts = [
            part for each in bookmarks if (part := self._written_part(*each, xmax)) is not None
        ]
        connection = self.database.connection
        if connection.holds:
            connection.within(*_BEGIN)
        try:
            return self._asked(parts, connection)
        finally:
            connection.within()

    def _without_open(self, bookmarks: Asked) -> Asked:
        """The streams whose bookmarks need not name what is open now: below a window, only open
        transactions are looked for.
        """
        known = self.snapshots.searches.known
        windows = {
            each.stream
            for each, last in bookmarks
            if last and ((how := known(each)) is None or how.kind == "window")
        }
        if not windows:
            return bookmarks
        is_open = self.snapshots.is_open()
        return [
            (plan, last)
            for plan, last in bookmarks
            if plan.stream not in windows
            or (not is_open and last and last.snapshot and last.snapshot.quiet)
        ]

    def _asked(
        self, parts: Sequence[_Part], connection: Connection, together: int = TOGETHER
    ) -> list[Extraction]:
        groups = [parts[first : first + together] for first in range(0, len(parts), together)]
        return [part.extraction for group in groups for part in self._unchanged(group, connection)]

    def _unchanged(self, parts: Sequence[_Part], connection: Connection) -> list[_Part]:
        """The unchanged streams.

        A stream whose part fails is not among them, but does not affect the others.
        """
        asked = " UNION ALL ".join(
            f"SELECT '{index}' AS n, {part.found}" for index, part in enumerate(parts)
        )
        try:
            ((answers,),) = connection.rows(
                self.database.source.dialect.together.replace("{parts}", asked)
            )
        except ConnectionLostError:
            raise
        except SourceError as error:
            if len(parts) == 1:
                stream = parts[0].extraction.plan.stream
                logger.debug(
                    "stream %s: whether it changed is asked in a query of its own: %s",
                    stream,
                    error,
                )
                return []
            halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
            return [each for half in halves for each in self._unchanged(half, connection)]
        found = (line.partition(" ") for line in answers.split("\n")) if answers else ()
        asked_parts = ((parts[int(index)], answer) for index, _, answer in found)
        return [part for part, answer in asked_parts if part.is_same(answer)]

    def _empty_part(self, plan: StreamPlan) -> _Part:
        """The part of a stream of which no row was ever sent."""
        dialect = self.database.source.dialect
        sql = StreamSql(dialect, plan, split_key(plan, dialect))
        one = f"SELECT 1 AS n {sql.source} {dialect.limited(1, ordered=False)}"
        none = f"FROM (SELECT COUNT(*) AS c FROM ({one}) f) e WHERE c = 0"
        return _Part(self._extraction(plan, sql, None), f"'' AS found {none}")

    def _extraction(
        self, plan: StreamPlan, sql: StreamSql, bookmark: Bookmark | None
    ) -> Extraction:
        progress = unbegun(plan, bookmark, may_end_early=self.may_end_early)
        last = None if bookmark is None else bookmark.snapshot
        return Extraction(
            plan, sql, bookmark, None, self.database.connection, progress, snapshot=last
        )

    def _at_bookmark(self, bounds: ColumnBounds, at: Point) -> list[str]:
        """The conditions that no row lies above a bookmark or lacks a key."""
        dialect, source, key = bounds.sql.dialect, bounds.sql.source, bounds.key
        name = dialect.operand(key.column)
        # In the order of its index, because a table without statistics would be scanned for rows
        # that do not exist.
        own = dialect.column_of(bounds.sql.plan.table, key.column.name)
        order = f"ORDER BY {own} DESC {dialect.limited(1)}"
        terms = [
            f"(SELECT {name} {source} AND {range_condition(name, Range())} {order}) = {at.literal}"
        ]
        if key.column.nullable:
            terms.append(f"NOT EXISTS (SELECT 1 {source} AND {name} IS NULL)")
        return terms

    def _marked_part(
        self, plan: StreamPlan, bookmark: Bookmark | None, marks: Marks
    ) -> _Part | None:
        """The part of a stream by the marks of its rows; None: it can't be asked in this way."""
        if bookmark is None:
            return self._empty_part(plan)
        dialect, key = self.database.source.dialect, plan.replication_key
        boundary = bookmark.boundary
        window = LateWindow.of(plan, self.database.settings, dialect)
        assert key is not None
        if boundary is None or window.below_unknown(bookmark) is not None:
            return None
        # So many texts would not fit in memory; reading a wide window can make it narrow again.
        if boundary.buckets and (not marks.hashed or window.is_widened(bookmark)):
            return None
        if marks_of(dialect, plan) is None or (
            key.textual and boundary.since is not None and not boundary.since.raw
        ):
            return None
        sql = StreamSql(dialect, plan, split_key(plan, dialect))
        bounds = ColumnBounds(self.database.connection, sql, key)
        at = bounds.point_of_bookmark(bookmark)
        since = since_of(bounds, bookmark)
        sql = StreamSql(dialect, plan, sql.split, at, at, bookmark_since=since, upper_since=since)
        inside = range_condition(dialect.operand(key.column), sql.window)
        terms = " AND ".join([*self._at_bookmark(bounds, at), inside])
        rows = f"SELECT {mark(marks, dialect, plan)} AS m {sql.source} AND {terms}"
        return _Part(
            self._extraction(plan, sql, bookmark), f"{marks.all} AS found FROM ({rows}) r", boundary
        )

    def _written_part(self, plan: StreamPlan, bookmark: Bookmark | None, xmax: int) -> _Part | None:
        """The part of a stream by the writers of its rows; None: it can't be asked in this way."""
        if bookmark is None:
            return self._empty_part(plan)
        dialect, connection = self.database.source.dialect, self.database.connection
        sql = StreamSql(dialect, plan, split_key(plan, dialect))
        key, last = plan.replication_key, bookmark.snapshot
        assert key is not None and last is not None
        late: LateRows[Point] = LateRows(last, xmax, ())
        heaps = self.server.heaps_query(plan.table, late, more=_BYTES)
        same_server = last.is_of(self.server.system, self.server.timeline) and last.xmax <= xmax
        if heaps is None or not same_server or not late.is_exact or xmax - last.xmin >= FAR:
            return None
        bounds = ColumnBounds(connection, sql, key)
        at = bounds.point_of_bookmark(bookmark)
        # Otherwise nothing was written in any database of the server.
        moved = not last.xmin == last.xmax == xmax
        terms = []
        if moved or not key.indexed:
            same = "" if last.relation is None else f" AND h.relation = '{last.relation}'"
            known = f"h.written = '1' AND h.added IS NULL AND h.bytes <= {MOST_BYTES}{same}"
            # This comes before the conditions that may scan the table.
            terms.append(f"(SELECT {known} FROM ({heaps}) h)")
        terms += self._at_bookmark(bounds, at)
        if moved:
            terms.append(f"NOT EXISTS (SELECT 1 {sql.source} AND {late.unseen(WRITER)})")
        sql = StreamSql(dialect, plan, sql.split, at, at)
        return _Part(
            self._extraction(plan, sql, bookmark), f"'' AS found WHERE {' AND '.join(terms)}"
        )

    def _can_be_asked(self, plan: StreamPlan, bookmark: Bookmark | None) -> bool:
        """Whether its rows at the bookmark are known, and the server can show they are the same."""
        key = plan.replication_key
        if key is None or plan.end_value is not None or plan.detect_deletes:
            return False
        if bookmark is None:
            # A view may take long to find its first row.
            return not plan.table.is_view and plan.table.query is None
        boundary = bookmark.boundary
        if boundary is None or not boundary.rows or (key.textual and bookmark.raw is None):
            return False
        has_marks = self.database.source.dialect.marks is not None
        return (boundary.checksum if has_marks else bookmark.snapshot) is not None
