"""The moment at which a stream is read, and what the moment of the last run could not show (PostgreSQL).

The order is all: the upper bound is fixed, then the open transactions are looked at, then the snapshot is taken. So a
transaction that began before the bound was fixed is either met by the look, or had ended before the snapshot.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.errors import ConnectionLostError, SourceError
from singer_spark.singer.transaction_snapshot import MAX_SEEN, TransactionSnapshot
from tap_spark_jdbc.extraction.slice_bounds import ColumnBounds
from tap_spark_jdbc.plan.late_rows import WRITER, LateRows, Written, written_of, written_query
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.snapshot.open_transactions import OpenTransactions
from tap_spark_jdbc.snapshot.shared_snapshot import SharedSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tap_spark_jdbc.extraction.extraction import Extraction
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.snapshot.shared_snapshot import Undisturbed
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

logger = logging.getLogger("tap-spark-jdbc")

# After so many numbers a snapshot is taken anew even where nothing was written: they come round after twice as many.
_FAR = 2**31
# The first that tells snapshots, and which transactions they show, by numbers that don't come round.
_OLDEST = 13
_VERSION = "SELECT current_setting('server_version_num'), current_setting('server_version')"
_SERVER = """
SELECT CASE WHEN pg_is_in_recovery() THEN '1' ELSE '0' END AS recovers,
  CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE') THEN '1' ELSE '0' END AS may_ask,
  CAST(pg_current_snapshot() AS text) AS snapshot
"""
_SYSTEM = "SELECT CAST(system_identifier AS text) FROM pg_control_system()"
# Only rows of heaps say who wrote them: no view's, no foreign table's, no partition's that is one.
_HEAPS = """
WITH RECURSIVE tree AS (
  SELECT c.oid, c.relkind, c.relam FROM pg_catalog.pg_class c WHERE c.oid = to_regclass({table})
  UNION
  SELECT c.oid, c.relkind, c.relam FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
)
SELECT CASE WHEN bool_and(tree.relkind = 'p' OR (tree.relkind = 'r' AND m.amname = 'heap'))
  AND has_table_privilege(to_regclass({table}), 'SELECT') THEN '1' ELSE '0' END
FROM tree LEFT JOIN pg_catalog.pg_am m ON m.oid = tree.relam
"""


class StreamSnapshots:
    """The snapshot of the stream that is being read; that of one stream at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._shared = SharedSnapshot(database)
        self._shares = True
        self._text: str | None = None
        self._undisturbed: Undisturbed | None = None
        self._long: set[str] = set()

    def beside(self, database: Database) -> StreamSnapshots:
        """The same for a stream that is read at the same time, over connections of its own.

        Args:
            database: These connections.
        """
        other = StreamSnapshots(database)
        other._shares, other._long = self._shares, self._long
        # What was found out, and told, of the server.
        found = ("_known", "_server", "_system")
        other.__dict__ |= {name: self.__dict__[name] for name in found if name in self.__dict__}
        return other

    @property
    def held(self) -> str | None:
        """The server's own text of the snapshot that the stream is read in; None where its readers share none."""
        return self._text if self._shared.identifier is not None else None

    @property
    def source(self) -> JdbcSource:
        """The source as readers of the stream open it."""
        return self._shared.source

    def begin(self, extraction: Extraction, *, follows: bool = True) -> Extraction:
        """Takes the snapshot that the stream is read by, once the last stream's is ended.

        Args:
            extraction: The stream.
            follows: Whether bookmarks come of it, which must know of the transactions that are still open.

        Returns:
            The extraction with the rows that were committed late since its bookmark, and with what its next bookmarks
            must know of the transactions that are still open.

        Raises:
            SourceError: the database refused.
        """
        if not self._database.source.dialect.shares_snapshots:
            return extraction
        if extraction.progress.complete or not self._known:
            return extraction
        last, plan = _last_snapshot(extraction), extraction.plan
        guarded = follows and plan.replication_key is not None and plan.end_value is None
        followed = self._open.lasting() if guarded else frozenset()
        is_open = guarded and (self._standby or bool(followed))
        self._text = self._shared_snapshot(extraction)
        self._undisturbed = self._shared.undisturbed(plan.stream, extraction.sql.source)
        remembers = is_open or (guarded and plan.late_rows == "all")
        if not (remembers or last is not None):
            return extraction
        if not self._of_heaps(extraction, matters=is_open or last is not None):
            return extraction
        text = self._text or self._own_snapshot()
        if is_open:
            logger.info(
                "stream %s: transactions %s open that began before this run's upper bound was fixed; the next run "
                "looks for what they commit",
                plan.stream,
                "may be" if self._standby else "are",
            )
        last = self._usable(extraction, last, _numbers(text)[1])
        if not follows:
            return _with_late_ones_of_the_last_run(extraction, last, _numbers(text)[1])
        with self.reading():
            return self._with_late_rows(extraction, last, text, followed if remembers else None)

    @property
    def reading(self) -> Callable[[], AbstractContextManager[None]]:
        """Makes what stands around all reading of this stream's rows: see `Undisturbed.reading`."""
        return nullcontext if self._undisturbed is None else self._undisturbed.reading

    def end(self) -> None:
        """The stream is read, or was given up: nothing is held any longer; never raises."""
        self._undisturbed = None
        self._shared.end()

    def unwatch(self) -> None:
        """The run is over: see `SharedSnapshot.unwatch`."""
        self._shared.unwatch()

    @cached_property
    def _known(self) -> bool:
        """Whether the server is asked for snapshots: what speaks like PostgreSQL need not have any."""
        try:
            ((number, version),) = self._database.connection.rows(_VERSION)
            if int(number or 0) < _OLDEST * 10_000:
                logger.warning(
                    "PostgreSQL %s is older than %d: slices are not read in one snapshot, and rows that are committed "
                    "late are found by safety_lag_seconds alone",
                    version, _OLDEST,
                )  # fmt: skip
                return False
            _ = self._server
            if self._database.connection.holds:
                # Within a transaction, which a refusal would end, it is too late to ask.
                _ = self._system
        except SourceError as error:
            self._tell(f"this server has no transaction snapshots ({error})")
            return False
        return True

    @cached_property
    def _server(self) -> tuple[str, str]:
        ((recovers, may_ask, _),) = self._database.connection.rows(_SERVER)
        if recovers == "1":
            # A snapshot that is held for long would stop the replay there, or be cancelled by it.
            self._shares = False
            self._tell("this is a standby, which does not show the transactions that are open on its primary")
        return str(recovers), str(may_ask)

    @cached_property
    def _system(self) -> str:
        """The server's own identifier; empty where it does not tell."""
        return str(self._database.connection.rows(_SYSTEM)[0][0]) if self._server[1] == "1" else ""

    @property
    def _standby(self) -> bool:
        return self._server[0] == "1"

    @property
    def _open(self) -> OpenTransactions:
        dialect = self._database.source.dialect
        name = dialect.string(dialect.properties["ApplicationName"])
        return OpenTransactions(self._database.connection, name, self._long)

    def _tell(self, why: str) -> None:
        logger.warning(
            "%s: slices are not read in one snapshot; a row that is committed meanwhile may come again in the next run",
            why,
        )

    def _shared_snapshot(self, extraction: Extraction) -> str | None:
        """The server's text of the snapshot that all slices share; None where they can't share one."""
        if self._shares and not self._database.connection.holds:
            self._shares = False
            self._tell("no snapshot can be shared here (Spark Connect gives no connection of its own)")
        if self._shares:
            # What the stream itself lacks is its own error. A lock that somebody has is waited for while none is held.
            self._database.connection.rows(f"SELECT 1 {extraction.sql.source} {extraction.sql.dialect.limited(0)}")
            try:
                return self._shared.begin()
            except ConnectionLostError:
                raise
            except SourceError as error:
                self._shared.end()
                self._shares = False
                self._tell(f"no snapshot can be shared here ({error})")
        return None

    def _own_snapshot(self) -> str:
        """The server's text of a snapshot before all slices."""
        return str(self._database.connection.rows("SELECT CAST(pg_current_snapshot() AS text)")[0][0])

    def _of_heaps(self, extraction: Extraction, *, matters: bool) -> bool:
        dialect, table = self._database.source.dialect, extraction.plan.table
        name = dialect.string(dialect.table(replace(table, query=None)))
        is_table = table.query is None or table.computed_key is not None
        if is_table and self._database.connection.rows(_HEAPS.replace("{table}", name))[0][0] == "1":
            return True
        if matters:
            logger.warning(
                "stream %s: transactions are open, and its rows don't say who wrote them (a view, query or foreign "
                "table, or not all of it may be read): rows that are committed late are found by safety_lag_seconds "
                "alone",
                extraction.plan.stream,
            )
        return False

    def _usable(
        self, extraction: Extraction, last: TransactionSnapshot | None, xmax: int
    ) -> TransactionSnapshot | None:
        """What the last run could see, if it was here and before."""
        if last is None or (last.system == self._system and last.xmax <= xmax):
            return last
        logger.warning(
            "stream %s: the last run saw a later state of the database, or another database: this run does not look "
            "for what was open there",
            extraction.plan.stream,
        )
        return None

    def _with_late_rows(
        self, extraction: Extraction, last: TransactionSnapshot | None, text: str, followed: frozenset[str] | None
    ) -> Extraction:
        """The rows that the last run could not see, and what this run can see; costs at most one scan of the table.

        Args:
            extraction: The stream.
            last: What the last run could see.
            text: The server's own text of this run's snapshot.
            followed: The transactions that are open; None: the bookmarks of this run need not know what it can see.
        """
        xmin, xmax = _numbers(text)
        if last is not None and last.xmin == last.xmax == xmax:
            # Nothing was written in all databases of the server.
            return replace(extraction.behind_bookmark(), snapshot=None if followed is None else last)
        late = None if last is None else LateRows(last, xmax, _sent_before(extraction))
        written = self._written(extraction, late, text)
        if late is not None and late.is_exact:
            extraction = extraction.of_unseen_rows(late.unseen(WRITER)) if written.new else extraction.behind_bookmark()
        if late is not None and written.late:
            logger.info(
                "stream %s: rows below the bookmark were written or committed since the last run; they are sent too",
                extraction.plan.stream,
            )
            extraction = replace(extraction, sql=replace(extraction.sql, late=late))
        if followed is None:
            return extraction
        if last is not None and not written.new and xmax - last.xmin < _FAR:
            return replace(extraction, snapshot=last)
        seen = written.seen
        # Numbers come round: one of a transaction that has just ended could be that of a row a whole cycle older.
        if xmax >= 2**32 and followed - self._open.now():
            seen = ()
        return replace(
            extraction, snapshot=TransactionSnapshot(self._system, xmin, xmax, seen, not (followed or self._standby))
        )

    def _written(self, extraction: Extraction, late: LateRows[Point] | None, text: str) -> Written:
        (xmin, xmax), sql = _numbers(text), extraction.sql
        if late is None and xmin == xmax:
            return Written((), late=False, new=True)
        places = " OR ".join(f"({sql.condition(place)})" for place in late.sent) if late is not None else ""
        snapshot = self._database.source.dialect.string(text)
        query = written_query(sql.source, xmin, xmax, snapshot, late, places or "FALSE")
        written = written_of(self._database.connection.rows(query)[0], xmin)
        if len(written.seen) == MAX_SEEN:
            logger.warning(
                "stream %s: a transaction has been open so long that more than %d others wrote to the table since: "
                "rows of the later ones may come again",
                extraction.plan.stream, MAX_SEEN,
            )  # fmt: skip
        return written


def _numbers(text: str) -> tuple[int, int]:
    """`xmin` and `xmax` of a snapshot."""
    xmin, xmax = (int(number) for number in text.split(":")[:2])
    return xmin, xmax


def _with_late_ones_of_the_last_run(extraction: Extraction, last: TransactionSnapshot | None, xmax: int) -> Extraction:
    """Only where transactions were open then: what others have written since, a comparison must show."""
    if last is None or last.quiet:
        return extraction
    late = LateRows(last, xmax, _sent_before(extraction))
    return replace(extraction, sql=replace(extraction.sql, late=late))


def _last_snapshot(extraction: Extraction) -> TransactionSnapshot | None:
    """What the last run, or the one that died, could see; None: it left nothing open."""
    place, bookmark = extraction.progress.split, extraction.bookmark
    if place is not None and place.upper is not None:
        return place.upper.snapshot
    return None if bookmark is None else bookmark.snapshot


def _sent_before(extraction: Extraction) -> tuple[Slice[Point], ...]:
    """Where everything that the last run could see was sent: below the bookmark, and up to where it died."""
    plan, bookmark, place, whole = extraction.plan, extraction.bookmark, extraction.progress.split, extraction.whole
    if plan.replication_key is None:
        return ()
    bounds = ColumnBounds(extraction.connection, extraction.sql, plan.replication_key)
    sent: list[Slice[Point]] = []
    if bookmark is not None:
        start = None if plan.start_value is None else bounds.point_of(plan.start_value)
        lower = whole.lower if whole is not None else bounds.point_of_bookmark(bookmark)
        sent.append(Slice(Range(start, lower)))
    if place is not None and place.upper is not None and extraction.sql.split is not None:
        along_split = ColumnBounds(extraction.connection, extraction.sql, extraction.sql.split)
        until = bounds.point_of_bookmark(place.until or place.upper)
        pieces = Range(None, along_split.point_of_bookmark(place.next))
        sent.append(Slice(Range(whole.lower if whole is not None else None, until), pieces))
    return tuple(sent)
