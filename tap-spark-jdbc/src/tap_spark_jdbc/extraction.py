"""One stream in one run: where it starts, its upper bound, its slices in order, and the bookmark it ends with."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from singer_spark.bookmark import Bookmark, Boundary
from singer_spark.errors import SourceError
from tap_spark_jdbc.bounds import ColumnBounds
from tap_spark_jdbc.slices import Range, Slice, indexed_slices, split_slices
from tap_spark_jdbc.stream_sql import Point, StreamSql
from tap_spark_jdbc.tables import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.jdbc_connection import JdbcConnection
    from tap_spark_jdbc.stream_plan import StreamPlan

logger = logging.getLogger("tap-spark-jdbc")
CLOCK_SLACK = timedelta(days=1)


@dataclass(frozen=True)
class Extraction:
    """What one stream sends in this run; its bounds are fixed.

    Attributes:
        plan: The stream.
        sql: Its SQL, with the edges of this run.
        bookmark: Where the last run ended; None on a first, full or backfill run.
        whole: Range of the replication key from the bookmark to the upper bound; None: the key has no row there,
            or there is no key.
        connection: For the bounds of slices.
    """

    plan: StreamPlan
    sql: StreamSql
    bookmark: Bookmark | None
    whole: Range[Point] | None
    connection: JdbcConnection

    @classmethod
    def begin(
        cls, connection: JdbcConnection, dialect: Dialect, plan: StreamPlan, bookmark: Bookmark | None, lag: float
    ) -> Extraction:
        """Fixes the bounds of the run.

        Raises:
            SourceError: the database refused, or there are NULL keys where the user wants none.
        """
        sql = StreamSql(dialect, plan, split_key(plan, dialect))
        key = plan.replication_key
        if key is None:
            return cls(plan, sql, None, None, connection)
        bounds = ColumnBounds(connection, sql, key)
        _look_for_nulls(bounds)
        kept = None if plan.end_value is not None else bookmark
        lower = _lower(bounds, kept, lag)
        end = None if plan.end_value is None else bounds.point_of(plan.end_value)
        upper = bounds.greatest(Range(lower, end))
        if upper is not None:
            _warn_of_the_future(plan, upper)
        seen = kept is not None and kept.boundary is not None and kept.boundary.rows > 0
        at_bookmark = bounds.point_of_bookmark(kept) if seen and kept is not None else None
        whole = None if upper is None else Range(lower, upper, closed=True)
        return cls(plan, replace(sql, bookmark=at_bookmark, upper=upper), kept, whole, connection)

    @property
    def is_delta(self) -> bool:
        """Whether rows below a lower or above an upper bound are left out."""
        return self.bookmark is not None or self.plan.start_value is not None or self.plan.end_value is not None

    def slices(self, rows: Callable[[], int]) -> Iterator[Slice[Point]]:
        """The slices in the order in which they are sent.

        Args:
            rows: How many rows a slice should have, asked before each cut.
        """
        key, split = self.plan.replication_key, self.sql.split
        along_split = None if split is None else ColumnBounds(self.connection, self.sql, split)
        if key is None:
            yield from split_slices(along_split, rows)
            return
        nulls = self.sends_nulls
        if self.whole is None:
            if nulls:
                yield Slice(nulls=True)
        elif key.indexed:
            if nulls:
                yield Slice(nulls=True)
            inside = None if along_split is None else along_split.inside
            yield from indexed_slices(ColumnBounds(self.connection, self.sql, key), self.whole, rows, inside)
        else:
            # A delta is small: one scan is cheaper than walking the whole primary key.
            yield from split_slices(None if self.is_delta else along_split, rows, self.whole, nulls=nulls)

    def count(self, each: Slice[Point]) -> int:
        """How many rows a slice has now."""
        ((rows,),) = self.connection.rows(f"SELECT COUNT(*) {self.sql.source} AND {self.sql.condition(each)}")
        return int(rows or 0)

    @property
    def sends_nulls(self) -> bool:
        """Whether rows whose replication key is NULL are sent."""
        key = self.plan.replication_key
        includes = self.plan.null_policy == "include" and self.plan.end_value is None
        return key is not None and key.column.nullable and includes

    @property
    def saved_buckets(self) -> tuple[int, ...]:
        """Sums of the rows sent at the bookmark where they were too many for single fingerprints; else empty."""
        boundary = self.bookmark.boundary if self.bookmark is not None else None
        return boundary.buckets if boundary is not None else ()

    def behind_bookmark(self) -> Extraction:
        """The same without the rows at the bookmark, of which none has changed."""
        if self.whole is None or self.sql.bookmark is None or self.whole.lower != self.sql.bookmark:
            return self
        if self.sql.upper == self.sql.bookmark:
            return replace(self, whole=None)
        return replace(self, whole=replace(self.whole, after=True))

    def bookmark_at(self, point: Point, boundary: Boundary) -> Bookmark:
        """A bookmark of this stream."""
        key = self.plan.replication_key
        if key is None:
            raise ValueError("a stream without replication key has no bookmark")
        return Bookmark(key.column.name, point.value, boundary, point.raw if key.textual else None)


def split_key(plan: StreamPlan, dialect: Dialect) -> Key | None:
    """The column that cuts a full table: the user's, else the first one of the primary key."""
    if plan.partition_column is not None:
        return plan.partition_column
    column = plan.table.column(plan.table.primary_key[0]) if plan.table.primary_key else None
    if column is None or column.key_type is None:
        return None
    return Key.of(plan.table, column, text_moments=dialect.text_moments)


def _lower(bounds: ColumnBounds, bookmark: Bookmark | None, lag: float) -> Point | None:
    """The inclusive lower bound of the run."""
    plan = bounds.sql.plan
    if bookmark is None:
        return None if plan.start_value is None else bounds.point_of(plan.start_value)
    if not lag:
        return bounds.point_of_bookmark(bookmark)
    lowered = bookmark.value.minus(lag)
    logger.info(
        "stream %s: rows from %s to the bookmark %s are sent once more (safety_lag_seconds); an append-only table "
        "will hold them twice",
        plan.stream, lowered.text, bookmark.value.text,
    )  # fmt: skip
    return bounds.point_of(lowered)


def _look_for_nulls(bounds: ColumnBounds) -> None:
    """Says, or refuses, that rows without key are left out."""
    plan, name = bounds.sql.plan, bounds.key.column.name
    if not bounds.key.column.nullable or plan.null_policy == "include":
        return
    if plan.null_policy == "error" and bounds.has_nulls():
        raise SourceError(
            f"stream {plan.stream}: there are rows whose replication key {name!r} is NULL; give them a value, or set "
            "null_replication_key to include or exclude"
        )
    if plan.null_policy == "exclude" and bounds.has_nulls():
        logger.info("stream %s: rows whose replication key %r is NULL are left out", plan.stream, name)


def _warn_of_the_future(plan: StreamPlan, upper: Point) -> None:
    if not upper.value.key_type.is_moment:
        return
    slack = timedelta() if upper.value.aware else CLOCK_SLACK
    if upper.value.moment() > datetime.now(UTC).replace(tzinfo=None) + slack:
        logger.warning(
            "stream %s: the greatest replication key lies in the future: %s; once it is the bookmark, rows below it "
            "are not seen; cap it with end_value",
            plan.stream, upper.value.text,
        )  # fmt: skip
