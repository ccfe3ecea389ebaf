"""One slice by the columnar driver, with what becomes of its rows: in a thread of the tap, or in a
Spark task.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from tap_spark_jdbc.source.libpq import ColumnarDatabase
from tap_spark_jdbc.supply.columnar_query import ColumnarQuery, Outcome, read

if TYPE_CHECKING:
    from tap_spark_jdbc.supply.jdbc_rows import Work

R = TypeVar("R")


def done(query: ColumnarQuery, work: Work[R], database: ColumnarDatabase) -> tuple[Outcome, R]:
    """Read a slice, and do the work with its rows."""
    sink, found = work.begin()
    return read(query, sink, database), found()


def outcome_fields(query: ColumnarQuery, work: Work[R]) -> tuple[dict[str, Any], R]:
    """`done` in a worker, with the outcome as fields, since its class is another one there."""
    with closing(ColumnarDatabase()) as database:
        outcome, found = done(query, work, database)
    return asdict(outcome), found
