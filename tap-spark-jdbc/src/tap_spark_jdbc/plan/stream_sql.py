"""The SQL of one stream: what is selected, the condition of each slice, and the marks of rows.

Sums of marks show later whether a database still has exactly the rows that a run has read. A row's
mark is the first 60 bits of the SHA-256 of its text in the database, which comes with the row
itself. So it belongs to the very row that was sent, whatever is written meanwhile. This module only
builds text; it executes nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import Bookmark, Boundary, Since
from singer_spark.core.key_value import KeyValue
from tap_spark_jdbc.dialects.templates import MARKED_ROW
from tap_spark_jdbc.plan.late_rows import LateRows
from tap_spark_jdbc.plan.slices import Range, Slice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.dialects.tables import Column, Key
    from tap_spark_jdbc.dialects.templates import Marks
    from tap_spark_jdbc.plan.stream_plan import StreamPlan

BOUNDARY_BITS = 3
"""A mark is stored above these bits of a row's `RowBoundary`."""
_DIGITS = 15
_CHARACTERS = 32
# On a table with more rows, each look at its key is a scan, unless the key has an index.
SCANNED_ROWS = 50_000
EVERYTHING = "1=1"
# Columns that an outline shows.
OUTLINED = 4


def marks_of(dialect: Dialect, plan: StreamPlan) -> Marks | None:
    """How the rows of a stream are marked; None: they are not.

    Views and queries are not marked, because their rows may take long to find; nor are streams with
    a masked value, which no sum may show.
    """
    key, table = plan.replication_key, plan.table
    if key is None or plan.end_value is not None or plan.masked_names:
        return None
    if table.is_view or table.query is not None:
        return None
    is_small = table.row_estimate is not None and table.row_estimate <= SCANNED_ROWS
    return dialect.marks if key.indexed or is_small else None


def mark(marks: Marks, dialect: Dialect, plan: StreamPlan) -> str:
    """SQL of a row's mark, or of its text if the database can't hash."""
    texts = [
        marks.text.replace("{s}", each.as_text.select).replace("{c}", dialect.quote(each.name))
        for each in plan.columns
    ]
    return marks.mark.replace("{t}", marks.joined.replace("{texts}", marks.between.join(texts)))


def mark_of(text: str) -> int:
    """The mark of a row's text."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:_DIGITS], 16)


def sum_of(marks: Marks, answer: str) -> tuple[int, int]:
    """The number of rows and the sum of their marks, as the database answered (`Marks.all`)."""
    if marks.hashed:
        return divmod(int(answer), MARKED_ROW)
    texts = json.loads(answer)
    return len(texts), sum(map(mark_of, texts))


def checksum(dialect: Dialect, plan: StreamPlan, rows: int, total: int) -> str:
    """What a bookmark holds of the rows at it, given the sum of their marks."""
    return checksum_of(dialect, plan, ("marks", rows, total))


def checksum_of(dialect: Dialect, plan: StreamPlan, sums: Iterable[object]) -> str:
    """The checksum of rows, given the database's sums; if they are rendered differently, the same
    rows are other records.
    """
    rendering = [
        (name, dialect.select(each), each.reading.read_as, each.reading.becomes)
        for name, each in plan.sent_columns.items()
    ]
    # "1" is the version of this form.
    return hashlib.sha256(repr(("1", rendering, list(sums))).encode()).hexdigest()[:_CHARACTERS]


def enclosed(expression: str) -> str:
    """The user's own SQL in parentheses, so that a comment at its end does not swallow the closing
    one.
    """
    return f"({expression}\n)" if "--" in expression or "#" in expression else f"({expression})"


class RowBoundary(IntEnum):
    """Rows that need a second look once they are rendered.

    These are the rows in the window below the bookmark, in the window below the upper bound, or in
    both; a window has at least the rows at the value itself.
    """

    NONE = 0
    BOOKMARK = 1
    UPPER = 2
    NULL = 3
    BOTH = 4


# For rows that the last run may have sent, and for those that the next run reads again.
AT_BOOKMARK = (int(RowBoundary.BOOKMARK), int(RowBoundary.BOTH))
AT_UPPER = (int(RowBoundary.UPPER), int(RowBoundary.BOTH))
FINGERPRINTED = (int(RowBoundary.BOOKMARK), int(RowBoundary.UPPER), int(RowBoundary.BOTH))


@dataclass(frozen=True)
class Point:
    """One value of a key, in three forms.

    Attributes:
        literal: As SQL; points with the same literal are equal.
        value: As a bookmark holds it.
        raw: As the database prints it; None if it did not come from there.
    """

    literal: str
    value: KeyValue = field(compare=False)
    raw: str | None = field(default=None, compare=False)

    def bookmark(self, key: Key, boundary: Boundary | None = None) -> Bookmark:
        """The value as a state holds it."""
        return Bookmark(key.column.name, self.value, boundary, self.raw if key.textual else None)

    def since(self) -> Since:
        """The value as a boundary holds it."""
        return Since(self.value, self.raw)


@dataclass(frozen=True)
class StreamSql:
    """The SQL of one stream in one run.

    Attributes:
        split: The column along which rows are cut that the replication key can't separate.
        bookmark: Where the last run ended, if rows at that very value need a second look.
        upper: The run's upper bound.
        late: The rows that were committed late since the last run, if there may be any.
        bookmark_since: Where the bookmark's window begins; None: it is the bookmark's value alone.
        upper_since: Where the window of the upper bound begins, in the same way.
        unseen: The condition that the last run could not see a row, if that shows which rows at the
            bookmark are new.
    """

    dialect: Dialect
    plan: StreamPlan
    split: Key | None = None
    bookmark: Point | None = None
    upper: Point | None = None
    late: LateRows[Point] | None = None
    unseen: str | None = None
    bookmark_since: Point | None = None
    upper_since: Point | None = None

    @property
    def moves(self) -> bool:
        """Whether the next run's window is another than the bookmark's."""
        return self.upper != self.bookmark or self.upper_since != self.bookmark_since

    @property
    def window(self) -> Range[Point]:
        """The bookmark's window."""
        return Range(self.bookmark_since or self.bookmark, self.bookmark, closed=True)

    @property
    def source(self) -> str:
        """`FROM` and the user's own condition."""
        condition = enclosed(self.plan.where) if self.plan.where else EVERYTHING
        return f"FROM {self.dialect.table(self.plan.table)} WHERE {condition}"

    @property
    def aliased(self) -> list[tuple[str, Column]]:
        """The columns with aliases for SQL and Spark, so that the user's names need no quoting
        there.
        """
        return [(f"c{position}", column) for position, column in enumerate(self.plan.columns)]

    def relation(self, each: Slice[Point]) -> str:
        """The subselect that Spark reads of a slice: the columns by alias, and `boundary`."""
        quote = self.dialect.quote
        selected = [
            f"{self.dialect.select(column)} AS {quote(alias)}" for alias, column in self.aliased
        ]
        selected.append(f"{self.boundary()} AS {quote('boundary')}")
        rows = f"{self.source} AND {self.condition(each)}{self._order()}"
        return f"(SELECT {', '.join(selected)} {rows}) s"

    def _order(self) -> str:
        """The clause that sorts a slice's rows in ascending order, NULL first; without a row limit,
        databases drop it.
        """
        key = self.plan.replication_key
        if key is None or not self.plan.sends_in_order:
            return ""
        name = self.dialect.column_of(self.plan.table, key.column.name)
        nulls_first = f"CASE WHEN {name} IS NULL THEN 0 ELSE 1 END, " if key.column.nullable else ""
        return f" ORDER BY {nulls_first}{name} {self.dialect.limited(self.dialect.all_rows)}"

    def statement(self, each: Slice[Point]) -> str:
        """The statement for a slice's rows, for users to read."""
        columns = ", ".join(self.dialect.select(column) for column in self.plan.columns)
        return f"SELECT {columns} {self.source} AND {self.condition(each)}"

    def outline(self, each: Slice[Point]) -> str:
        """The statement in short: a few columns by name, without casts."""
        names = [self.dialect.quote(column.name) for column in self.plan.columns]
        more = f", … ({len(names)} columns)" if len(names) > OUTLINED else ""
        terms = [enclosed(self.plan.where)] if self.plan.where else []
        terms += [term for term in [self.condition(each)] if term != EVERYTHING]
        condition = f" WHERE {' AND '.join(terms)}" if terms else ""
        return (
            f"SELECT {', '.join(names[:OUTLINED])}{more} FROM "
            f"{self.dialect.table(self.plan.table)}{condition}"
        )

    def condition(self, each: Slice[Point]) -> str:
        """A slice's condition."""
        if each.late and self.late is not None:
            ranges = " OR ".join(f"({self.condition(sent)})" for sent in self.late.sent)
            return f"({ranges}) AND {self.late.unseen_row}"
        terms = [] if each.pages is None else self._page_conditions(each.pages)
        key = self.plan.replication_key
        if key is not None and (each.key is not None or each.nulls):
            terms.append(_key_condition(self.dialect.operand(key.column), each))
            terms += self._only_unseen(self.dialect.operand(key.column), each)
        if self.split is not None and each.split is not None:
            name = self.dialect.operand(self.split.column)
            inside = range_condition(name, each.split)
            # A primary key's column may hold NULL in SQLite; such rows belong to the lowest slice.
            orphans = self.split.column.nullable and each.split.lower is None
            terms.append(f"({inside} OR {name} IS NULL)" if orphans else inside)
        return " AND ".join(terms) or EVERYTHING

    def _page_conditions(self, pages: Range[int]) -> list[str]:
        """PostgreSQL's conditions: a row's `ctid` is its page and its number in that page."""
        bounds = ((">=", pages.lower), ("<", pages.upper))
        return [
            f"ctid {sign} CAST('({page},0)' AS tid)" for sign, page in bounds if page is not None
        ]

    def _only_unseen(self, name: str, each: Slice[Point]) -> list[str]:
        """The condition that leaves out rows at the bookmark that the last run could see."""
        at, key = self.bookmark, each.key
        begins_there = key is not None and key.lower == at and not key.after
        if self.unseen is None or at is None or not begins_there:
            return []
        return [f"({name} <> {at.literal} OR {self.unseen})"]

    def boundary(self) -> str:
        """SQL of a row's `RowBoundary`, with its mark if it has one."""
        key = self.plan.replication_key
        if key is None:
            return str(int(RowBoundary.NONE))
        name = self.dialect.operand(key.column)
        cases = [f"WHEN {name} IS NULL THEN {int(RowBoundary.NULL)}"]
        at_bookmark = _window_condition(name, self.bookmark_since, self.bookmark)
        at_upper = _window_condition(name, self.upper_since, self.upper)
        if at_bookmark and at_upper and self.upper_since is not None and self.moves:
            cases.append(f"WHEN {at_bookmark} AND {at_upper} THEN {self._marked(RowBoundary.BOTH)}")
        for condition, boundary in (
            (at_bookmark, RowBoundary.BOOKMARK),
            (at_upper, RowBoundary.UPPER),
        ):
            if condition:
                cases.append(f"WHEN {condition} THEN {self._marked(boundary)}")
        return f"CASE {' '.join(cases)} ELSE {int(RowBoundary.NONE)} END"

    def _marked(self, boundary: RowBoundary) -> str:
        marks = marks_of(self.dialect, self.plan)
        if marks is None:
            return str(int(boundary))
        both = marks.at_boundary.replace("{e}", str(int(boundary)))
        return both.replace("{m}", mark(marks, self.dialect, self.plan))


def _window_condition(name: str, since: Point | None, end: Point | None) -> str:
    """The condition that a row lies in a window; empty if there is none."""
    return "" if end is None else range_condition(name, Range(since or end, end, closed=True))


def range_condition(name: str, within: Range[Point]) -> str:
    """The condition that a column lies in a range; `name` is its SQL (`Dialect.operand`)."""
    is_one_value = within.lower == within.upper and within.closed and not within.after
    if within.lower is not None and is_one_value:
        return f"{name} = {within.lower.literal}"
    terms = []
    if within.lower is not None:
        terms.append(f"{name} {'>' if within.after else '>='} {within.lower.literal}")
    if within.upper is not None:
        terms.append(f"{name} {'<=' if within.closed else '<'} {within.upper.literal}")
    return " AND ".join(terms) or f"{name} IS NOT NULL"


def _key_condition(name: str, each: Slice[Point]) -> str:
    if each.key is None:
        return f"{name} IS NULL"
    inside = range_condition(name, each.key)
    return f"({inside} OR {name} IS NULL)" if each.nulls else inside
