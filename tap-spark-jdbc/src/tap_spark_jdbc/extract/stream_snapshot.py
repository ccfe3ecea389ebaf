"""The snapshot in which a stream is read, and the rows that the last run's snapshot could not show
(PostgreSQL).

The order matters: the upper bound is fixed, then the open transactions are listed, then the
snapshot is taken. So a transaction that began before the bound was fixed is either listed, or had
ended before the snapshot was taken.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import MAX_OPEN, MAX_SEEN, TransactionSnapshot
from singer_spark.errors import ConnectionLostError, SourceError
from tap_spark_jdbc.extract.late_searches import (
    LateSearches,
    last_snapshot,
    not_reached,
    sent_before,
    warn_of_joined,
    window_of,
    with_late_rows_of_the_last_run,
)
from tap_spark_jdbc.extract.resumption import moment_of, table_continued
from tap_spark_jdbc.extract.server import (
    Heaps,
    OpenTransactions,
    SnapshotServer,
    snapshot_numbers,
    warn,
)
from tap_spark_jdbc.extract.shared_snapshot import SharedSnapshot, Undisturbed
from tap_spark_jdbc.plan.late_rows import (
    ALL_JOINED,
    FAR,
    NONE_JOINED,
    LateRows,
    LateSearch,
    Written,
    written_of,
    written_query,
)
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_sql import range_condition
from tap_spark_jdbc.source.open_connections import PINNED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

logger = logging.getLogger("tap-spark-jdbc")


class StreamSnapshots:
    """Snapshots of the streams being read, one stream at a time.

    Attributes:
        server: The server they are taken from.
        searches: How late rows are looked for in each stream.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._shared = SharedSnapshot(database)
        self.server = SnapshotServer(database)
        self.searches = LateSearches(database, self.server)
        self._cannot_share = False
        self._text: str | None = None
        self._undisturbed: Undisturbed | None = None
        self._long: set[str] = set()
        self._is_pinned = False

    def beside(self, database: Database) -> StreamSnapshots:
        """Snapshots for a stream that is read at the same time, over connections of its own."""
        other = StreamSnapshots(database)
        other._cannot_share, other._long = self._cannot_share, self._long
        other.server = self.server.beside(database)
        other.searches = self.searches.beside(database, other.server)
        return other

    @property
    def held(self) -> str | None:
        """The server's text of the snapshot in which the stream is read; None if its readers share
        none.
        """
        return self._text if self._shared.identifier is not None else None

    def moment(self) -> str:
        """The server's text of a snapshot that shows no row which readers can't see; empty if there
        is none.
        """
        if not self._database.source.dialect.shares_snapshots:
            return ""
        return self._text or self.server.snapshot()

    @property
    def source(self) -> JdbcSource:
        """The source as readers of the stream open it."""
        source = self._shared.source
        return replace(source, snapshot=PINNED) if self._is_pinned else source

    def begin(self, extraction: Extraction, *, follows: bool = True) -> Extraction:
        """Take the snapshot in which the stream is read, after ending that of the stream before.

        Returns the extraction with the rows that were committed late since its bookmark, and, if
        bookmarks are made of it (`follows`), with what these must hold of the transactions that are
        still open.
        """
        plan, dialect = extraction.plan, self._database.source.dialect
        whole = follows and plan.replication_key is None and not plan.is_log_based
        shares = self._database.by_spark or dialect.shares_snapshots
        self._is_pinned = plan.is_log_based and not shares
        if not dialect.shares_snapshots or not self.server.has_snapshots:
            return table_continued(extraction, None, None) if whole else extraction
        if extraction.progress.complete and not whole:
            return extraction
        last = last_snapshot(extraction)
        guarded = follows and plan.replication_key is not None and plan.end_value is None
        search = self.searches.of(plan) if guarded else LateSearch("none")
        followed = self._open.lasting() if guarded else frozenset()
        is_open = guarded and (self.server.is_standby or bool(followed))
        self._text = self._shared_snapshot(extraction)
        self._undisturbed = self._shared.undisturbed(plan.stream, extraction.sql.source)
        if whole:
            relations = None if self._undisturbed is None else self._undisturbed.shapes.digest
            with self.reading():
                return table_continued(
                    extraction, self.server, moment_of(self.server, self._text, relations)
                )
        remembers = is_open or (guarded and search.kind in ("all", "window"))
        if not (remembers or last is not None):
            return extraction
        text = self._text or self.server.snapshot()
        xmax = snapshot_numbers(text)[1]
        heaps = self.server.heaps(plan.table, None if last is None else LateRows(last, xmax, ()))
        if heaps is None:
            if is_open or last is not None:
                logger.warning(
                    "stream %s: transactions are open, and its rows don't show which "
                    "transaction wrote them (it is a view, query or foreign table, or the user "
                    "may not read all of it): rows that are committed late are found only by "
                    "safety_lag_seconds",
                    plan.stream,
                )
            return extraction
        if is_open:
            logger.info(
                "stream %s: transactions %s open that began before this run's upper bound was "
                "fixed; the next run looks for what they commit",
                plan.stream,
                "may be" if self.server.is_standby else "are",
            )
        usable = self.server.usable(extraction, search, last, xmax)
        moved = usable is not last
        extraction, last = replace(extraction, moved=moved, renews=moved), usable
        if not follows:
            return with_late_rows_of_the_last_run(extraction, last, xmax)
        with self.reading():
            return self._with_late_rows(
                extraction, search, last, text, followed if remembers else None, heaps
            )

    @property
    def reading(self) -> Callable[[], AbstractContextManager[None]]:
        """Makes the context for all reading of this stream's rows: see `Undisturbed.reading`."""
        return nullcontext if self._undisturbed is None else self._undisturbed.reading

    def end(self) -> None:
        """End a stream, read or abandoned, and release its snapshot; never raises."""
        self._undisturbed = None
        self._is_pinned = False
        self._shared.end()

    def unwatch(self) -> None:
        """Stop the watch at the run's end: see `SharedSnapshot.unwatch`."""
        self._shared.unwatch()

    def is_open(self) -> bool:
        """Whether any transaction is open that may write."""
        return self.server.is_standby or bool(self._open.now())

    @property
    def _open(self) -> OpenTransactions:
        dialect = self._database.source.dialect
        name = dialect.string(dialect.properties["ApplicationName"])
        return OpenTransactions(self._database.connection, name, self._long)

    def _shared_snapshot(self, extraction: Extraction) -> str | None:
        """The server's text of the snapshot that all slices share; None if they can't share one."""
        if self._cannot_share or self.server.is_standby:
            return None
        if not self._database.connection.holds:
            self._cannot_share = True
            warn("no snapshot can be shared here (Spark Connect gives no connection of its own)")
            return None
        # This raises the stream's own problems, and awaits locks before a snapshot is held.
        sql = extraction.sql
        self._database.connection.rows(f"SELECT 1 {sql.source} {sql.dialect.limited(0)}")
        try:
            return self._shared.begin()
        except ConnectionLostError:
            raise
        except SourceError as error:
            self._shared.end()
            self._cannot_share = True
            warn(f"no snapshot can be shared here ({error.message})")
            return None

    def _with_late_rows(
        self,
        extraction: Extraction,
        search: LateSearch,
        last: TransactionSnapshot | None,
        text: str,
        followed: frozenset[str] | None,
        heaps: Heaps,
    ) -> Extraction:
        """Add the rows that the last run could not see, and this run's snapshot.

        This costs at most one look at the table.

        `text` is this run's snapshot. `followed` are the open transactions; None: bookmarks need
        not hold them.
        """
        xmin, xmax = snapshot_numbers(text)
        quiet = not (followed or self.server.is_standby)
        # Before there were windows, they were not queried.
        names: tuple[str, ...] = ()
        if search.kind == "window" and followed and len(followed) <= MAX_OPEN:
            names = tuple(sorted(followed))
        kept = search.kind != "window" or (
            last is not None and (last.quiet, last.open) == (quiet, names)
        )
        if last is not None and last.xmin == last.xmax == xmax and not extraction.moved:
            # Nothing was written in any database of the server.
            same = last if kept else replace(last, quiet=quiet, open=names)
            return replace(
                extraction.behind_bookmark(),
                snapshot=None if followed is None else same,
                renews=not kept,
            )
        late, near = None, None
        if last is not None:
            late = LateRows(last, xmax, sent_before(extraction), heaps.joined(last))
            if search.kind == "window" and not self._looks_everywhere(extraction, late):
                near = window_of(extraction, search)
                late = replace(late, sent=sent_before(extraction, near.lower))
        elif extraction.moved and followed is not None and search.kind in ("all", "window"):
            in_part = search.kind == "window" and extraction.bookmark is not None
            lower = window_of(extraction, search).lower if in_part else None
            none = TransactionSnapshot(self.server.system, xmin, xmax)
            sent = sent_before(extraction, lower)
            extraction = replace(
                extraction, sql=replace(extraction.sql, late=LateRows(none, xmax, sent, ALL_JOINED))
            )
        if late is not None and late.is_exact and extraction.misses_bookmark:
            late = replace(late, sent=(*late.sent, Slice(not_reached(extraction))))
        written = self._written(extraction, late, text, near)
        if late is not None and late.is_exact:
            extraction = (
                extraction.of_unseen_rows(late.unseen_row)
                if written.new
                else extraction.behind_bookmark()
            )
        if late is not None and written.late:
            warn_of_joined(extraction.plan.stream, late)
            logger.info(
                "stream %s: rows below the bookmark were written or committed since the last run; "
                "they are sent too",
                extraction.plan.stream,
            )
            if written.keys is not None and extraction.plan.replication_key is not None:
                # Only this part of the window has to be read again.
                bounds = extraction.bounds(extraction.plan.replication_key)
                least, greatest = (bounds.point(each) for each in written.keys)
                late = replace(late, sent=(Slice(Range(least, greatest, closed=True)),))
            extraction = replace(extraction, sql=replace(extraction.sql, late=late))
        if followed is None:
            return extraction
        if last is not None and not written.new and xmax - last.xmin < FAR and kept:
            return replace(extraction, snapshot=last)
        seen = written.seen
        if near is not None and last is not None:
            # The fingerprints of rows below the window, which were sent when they were within it.
            older = {number for number in last.seen if number >= xmin}
            seen = tuple(sorted({*seen, *older}))[:MAX_SEEN]
        # Numbers wrap around, so the number of a transaction that has just ended could be on a row
        # that is a whole cycle older.
        if xmax >= 2**32 and followed - self._open.now():
            seen = ()
        snapshot = TransactionSnapshot(
            self.server.system, xmin, xmax, seen, quiet, self.server.timeline, heaps.relation, names
        )
        return replace(extraction, snapshot=snapshot, renews=extraction.renews or not kept)

    def _looks_everywhere(self, extraction: Extraction, late: LateRows[Point]) -> bool:
        """Whether late rows may lie below the window: of open transactions, or joined tables."""
        last = late.snapshot
        if late.joined != NONE_JOINED or extraction.progress.split is not None:
            return True
        if last.quiet:
            return False
        if self.server.is_standby:
            return last.xmin < last.xmax
        # Queried after the snapshot is taken, which does not show what is still open.
        return not last.open or not self._open.now().issuperset(last.open)

    def _written(
        self,
        extraction: Extraction,
        late: LateRows[Point] | None,
        text: str,
        near: Range[Point] | None,
    ) -> Written:
        """The result of the look at the writers of all rows, or only of those that are `near`."""
        (xmin, xmax), sql = snapshot_numbers(text), extraction.sql
        key = extraction.plan.replication_key
        if late is None and xmin == xmax:
            return Written((), late=False, new=True)
        sent = () if late is None else late.sent
        ranges = " OR ".join(f"({sql.condition(each)})" for each in sent)
        snapshot, source, keys = sql.dialect.string(text), sql.source, None
        if near is not None and key is not None:
            source = f"{source} AND {range_condition(sql.dialect.operand(key.column), near)}"
            keys = sql.dialect.quote(key.column.name), sql.dialect.key_text(key)
        query = written_query(source, xmin, xmax, snapshot, late, ranges or "FALSE", keys)
        written = written_of(self._database.connection.rows(query)[0], xmin)
        if len(written.seen) == MAX_SEEN:
            logger.warning(
                "stream %s: a transaction has been open so long that more than %d others wrote to "
                    "the table since: rows of the later ones may come again",
                extraction.plan.stream, MAX_SEEN,
            )  # fmt: skip
        return written
