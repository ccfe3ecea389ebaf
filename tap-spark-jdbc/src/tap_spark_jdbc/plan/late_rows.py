"""Rows that were committed late: below a bookmark, and invisible when the last run looked.

This module only builds SQL text. Every PostgreSQL row version has the number of the transaction
that wrote it in its system column `xmin`: its lower 32 bits, even once the row is frozen. A
subtransaction has a number of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from singer_spark.core.bookmark import MAX_SEEN, TransactionSnapshot
from tap_spark_jdbc.plan.slices import Slice

K = TypeVar("K")
WRITER = "CAST(CAST(xmin AS text) AS bigint)"
"""The number of a row's writer, its lower 32 bits."""
NONE_JOINED, ALL_JOINED = "FALSE", "TRUE"
FAR = 2**31
"""After this many numbers a snapshot is renewed or proves nothing, as numbers wrap around after
twice as many.
"""
_CYCLE = 2**32
# Lower numbers are not transactions; rows that have them were there before all others.
_FIRST = 3


@dataclass(frozen=True)
class LateSearch:
    """How the rows of one stream that were committed late are looked for.

    Attributes:
        kind: In the whole table, in a window below the bookmark, only for transactions that were
            open at the last run, or not at all.
        width: How far a window reaches below the bookmark, in the unit of `KeyValue.minus`.
        span: The same for users.
        why: Why nothing better is done.
        missing_index: What to do about a key without an index, if that is why.
    """

    kind: Literal["all", "window", "open", "none"]
    width: float = 0
    span: str = ""
    why: str = ""
    missing_index: str = ""

    @property
    def text(self) -> str:
        """In a few words, for users."""
        match self.kind:
            case "all":
                return "snapshot, whole table"
            case "window":
                return f"snapshot, window of {self.span}"
            case "open":
                return f"open transactions only: {self.why}"
            case _:
                return f"none: {self.why}"


@dataclass(frozen=True)
class LateRows(Generic[K]):
    """The rows a run sends in addition to those its bookmark's value selects: those the last run
    could not see.

    `xmax` is of this run's snapshot. `sent` are the ranges where the last run (or the one that
    died) sent all it saw. `joined` is the condition for rows of tables that were not part of the
    stream then, whatever wrote them. For another server's snapshot, whose numbers mean nothing
    here, it is `ALL_JOINED`.
    """

    snapshot: TransactionSnapshot
    xmax: int
    sent: tuple[Slice[K], ...]
    joined: str = NONE_JOINED

    @property
    def is_exact(self) -> bool:
        """Whether every row that the last run could see is recognised as seen."""
        return len(self.snapshot.seen) < MAX_SEEN and self.xmax - self.snapshot.xmin <= _CYCLE

    @property
    def unseen_row(self) -> str:
        """SQL condition that the last run could not see a row."""
        unseen = self.unseen(WRITER)
        return unseen if self.joined == NONE_JOINED else f"({unseen} OR {self.joined})"

    def unseen(self, writer: str) -> str:
        """The same for a row of a table that it read, given SQL of the row's writer: `WRITER` or
        its alias.
        """
        first, span = self.snapshot.xmin, self.xmax - self.snapshot.xmin
        condition = _within(writer, first, span)
        # After a whole cycle of numbers, they no longer identify the transactions that were seen.
        if not self.snapshot.seen or span > _CYCLE:
            return condition
        distances = ",".join(str(number - first) for number in self.snapshot.seen)
        return (
            f"{condition} AND {_distance(writer, first)} <> ALL (CAST('{{{distances}}}' AS "
            "bigint[]))"
        )


@dataclass(frozen=True)
class Written:
    """The result of a look at the writers of all rows.

    Attributes:
        seen: Writers between `xmin` and `xmax` of this run's snapshot whose rows it shows,
            ascending; at most `MAX_SEEN`.
        late: Whether it shows a row that the last run could not see in the ranges where that run
            sent everything.
        new: Whether it shows any row that the last run could not see.
        keys: The least and the greatest key of the late rows, as the database prints them, if they
            were asked for.
    """

    seen: tuple[int, ...]
    late: bool
    new: bool
    keys: tuple[str, str] | None = None


def written_query(
    source: str,
    xmin: int,
    xmax: int,
    snapshot: str,
    late: LateRows[K] | None,
    ranges: str,
    key: tuple[str, str] | None = None,
) -> str:
    """SQL that looks at the writers of all rows once, in one row of three texts, or of five
    (`written_of`).

    A writer that the server reports as unfinished is not *seen*: its number is that of a row that
    is a whole cycle older. `xmin`, `xmax` and the server's own text are of the snapshot in which
    the query runs. `ranges` is the condition for the ranges in which the last run sent everything
    that, by `late`, it could see. With a `key` (its column and the SQL of that column's text), the
    least and greatest key of the late rows are texts four and five.
    """
    first = xmin if late is None else min(xmin, late.snapshot.xmin)
    distance = _distance("w", xmin)
    number = f"CAST(CAST({xmin} + d AS text) AS xid8)"
    joined = NONE_JOINED if late is None else late.joined
    unseen = "FALSE" if late is None else f"joined OR ({late.unseen('w')})"
    kept, ends, texts = "", "", ""
    if key is not None:
        column, text = key
        kept = f", {column} AS k"
        in_range = "CASE WHEN in_range THEN k END"
        ends = f", pg_catalog.min({in_range}) AS least, pg_catalog.max({in_range}) AS greatest"
        texts = "".join(
            f", (SELECT {text} FROM (SELECT pg_catalog.{end}) AS {column} FROM written WHERE "
            f"{unseen}) one)"
            for end in ("min(least", "max(greatest")
        )
    rows = (
        f"SELECT {WRITER} AS w, ({ranges}) AS in_range, ({joined}) AS joined{kept} {source} "
        f"AND ({_within(WRITER, first, xmax - first)} OR {joined})"
    )
    return (
        "WITH written AS MATERIALIZED (SELECT w, joined, pg_catalog.bool_or(in_range) AS "
        f"in_range{ends} FROM ({rows}) r GROUP BY w, joined) SELECT (SELECT "
        "pg_catalog.string_agg(CAST(d AS text), ',' ORDER BY d) FROM (SELECT d FROM (SELECT "
        f"DISTINCT {distance} AS d FROM written WHERE {_within('w', xmin, xmax - xmin)}) "
        f"between_both WHERE pg_catalog.pg_visible_in_snapshot({number}, CAST({snapshot} AS "
        f"pg_snapshot)) AND pg_catalog.pg_xact_status({number}) = 'committed' ORDER BY d LIMIT "
        f"{MAX_SEEN}) seen) AS distances, (SELECT CASE WHEN pg_catalog.bool_or(in_range) THEN '1' "
        f"ELSE '0' END FROM written WHERE {unseen}) AS is_late, (SELECT CASE WHEN COUNT(*) > 0 "
        f"THEN '1' ELSE '0' END FROM written WHERE {unseen}) AS is_new{texts}"
    )


def written_of(row: Sequence[str | None], xmin: int) -> Written:
    """Parse the result row of `written_query`."""
    distances, late, new, *ends = row
    listed: Sequence[str] = distances.split(",") if distances else ()
    least, greatest = ends or (None, None)
    keys = None if least is None or greatest is None else (least, greatest)
    return Written(
        tuple(xmin + int(distance) for distance in listed), late == "1", new == "1", keys
    )


def _distance(writer: str, first: int) -> str:
    """SQL of a writer's distance from `first`, modulo a cycle."""
    return f"MOD({writer} + {_CYCLE - first % _CYCLE}, {_CYCLE})"


def _within(writer: str, first: int, span: int) -> str:
    return f"{writer} >= {_FIRST} AND {_distance(writer, first)} < {span}"
