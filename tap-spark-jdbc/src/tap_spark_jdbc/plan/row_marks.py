"""Marks of rows: their sums show later whether a database still has exactly the rows that a run has
read.

A row's mark is the first 60 bits of the SHA-256 of its text in the database, which comes with the
row itself. So it belongs to the very row that was sent, whatever is written meanwhile. This module
only builds text; it executes nothing.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.dialects.dialect import Marks
    from tap_spark_jdbc.plan.stream_plan import StreamPlan

BOUNDARY_BITS = 3
"""A mark is stored above these bits of a row's `RowBoundary`."""
_DIGITS = 15
_CHARACTERS = 32
# On a table with more rows, each look at its key is a scan, unless the key has an index.
SCANNED_ROWS = 50_000


def marks_of(dialect: Dialect, plan: StreamPlan) -> Marks | None:
    """How the rows of a stream are marked; None: they are not.

    Views and queries are not marked, because their rows may take long to find; nor are streams with
    a masked value, which no sum may show.
    """
    key, table = plan.replication_key, plan.table
    if (
        key is None
        or plan.end_value is not None
        or table.is_view
        or table.query is not None
        or plan.masked_names
    ):
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
        rows, _, total = answer.partition(" ")
        return int(rows), int(total)
    texts = json.loads(answer)
    return len(texts), sum(map(mark_of, texts))


def checksum(dialect: Dialect, plan: StreamPlan, rows: int, total: int) -> str:
    """What a bookmark holds of the rows at it, given the sum of their marks."""
    return checksum_of(dialect, plan, ("marks", rows, total))


def checksum_of(dialect: Dialect, plan: StreamPlan, sums: Iterable[object], form: str = "1") -> str:
    """The checksum of rows, given the database's sums; if they are rendered differently, the same
    rows are other records.
    """
    rendering = [
        (name, dialect.select(each), each.reading.read_as, each.reading.becomes)
        for name, each in plan.sent_columns.items()
    ]
    return hashlib.sha256(repr((form, rendering, list(sums))).encode()).hexdigest()[:_CHARACTERS]
