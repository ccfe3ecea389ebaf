"""One stream in one run: where it starts, its upper bound, its slices in order, and the bookmark it
ends with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError
from tap_spark_jdbc.dialects.tables import Key
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.late_window import (
    LateWindow,
    runs_until,
    settled_end,
    warn_of_a_reload,
    warn_of_the_future,
)
from tap_spark_jdbc.extract.slice_bounds import ColumnBounds
from tap_spark_jdbc.extract.stream_progress import SplitPosition, StreamProgress, TableMoment
from tap_spark_jdbc.plan.slices import Range, Slice, indexed_slices, split_slices, tie_slices
from tap_spark_jdbc.plan.stream_sql import Point, StreamSql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from singer_spark.core.bookmark import Bookmark, Boundary, TransactionSnapshot
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.connection import Connection
    from tap_spark_jdbc.source.transaction_list import Oldest

logger = logging.getLogger("tap-spark-jdbc")


@dataclass(frozen=True)
class Extraction:
    """What one stream sends in this run, between fixed bounds.

    Attributes:
        sql: The stream's SQL, with this run's bookmark and upper bound.
        bookmark: Where the last run ended; None on a first, full or backfill run.
        whole: Range of the replication key from the bookmark to the upper bound; None: the key has
            no row there, or there is no key.
        connection: Used to find the bounds of slices.
        progress: What a run that died has already sent.
        begins_below: Whether it begins below its bookmark.
        runs: See `Bookmark.runs`, for its bookmarks.
        snapshot: The transactions this run can see, for its bookmarks; None if no open transaction
            can write below.
        moved: Whether the bookmark's snapshot is of another server.
        renews: Whether the bookmark's snapshot is replaced, even if nothing is new.
        moment: The moment that the rows of a whole table show, once the rows that were added since
            a dead run read it are sent too.
        dropped: Why what a dead run has sent of the stream can't be used; None: it is used, or
            there is nothing.
    """

    plan: StreamPlan
    sql: StreamSql
    bookmark: Bookmark | None
    whole: Range[Point] | None
    connection: Connection
    progress: StreamProgress
    begins_below: bool = False
    runs: tuple[tuple[int, int], ...] = ()
    snapshot: TransactionSnapshot | None = None
    moved: bool = False
    renews: bool = False
    moment: TableMoment | None = None
    dropped: str | None = None

    @classmethod
    def begin(
        cls,
        connection: Connection,
        dialect: Dialect,
        plan: StreamPlan,
        bookmark: Bookmark | None,
        window: LateWindow | None = None,
        progress: StreamProgress | None = None,
        *,
        may_end_early: bool = False,
        oldest: Callable[[], Oldest | None] = lambda: None,
    ) -> Extraction:
        """Fix the bounds of a run that begins in a bookmark's window, or where a dead run's
        progress ends.

        If the run `may_end_early`, before the upper bound, what it sends by a replication key is
        not a full table. `oldest` looks for the oldest open transaction, once the upper bound is
        fixed.

        Raises:
            SourceError: the database refused, or there are NULL keys and the settings forbid them.
        """
        sql = StreamSql(dialect, plan, split_key(plan, dialect))
        kept = None if plan.end_value is not None else bookmark
        key, window = plan.replication_key, window or LateWindow()
        progress = progress or unbegun(plan, bookmark, may_end_early=may_end_early)
        if key is None or progress.complete:
            return cls(plan, sql, None, None, connection, progress)
        bounds = ColumnBounds(connection, sql, key)
        _look_for_nulls(bounds)
        since = None if kept is None else since_of(bounds, kept)
        lower = (
            bounds.point_of_bookmark(progress.lower)
            if progress.lower
            else since or _lower(bounds, kept, window)
        )
        upper = _upper(bounds, lower, progress.split)
        warn_of_a_reload(bounds, kept, upper)
        warn_of_the_future(plan, upper or (None if kept is None else lower))
        seen = kept is not None and kept.boundary is not None and kept.boundary.rows > 0
        at_bookmark = bounds.point_of_bookmark(kept) if seen and kept is not None else None
        whole, upper_since, runs = None, None, () if kept is None else kept.runs
        if upper is not None:
            upper = bounds.known(upper, at_bookmark)
            whole = Range(lower, upper, closed=True)
            stays = upper == at_bookmark
            if plan.end_value is None and not (stays and _keeps_window(dialect, kept, whole)):
                upper_since, runs = _next_window(
                    bounds, whole, kept, progress.split, window, oldest
                )
            if stays:
                upper_since = upper_since or since
        sql = replace(
            sql, bookmark=at_bookmark, upper=upper, bookmark_since=since, upper_since=upper_since
        )
        below = kept is not None and lower is not None and lower.value < kept.value
        return cls(plan, sql, kept, whole, connection, progress, below, runs)

    @property
    def is_delta(self) -> bool:
        """Whether rows below a lower or above an upper bound are left out."""
        return _is_delta(self.plan, self.bookmark)

    def slices(self, rows: Callable[[], int]) -> Iterator[Slice[Point]]:
        """The slices in the order they are sent.

        `rows` is called for the size of each before it is cut.
        """
        if self.sql.late is not None:
            yield Slice(late=True)
        if self.progress.complete:
            return
        key, split, position = self.plan.replication_key, self.sql.split, self.progress.split
        along_split = None if split is None else self.bounds(split)
        begin = None
        if position is not None and along_split is not None:
            begin = along_split.point_of_bookmark(position.next)
        if key is None:
            yield from split_slices(along_split, rows, begin=begin)
            return
        nulls, bounds = self.sends_nulls, self.bounds(key)
        if self.whole is not None and (not key.indexed or self._is_cut_by_primary_key):
            # A delta is small: one scan is cheaper than walking the whole primary key.
            yield from split_slices(
                None if self.is_delta else along_split, rows, self.whole, nulls=nulls, begin=begin
            )
            return
        # A run that may not need Spark at all must not start it for an empty range.
        if nulls and (not self.sql.dialect.shares_snapshots or bounds.has_nulls()):
            yield Slice(nulls=True)
        rest, inside = self.whole, None if along_split is None else along_split.inside
        if rest is not None and position is not None and inside is not None:
            # The rest of the rows in which a run died, then everything after them.
            until = None if position.until is None else bounds.point_of_bookmark(position.until)
            part = rest if until is None else Range(rest.lower, until)
            yield from tie_slices(inside(part), part, rows, begin)
            rest = None if until is None else rest.from_(until)
        if rest is not None:
            yield from indexed_slices(bounds, rest, rows, inside)

    @property
    def _is_cut_by_primary_key(self) -> bool:
        """Whether a first load is cut along the primary key, whatever index the other key has.

        Not if the run may end early, because it then needs a bookmark after each slice.
        """
        key, split, progress = self.plan.replication_key, self.sql.split, self.progress
        if self.sql.dialect.secondary_ranges or key is None or split is None:
            return False
        # A dead run of an older version stopped within the rows of one key.
        ended_in_key = progress.split is not None and progress.split.until is not None
        if split.column == key.column or progress.lower is not None or ended_in_key:
            return False
        return not self.is_delta and progress.extent == "full"

    def bounds(self, key: Key) -> ColumnBounds:
        """The bounds of slices along a column."""
        return ColumnBounds(
            self.connection, self.sql, key, only_cuts=key != self.plan.replication_key
        )

    def count(self, each: Slice[Point]) -> int:
        """The number of rows a slice has now."""
        ((rows,),) = self.connection.rows(
            f"SELECT COUNT(*) AS n {self.sql.source} AND {self.sql.condition(each)}"
        )
        return int(rows or 0)

    @property
    def sends_nulls(self) -> bool:
        """Whether rows whose replication key is NULL are sent."""
        key = self.plan.replication_key
        includes = self.plan.null_policy == "include" and self.plan.end_value is None
        return key is not None and key.column.nullable and includes and not self.progress.nulls_sent

    @property
    def saved_buckets(self) -> tuple[int, ...]:
        """Bucket sums of the rows sent at the bookmark if there were too many for single
        fingerprints; else empty.
        """
        boundary = None if self.bookmark is None else self.bookmark.boundary
        return () if boundary is None or self.sql.unseen is not None else boundary.buckets

    @property
    def reads_at_bookmark(self) -> bool:
        """Whether reading begins with the rows in the bookmark's window."""
        if self.sql.bookmark is None or self.whole is None:
            return False
        return self.whole.lower == self.sql.window.lower and not self.whole.after

    @property
    def misses_bookmark(self) -> bool:
        """Whether the upper bound lies below a bookmark at which rows were sent (`settle_seconds`
        can cause that).
        """
        at, upper = self.sql.bookmark, self.sql.upper
        return at is not None and (upper is None or (self.begins_below and upper.value < at.value))

    def from_the_start(self, why: str, moment: TableMoment | None) -> Extraction:
        """The same extraction of a whole table, without what a dead run has sent of it."""
        progress = StreamProgress(self.progress.extent, moment=moment)
        return replace(self, progress=progress, dropped=why)

    def behind_bookmark(self) -> Extraction:
        """The same without the rows in the bookmark's window, none of which has changed."""
        at = self.sql.bookmark
        if self.whole is None or not self.reads_at_bookmark:
            return self
        ends = self.sql.upper == at or self.misses_bookmark
        return replace(self, whole=None if ends else replace(self.whole, lower=at, after=True))

    def of_unseen_rows(self, unseen: str) -> Extraction:
        """The same extraction with only those rows at the bookmark that the last run could not see
        (`unseen`).
        """
        # Which of the rows in a window were seen, but are not in the next one, is not known.
        looks = (self.reads_at_bookmark or self.misses_bookmark) and self.sql.bookmark_since is None
        return replace(self, sql=replace(self.sql, unseen=unseen)) if looks else self

    def reads_again(self, part: Range[Point] | None) -> bool:
        """Whether a run that continues within these keys sends rows again, or must compare them
        with those sent.
        """
        if part is None or part.lower is None or self.bookmark is None:
            return False
        return part.lower == self.sql.bookmark or (
            self.begins_below and part.lower.value <= self.bookmark.value
        )

    def bookmark_at(self, point: Point, boundary: Boundary | None = None) -> Bookmark:
        """A bookmark of this stream; with a boundary, a later run may begin from it."""
        key = self.plan.replication_key
        assert key is not None
        if boundary is None:
            return point.bookmark(key)
        return replace(point.bookmark(key, boundary), snapshot=self.snapshot, runs=self.runs)


def unbegun(plan: StreamPlan, bookmark: Bookmark | None, *, may_end_early: bool) -> StreamProgress:
    """The progress of a stream of which nothing was sent since the last commit."""
    kept = None if plan.end_value is not None else bookmark
    part = plan.settle_seconds or (plan.replication_key is not None and may_end_early)
    return StreamProgress("delta" if _is_delta(plan, kept) or part else "full")


def since_of(bounds: ColumnBounds, bookmark: Bookmark) -> Point | None:
    """Where the window below a bookmark begins; None: there is none."""
    since = bookmark.boundary.since if bookmark.boundary is not None else None
    return None if since is None else bounds.point_of(since.value, since.raw)


def split_key(plan: StreamPlan, dialect: Dialect) -> Key | None:
    """The column that cuts a full table: the user's, else the primary key's first one if it can be
    cut into ranges.
    """
    # Along another column, rows with the same record key would not come in the replication key's
    # order.
    if plan.sends_in_order:
        return None
    key = plan.partition_column
    if key is None:
        column = plan.table.column(plan.table.primary_key[0]) if plan.table.primary_key else None
        if column is None or column.key_type is None or not dialect.key_ranges:
            return None
        key = Key.of(plan.table, column, text_moments=dialect.text_moments)
    # State would hold its values.
    if key.column.name in plan.masked_names:
        return None
    # Identical records at the bookmark are counted slice by slice, so they must all be in one
    # slice.
    apart = plan.replication_key is not None and plan.has_twins and key.column not in plan.columns
    return None if apart else key


def _is_delta(plan: StreamPlan, bookmark: Bookmark | None) -> bool:
    return bookmark is not None or plan.start_value is not None or plan.end_value is not None


def _upper(
    bounds: ColumnBounds, lower: Point | None, position: SplitPosition | None
) -> Point | None:
    """The run's inclusive upper bound."""
    # Slices cut along another column only add up to a whole below a single bound.
    if position is not None and position.upper is not None:
        return bounds.point_of_bookmark(position.upper)
    end = bounds.sql.plan.end_value
    ends = [None if end is None else bounds.point_of(end), settled_end(bounds)]
    return bounds.greatest(
        Range(lower, min(filter(None, ends), key=lambda point: point.value, default=None))
    )


def _lower(bounds: ColumnBounds, bookmark: Bookmark | None, window: LateWindow) -> Point | None:
    """The inclusive lower bound of the run, where a bookmark does not say which rows below it were
    sent.
    """
    plan = bounds.sql.plan
    if bookmark is None:
        return None if plan.start_value is None else bounds.point_of(plan.start_value)
    lowered = window.below_unknown(bookmark)
    if lowered is None:
        return bounds.point_of_bookmark(bookmark)
    logger.info(
        "stream %s: rows from %s to the bookmark %s are sent once more (safety_lag_seconds, and "
            "the bookmark does not say which of them were sent)",
        plan.stream, lowered.text, bookmark.value.text,
    )  # fmt: skip
    return bounds.point_of(lowered)


def _keeps_window(dialect: Dialect, bookmark: Bookmark | None, whole: Range[Point]) -> bool:
    """Whether the window below a bookmark that does not move stays as it is.

    One with so many rows that only sums are known is read in every run, so it becomes narrower as
    soon as it may.
    """
    boundary = None if bookmark is None else bookmark.boundary
    if boundary is None or not boundary.buckets or boundary.since is None:
        return True
    is_read = whole.lower is not None and whole.lower.value == boundary.since.value
    return dialect.shares_snapshots or not is_read


def _next_window(
    bounds: ColumnBounds,
    whole: Range[Point],
    last: Bookmark | None,
    position: SplitPosition | None,
    window: LateWindow,
    oldest: Callable[[], Oldest | None],
) -> tuple[Point | None, tuple[tuple[int, int], ...]]:
    """Where the window below this run's upper bound begins (None: there is none), and its
    bookmark's `runs`.
    """
    if position is not None and position.upper is not None:
        # The dead run has sent rows, and kept the fingerprints of those in its window.
        return since_of(bounds, position.upper), position.upper.runs
    upper = whole.upper
    assert upper is not None
    found = (oldest() or window.assumed(upper.value)) if window.amount else None
    since = window.since(upper.value, last, found)
    if since is None:
        return None, ()
    # Nothing would be known of the rows that this run does not read.
    if whole.lower is not None and since <= whole.lower.value:
        return whole.lower, runs_until(upper.value, last, found)
    return bounds.point_of(since), runs_until(upper.value, last, found)


def _look_for_nulls(bounds: ColumnBounds) -> None:
    """Log that rows without key are left out, or refuse them."""
    plan, name = bounds.sql.plan, bounds.key.column.name
    if not bounds.key.column.nullable or plan.null_policy == "include" or not bounds.has_nulls():
        return
    if plan.null_policy == "error":
        raise SourceError(
            TapCode.NULL_KEY,
            f"stream {plan.stream}: there are rows whose replication key {name!r} is NULL; give "
            "them a value, or set null_replication_key to include or exclude",
        )
    logger.info("stream %s: rows whose replication key %r is NULL are left out", plan.stream, name)
