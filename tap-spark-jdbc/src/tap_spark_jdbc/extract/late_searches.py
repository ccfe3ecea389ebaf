"""How rows that were committed late are looked for in each stream of a run, decided by one
statement for many streams (PostgreSQL); and the ranges of keys in which they are looked for.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import ConnectionLostError, SourceError
from tap_spark_jdbc.extract.shared_snapshot import LOCK_TIMEOUT
from tap_spark_jdbc.plan.late_rows import ALL_JOINED, NONE_JOINED, LateRows, LateSearch
from tap_spark_jdbc.plan.slices import Range, Slice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from singer_spark.core.bookmark import TransactionSnapshot
    from singer_spark.core.key_value import KeyType
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.extract.server import SnapshotServer
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")

DAY = 86_400
NUMBERS = 1_000_000
_UNWRITTEN = (
    "its rows don't show which transaction wrote them (it is a view, query or foreign table, or "
    "the user may not read all of it)"
)
_BEGIN = ("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY", LOCK_TIMEOUT, "SET LOCAL jit = off")
_ASKED = """
WITH RECURSIVE named AS (
  SELECT v.position, CAST(pg_catalog.to_regclass(v.relation) AS oid) AS oid, v.key
  FROM (VALUES {named}) v (position, relation, key)
), tree AS (
  SELECT n.position, n.key, c.oid, c.relkind, c.relam FROM named n
    JOIN pg_catalog.pg_class c ON c.oid = n.oid
  UNION
  SELECT tree.position, tree.key, c.oid, c.relkind, c.relam
  FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
), every AS (
  SELECT tree.position, tree.relkind = 'p' OR (tree.relkind = 'r' AND m.amname = 'heap') AS written,
    CASE WHEN tree.relkind = 'r' THEN pg_catalog.pg_relation_size(tree.oid) ELSE 0 END AS bytes,
    tree.relkind = 'p' OR EXISTS (
      SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
      JOIN pg_catalog.pg_am b ON b.oid = x.relam AND b.amname = 'btree'
      WHERE i.indrelid = tree.oid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indisready
        AND i.indpred IS NULL
    ) AS indexed, s.step, s.cached
  FROM tree LEFT JOIN pg_catalog.pg_am m ON m.oid = tree.relam
  LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = tree.oid AND a.attname = tree.key
    AND NOT a.attisdropped
  LEFT JOIN LATERAL (
    SELECT pg_catalog.max(pg_catalog.abs(q.seqincrement)) AS step,
      pg_catalog.max(CASE WHEN q.seqcache > 1 THEN q.seqcache * pg_catalog.abs(q.seqincrement)
        END) AS cached
    FROM (
      SELECT d.objid AS oid FROM pg_catalog.pg_depend d
      WHERE d.classid = CAST('pg_catalog.pg_class' AS regclass) AND d.refclassid = d.classid
        AND d.refobjid = tree.oid AND d.refobjsubid = a.attnum AND d.deptype IN ('a', 'i')
      UNION ALL
      SELECT d.refobjid FROM pg_catalog.pg_attrdef f JOIN pg_catalog.pg_depend d
        ON d.classid = CAST('pg_catalog.pg_attrdef' AS regclass) AND d.objid = f.oid
        AND d.refclassid = CAST('pg_catalog.pg_class' AS regclass)
      WHERE f.adrelid = tree.oid AND f.adnum = a.attnum
    ) used JOIN pg_catalog.pg_sequence q ON q.seqrelid = used.oid
  ) s ON TRUE
)
SELECT CAST(n.position AS text) AS position, CASE WHEN pg_catalog.bool_and(e.written)
    AND pg_catalog.bool_and(pg_catalog.has_table_privilege(n.oid, 'SELECT')) THEN '1'
      ELSE '0' END AS written,
  CAST(pg_catalog.sum(e.bytes) /
    CAST(pg_catalog.current_setting('block_size') AS int) AS text) AS pages,
  CASE WHEN pg_catalog.bool_and(e.indexed) THEN '1' ELSE '0' END AS indexed,
  CAST(pg_catalog.max(e.step) AS text) AS step,
  CAST(pg_catalog.max(e.cached) *
    CAST(pg_catalog.current_setting('max_connections') AS int) AS text) AS cached
FROM named n JOIN every e ON e.position = n.position GROUP BY n.position
"""
# With an index on the key, its greatest value is the first row; without one, all rows are sorted.
_GREATEST = "EXPLAIN SELECT {key} FROM {table} ORDER BY {key} DESC LIMIT 1"


class LateSearches:
    """The search of each stream of a run: how its rows that were committed late are found."""

    def __init__(self, database: Database, server: SnapshotServer) -> None:
        self._database = database
        self._server = server
        self._known: dict[str, LateSearch] = {}

    def beside(self, database: Database, server: SnapshotServer) -> LateSearches:
        """The same searches over another connection: what is known is not queried again."""
        other = LateSearches(database, server)
        other._known = self._known
        return other

    def described(self, plans: Iterable[StreamPlan]) -> dict[str, str]:
        """How late rows are found in each of these streams, for users; the database is asked about
        all of them at once.
        """
        if not self._database.source.dialect.shares_snapshots:
            return {}
        guarded = [
            each for each in plans if each.replication_key is not None and each.end_value is None
        ]
        guarded = [each for each in guarded if not each.is_log_based]
        if not guarded or not self._server.has_snapshots:
            return {}
        connection = self._database.connection
        if connection.holds:
            connection.within(*_BEGIN)
        try:
            self._ask_all(guarded)
        finally:
            connection.within()
        found = ((each.stream, self.known(each)) for each in guarded)
        return {stream: search.text for stream, search in found if search is not None}

    def known(self, plan: StreamPlan) -> LateSearch | None:
        """The search of a stream; None: its table was locked when the database was asked about
        it.
        """
        return self._known.get(plan.stream)

    def of(self, plan: StreamPlan) -> LateSearch:
        """The search of a stream."""
        if plan.stream not in self._known:
            self._ask([plan])
        return self._known[plan.stream]

    def _ask_all(self, plans: Sequence[StreamPlan]) -> None:
        """Ask about all streams but those whose tables are locked by someone, which are asked about
        in their turn.
        """
        try:
            self._ask(plans)
        except ConnectionLostError:
            raise
        except SourceError as error:
            if len(plans) == 1:
                why = "stream %s: how late rows are found is asked when its turn comes: %s"
                logger.debug(why, plans[0].stream, error)
                return
            self._ask_all(plans[: len(plans) // 2])
            self._ask_all(plans[len(plans) // 2 :])

    def _ask(self, plans: Sequence[StreamPlan]) -> None:
        dialect, named, facts = self._database.source.dialect, [], {}
        for position, plan in enumerate(plans):
            key = plan.replication_key
            if key is not None and not plan.table.is_query:
                name = dialect.string(dialect.table(replace(plan.table, query=None)))
                named.append(f"({position}, {name}, {dialect.string(key.column.name)})")
        if named:
            found = self._database.connection.rows(_ASKED.replace("{named}", ", ".join(named)))
            facts = {int(number or 0): rest for number, *rest in found}
        for position, plan in enumerate(plans):
            search = self._known[plan.stream] = self._search(plan, facts.get(position))
            if search.missing_index:
                logger.warning("stream %s: %s", plan.stream, search.missing_index)

    def _search(self, plan: StreamPlan, facts: Sequence[str | None] | None) -> LateSearch:
        if facts is None or facts[0] != "1":
            return LateSearch("none", why=_UNWRITTEN)
        _, pages, indexed, step, cached = facts
        if plan.late_rows == "open":
            return LateSearch("open", why="as set by late_rows")
        is_small = float(pages or 0) <= plan.late_pages
        if plan.late_rows == "all" or (plan.late_rows == "auto" and is_small):
            return LateSearch("all")
        key = plan.replication_key
        assert key is not None
        kind = key.key_type
        if not kind.has_distance:
            why = f"its key is of type {kind}, which has no distances; late_rows: all finds all"
            return LateSearch("all") if is_small else LateSearch("open", why=why)
        if indexed == "1" or (plan.table.computed_key is not None and self._sorts_by_index(plan)):
            return LateSearch("window", *_width(plan, kind, int(step or 1), int(cached or 0)))
        if is_small:
            return LateSearch("all")
        why = "no usable index on its key"
        return LateSearch("open", why=why, missing_index=self._missing(plan))

    def _sorts_by_index(self, plan: StreamPlan) -> bool:
        """Whether a computed key has an index."""
        dialect, key = self._database.source.dialect, plan.replication_key
        assert key is not None
        name = dialect.column_of(plan.table, key.column.name)
        query = _GREATEST.replace("{key}", name).replace("{table}", dialect.table(plan.table))
        lines = [str(line) for (line,) in self._database.connection.rows(query)]
        return not any("Sort" in line or "Seq Scan" in line for line in lines)

    def _missing(self, plan: StreamPlan) -> str:
        """What to do about a key without an index."""
        dialect, key = self._database.source.dialect, plan.replication_key
        assert key is not None
        computed = plan.table.computed_key
        name = dialect.quote(key.column.name) if computed is None else f"({computed})"
        table = dialect.table(replace(plan.table, query=None))
        return (
            "no usable index on its replication key, so rows that are committed late are found "
            "only if their transactions were open at the last run (or by late_rows: all, which "
            f"scans the table): CREATE INDEX CONCURRENTLY ON {table} ({name})"
        )


def _width(plan: StreamPlan, kind: KeyType, step: int, cached: int) -> tuple[float, str]:
    """How far a window reaches below the bookmark, and the same for users.

    Each session holds a block of a sequence's CACHE, and the server has up to `max_connections`
    sessions.
    """
    if kind.is_moment:
        seconds = DAY if plan.late_window is None else plan.late_window
        return seconds, _span(seconds)
    width = NUMBERS * step + cached if plan.late_window is None else plan.late_window
    return width, f"{width:,}"


def _span(seconds: float) -> str:
    for unit, name in ((DAY, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit and not seconds % unit:
            count = int(seconds // unit)
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{seconds:g} s"


def warn_of_joined(stream: str, late: LateRows[Point]) -> None:
    """Warn if late rows may be those of a table that was no part of the stream before."""
    if late.joined != NONE_JOINED:
        logger.warning(
            "stream %s: %s since the last run: all of its rows below the bookmark are sent, and "
            "append-only tables may hold some of them twice; rows that are gone with the tables "
            "before it stay in the lake until a run with --full",
            stream,
            "another table has taken its name"
            if late.joined == ALL_JOINED
            else "a table was attached to it",
        )


def window_of(extraction: Extraction, search: LateSearch) -> Range[Point]:
    """The keys from the window's lower end to the run's upper bound, or to the bookmark if that is
    above it.
    """
    bookmark, key = extraction.bookmark, extraction.plan.replication_key
    assert bookmark is not None and key is not None
    bounds, upper = extraction.bounds(key), extraction.sql.upper
    at = bounds.point_of_bookmark(bookmark)
    lower = bounds.point_of(bookmark.value.minus(search.width))
    return Range(lower, at if upper is None or upper.value < at.value else upper, closed=True)


def with_late_rows_of_the_last_run(
    extraction: Extraction, last: TransactionSnapshot | None, xmax: int
) -> Extraction:
    """Add late rows if transactions were open during the last run.

    What others have written since must be found by comparison.
    """
    if last is None or last.quiet:
        return extraction
    late = LateRows(last, xmax, sent_before(extraction))
    return replace(extraction, sql=replace(extraction.sql, late=late))


def last_snapshot(extraction: Extraction) -> TransactionSnapshot | None:
    """The snapshot of the last run, or of the one that died; None: no transaction was open."""
    position, bookmark = extraction.progress.split, extraction.bookmark
    if position is not None and position.upper is not None:
        return position.upper.snapshot
    return None if bookmark is None else bookmark.snapshot


def sent_before(extraction: Extraction, window: Point | None = None) -> tuple[Slice[Point], ...]:
    """The ranges in which everything the last run could see was sent: below the bookmark, and up to
    where it died.

    With the lower end of a `window`, what is below it is left out.
    """
    plan, bookmark = extraction.plan, extraction.bookmark
    position, whole = extraction.progress.split, extraction.whole
    if plan.replication_key is None:
        return ()
    bounds = extraction.bounds(plan.replication_key)
    sent: list[Slice[Point]] = []
    if bookmark is not None:
        start = None if plan.start_value is None else bounds.point_of(plan.start_value)
        lower = whole.lower if whole is not None else bounds.point_of_bookmark(bookmark)
        if window is not None:
            start = window if start is None or start.value < window.value else start
        sent.append(Slice(Range(start, lower)))
    if position is not None and position.upper is not None and extraction.sql.split is not None:
        until = bounds.point_of_bookmark(position.until or position.upper)
        split = extraction.bounds(extraction.sql.split)
        pieces = Range(None, split.point_of_bookmark(position.next))
        lower = whole.lower if whole is not None else None
        # The upper bound itself was sent with the rows below it.
        sent.append(Slice(Range(lower, until, closed=position.until is None), pieces))
    return tuple(sent)


def not_reached(extraction: Extraction) -> Range[Point]:
    """The range from the run's upper bound up to the bookmark's rows above it, which no other slice
    reads.
    """
    at, upper = extraction.sql.bookmark, extraction.sql.upper
    if upper is None:
        return Range(at, at, closed=True)
    return Range(upper, at, closed=True, after=True)
