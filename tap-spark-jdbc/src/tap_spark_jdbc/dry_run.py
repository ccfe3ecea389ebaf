"""What a run would read: SQL, bounds, slices and estimated rows of each stream, as text for people."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.spool import SliceSize
from tap_spark_jdbc.stream import JdbcStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tap_spark_jdbc.extraction import Extraction
    from tap_spark_jdbc.tap import TapSparkJdbc

SHOWN_SLICES = 20


def describe(tap: TapSparkJdbc) -> str:
    """The plan of the run; asks the database for bounds, reads no row."""
    streams = [stream for stream in tap.streams.values() if isinstance(stream, JdbcStream)]
    tap.run_state.forget([stream.plan for stream in streams])
    return "\n".join(line for stream in streams for line in _lines(stream, tap)) + "\n"


def _lines(stream: JdbcStream, tap: TapSparkJdbc) -> Iterator[str]:
    extraction, size = stream.extraction, SliceSize(tap.settings.slice_rows, tap.settings.fetch_size)
    plan, upper = stream.plan, extraction.sql.upper
    yield f"stream {plan.stream}: {plan.replication_method}{_range(extraction)}"
    yield f"  rows: about {_rows(extraction)}"
    if plan.replication_key is not None and upper is None and not extraction.sends_nulls:
        yield "  slices: none, there is nothing to read"
        return
    slices = extraction.slices(size.rows)
    for number, each in enumerate(islice(slices, SHOWN_SLICES), start=1):
        yield f"  slice {number}: {extraction.sql.statement(each)}"
    more = sum(1 for _ in slices)
    if more:
        yield f"  … and {more} more slices"


def _range(extraction: Extraction) -> str:
    key, upper = extraction.plan.replication_key, extraction.sql.upper
    if key is None:
        return ""
    if extraction.whole is None or upper is None:
        return f" by {key.column.name}, no rows in range"
    lower = extraction.whole.lower
    start = "the beginning" if lower is None else lower.value.text
    indexed = "" if key.indexed else " (not indexed: one pass)"
    return f" by {key.column.name}{indexed}, from {start} to {upper.value.text}, both included"


def _rows(extraction: Extraction) -> int:
    """By the database's statistics; counted where there are none, or where an index makes that cheap."""
    key, estimate = extraction.plan.replication_key, extraction.plan.table.row_estimate
    if key is None:
        return extraction.count(Slice()) if estimate is None else estimate
    if extraction.whole is None:
        return 0
    if estimate is None or key.indexed:
        return extraction.count(Slice(extraction.whole))
    return estimate
