"""Bounds of slices, queried from the database: the greatest key, the key a number of rows further
on, and counts. Sizes of slices and round trips: as configured, or else from the width of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import Bookmark
from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.errors import SourceError
from tap_spark_jdbc.dialects.dialect import text_form
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_sql import Point, StreamSql, range_condition

if TYPE_CHECKING:
    from singer_spark.core.sql_type import SqlType
    from tap_spark_jdbc.dialects.tables import Column, Key
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.connection import Connection

# A hop reads the rows that it passes; two look-ups of a key read none.
LONG_HOP = 50_000
# At most this many times as many numbers as there are rows.
DENSE = 1.5
# Rows are sampled before the first slice is cut if a column may be at least this long.
LONG_BYTES = 1_000
_LONG_TYPES = {*"TEXT JSON VARBINARY GEOMETRY ARRAY LIST STRUCT MAP UNION".split()}
LOOKED_AT = 50
# Assumed row width where rows may be long and nothing better is known.
CAREFUL_BYTES = 32_000
SLICE_BYTES = 32_000_000
# The size of all files on the disk at a time, as long as that does not make slices smaller than the
# first ones.
SPOOL_BYTES = 512_000_000
# A slice is this fraction of what was rendered before it, so that the first ones are sent soon and
# later ones cost fewer jobs.
GROWTH = 4
FETCH_BYTES = 4_000_000
# A round trip that brings more is aborted, if the driver can do that, and repeated with fewer rows.
FETCH_BOUND = 4 * FETCH_BYTES
FEWER = 16
# Rows a round trip if some may be wide and nothing limits their bytes.
SCAN_FETCHED = 50
FIRST_SLICE_ROWS = 20_000
# The size of a slice that passes through memory, as on a cluster.
FIRST_ROWS_IN_MEMORY = 2_000
FIRST_FETCH_SIZE = 1_000
MOST_FETCHED = 10_000
# The size of a batch in memory. A small batch costs more CPU a row, but if rows may be long, few of
# them may fill the memory.
BATCH_ROWS, BATCH_ROWS_IF_LONG = 4_096, 1_024
BATCH_BYTES_IF_LONG = 2_000_000
MOST_ROWS = 1_000_000
# Spark holds a row six to nine times while it renders or writes it.
WIDE_BYTES = 8_000_000


@dataclass(frozen=True)
class ColumnBounds:
    """Bounds along one key column of a stream (`slices.BoundsSource`).

    If it `only_cuts`, a value that no state can hold (infinity, a zero date) ends the cuts, and the
    rest is one slice.
    """

    connection: Connection
    sql: StreamSql
    key: Key
    key_range: Range[Point] | None = None
    only_cuts: bool = False

    def greatest(self, within: Range[Point]) -> Point | None:
        """The greatest value of the range, NULLs aside; None if the range is empty."""
        return self._one(f"{self._inside(within)} ORDER BY {self._name} DESC", 0)

    def at(self, within: Range[Point], offset: int) -> Point | None:
        """See `slices.BoundsSource.at`.

        For unique whole numbers, most of which exist, it may be a number with fewer rows below it.
        """
        if offset >= LONG_HOP and (estimate := self._unique_numbers) is not None:
            first, last = within.lower or self._hop(within, 0), self.greatest(within)
            if first is None or last is None:
                return None
            low, high = int(first.value.text), int(last.value.text)
            if high - low < offset:
                return None
            if high - low < DENSE * estimate:
                return self.point_of(KeyValue(KeyType.INTEGER, str(low + offset)))
        return self._hop(within, offset)

    def next_above(self, value: Point, within: Range[Point]) -> Point | None:
        """See `slices.BoundsSource.next_above`."""
        return self.at(Range(value, within.upper, within.closed, after=True), 0)

    def inside(self, key: Range[Point]) -> ColumnBounds:
        """The bounds along this column among the rows of a range of the replication key."""
        return replace(self, key_range=key)

    def point(self, raw: str) -> Point:
        """A point from a value as the database printed it; SourceError: no bookmark can hold it."""
        try:
            value = self.key.parse(raw)
        except ValueError as error:
            raise SourceError(
                TapCode.KEY_VALUE_UNUSABLE,
                f"stream {self.sql.plan.stream}: key column {self.key.column.name!r} holds "
                f"{raw!r}, which no bookmark can hold: {error}; leave such rows out by `where` in "
                "the stream's `stream_options`",
            ) from error
        return Point(self.sql.dialect.literal(self.key, value, raw=raw), value, raw)

    def point_of(self, value: KeyValue, raw: str | None = None) -> Point:
        """A point from a value of a bookmark or a setting."""
        if raw is None and self.key.textual:
            raw = text_form(value, self._text(self._inside(Range())))
        return Point(self.sql.dialect.literal(self.key, value, raw=raw), value, raw)

    def point_of_bookmark(self, bookmark: Bookmark) -> Point:
        """The point of a bookmark."""
        return self.point_of(bookmark.value, bookmark.raw)

    def known(self, point: Point, earlier: Point | None) -> Point:
        """`earlier` if the database compares both as equal (a collation that ignores case does),
        else `point`.
        """
        if earlier is None or earlier == point or self.key.key_type is not KeyType.STRING:
            return point
        name = self.sql.dialect.operand(self.key.column)
        is_same = self._finds(f"{name} = {point.literal} AND {name} = {earlier.literal}")
        return earlier if is_same else point

    def has_nulls(self) -> bool:
        """Whether any row's key is NULL."""
        return self._finds(f"{self._name} IS NULL")

    def _finds(self, condition: str) -> bool:
        page = self.sql.dialect.limited(1, ordered=False)
        return bool(self.connection.rows(f"SELECT 1 AS n {self.sql.source} AND {condition} {page}"))

    @property
    def _unique_numbers(self) -> int | None:
        """About how many rows there are, if each has its own whole number; else None."""
        plan, column = self.sql.plan, self.key.column
        if plan.table.primary_key != (column.name,) or column.nullable:
            return None
        is_whole = plan.where is None and self.key_range is None
        is_number = self.key.key_type is KeyType.INTEGER
        return plan.table.row_estimate if is_whole and is_number else None

    def _hop(self, within: Range[Point], offset: int) -> Point | None:
        return self._one(f"{self._inside(within)} ORDER BY {self._name}", offset)

    @property
    def _name(self) -> str:
        return self.sql.dialect.quote(self.key.column.name)

    def _inside(self, within: Range[Point]) -> str:
        name = self.sql.dialect.operand(self.key.column)
        condition = f"{self.sql.source} AND {range_condition(name, within)}"
        if self.key_range is None:
            return condition
        return f"{condition} AND {self.sql.condition(Slice(self.key_range))}"

    def _one(self, ordered: str, offset: int) -> Point | None:
        raw = self._text(ordered, offset)
        try:
            return None if raw is None else self.point(raw)
        except SourceError:
            if self.only_cuts:
                return None
            raise

    def _text(self, condition: str, offset: int = 0) -> str | None:
        # The cast is applied to the one row wanted, not to all those the offset skips.
        one = f"SELECT {self._name} {condition} {self.sql.dialect.limited(1, offset)}"
        text = self.sql.dialect.key_text(self.key)
        found = self.connection.rows(f"SELECT {text} FROM ({one}) one")
        return found[0][0] if found else None


def first_width(connection: Connection, sql: StreamSql) -> float | None:
    """Approximate bytes a row, from the first rows; None if no column is long by its type."""
    table, template = sql.plan.table, sql.dialect.width
    long = long_columns(sql.plan)
    if not long:
        return None
    if template is None or table.is_view or table.query is not None:
        return CAREFUL_BYTES
    widths = []
    for column in long:
        if column.reading.read_as in ("STRING", "BINARY"):
            read, name = sql.dialect.select(column), sql.dialect.quote(column.name)
            widths.append(f"COALESCE({template.replace('{s}', read).replace('{c}', name)}, 0)")
    page = sql.dialect.limited(LOOKED_AT, ordered=False)
    few = f"SELECT {' + '.join(widths) or '0'} AS w FROM {sql.dialect.table(table)} {page}"
    ((width,),) = connection.rows(f"SELECT AVG(w) AS w FROM ({few}) few")
    return float(width or 0)


def row_width(plan: StreamPlan, long: float | None) -> float:
    """Approximate bytes a row at most, by the columns' types and the width of those that may be
    `long`.
    """
    short = [column.sql_type for column in plan.columns if not _may_be_long(column.sql_type)]
    return (long or 0) + sum(
        kind.precision or 8 if kind.name in ("CHAR", "VARCHAR") else 8 for kind in short
    )


def long_columns(plan: StreamPlan) -> list[Column]:
    """The columns whose types may hold long values."""
    return [column for column in plan.columns if _may_be_long(column.sql_type)]


def _may_be_long(kind: SqlType) -> bool:
    if kind.name in ("CHAR", "VARCHAR"):
        return kind.precision is None or kind.precision > LONG_BYTES
    return kind.name in _LONG_TYPES


class SliceSize:
    """Rows a slice and rows a round trip: as configured, or by the width of rendered rows."""

    def __init__(
        self,
        slice_rows: int | None,
        fetch_size: int | None,
        *,
        slice_bytes: int = SLICE_BYTES,
        in_memory: bool = False,
        look: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Settings that are None are measured; nothing is queried yet.

        Args:
            slice_rows: The setting.
            fetch_size: The setting, or the driver's best value.
            slice_bytes: Approximate size of a slice.
            in_memory: Whether slices pass through memory.
            look: Gives the approximate bytes a row where rows may be wide; called once, before the
                first slice is cut.
        """
        self._fixed_rows = slice_rows
        self._in_memory = in_memory
        self._first_rows = FIRST_ROWS_IN_MEMORY if in_memory else FIRST_SLICE_ROWS
        self._fixed_fetch = fetch_size
        self._most_fetched = MOST_FETCHED
        self._slice_bytes = slice_bytes
        self._look = look
        self._guess: float | None = None
        self._row_bytes: float | None = None
        self._read_bytes: float | None = None
        self._largest = slice_bytes
        self._rendered = 0

    @property
    def known(self) -> bool:
        """Whether the size of the next slice is more than a guess."""
        return self._fixed_rows is not None or self._row_bytes is not None

    @property
    def wide(self) -> bool:
        """Whether rows are so wide that no two should be rendered at the same time."""
        return self._most_fetched == 1 or max(self._guess or 0, self._read_bytes or 0) > WIDE_BYTES

    def share(self, files: int) -> None:
        """Set how many files may be on the disk at a time."""
        if not self._in_memory:
            self._largest = max(self._slice_bytes, SPOOL_BYTES // files)

    def rows(self, most: int = MOST_ROWS) -> int:
        """Rows a slice, at most `most`."""
        if self._fixed_rows is not None:
            return self._fixed_rows
        if self._row_bytes is None:
            return _fitting(self._slice_bytes, self.guessed, self._first_rows, self._first_rows)
        size = min(self._largest, max(self._slice_bytes, self._rendered // GROWTH))
        return _fitting(size, self._row_bytes, self._first_rows, most)

    def fetch_size(self) -> int:
        """JDBC rows a round trip."""
        if self._fixed_fetch is not None:
            return self._fixed_fetch
        if self._read_bytes is None:
            most = min(FIRST_FETCH_SIZE, self._most_fetched)
            return _fitting(FETCH_BYTES, self._guess, most, most)
        return _fitting(FETCH_BYTES, self._read_bytes, FIRST_FETCH_SIZE, self._most_fetched)

    def batch_rows(self, *, may_be_long: bool) -> int:
        """Rows of a batch in memory; `may_be_long`: some may be far longer than is known."""
        width, most = self._read_bytes or self._guess, BATCH_ROWS
        if may_be_long:
            most = max(
                BATCH_ROWS_IF_LONG, _fitting(BATCH_BYTES_IF_LONG, width, BATCH_ROWS_IF_LONG, most)
            )
        return _fitting(FETCH_BYTES, width, most, most)

    def fetch_fewer(self, rows: int) -> None:
        """Fetch fewer rows from now on, because `rows` were too wide for one round trip; safe from
        any thread.
        """
        self._most_fetched = min(self._most_fetched, max(1, rows // FEWER))

    def learn(self, rows: int, size: int, width: float | None = None) -> None:
        """Learn from the size of rows just rendered into a file; safe from any thread.

        `width` is that of a row as the database sent it, if the file's size does not show it.
        """
        self._rendered += size
        if rows:
            self._row_bytes = size / rows
            self._read_bytes = self._row_bytes if width is None else width

    @cached_property
    def guessed(self) -> float | None:
        """Approximate bytes of a row's long values, before one is measured; None: it has none."""
        self._guess = self._look()
        return self._guess


def _fitting(size: int, row_bytes: float | None, first: int, most: int) -> int:
    return first if row_bytes is None else min(most, max(1, int(size / max(row_bytes, 1e-3))))
