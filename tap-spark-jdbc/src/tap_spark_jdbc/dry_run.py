"""What a run would read: SQL, bounds, slices and estimated rows of each stream, as text for people."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tap_spark_jdbc.present_keys import PresentKeys
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
    tap.begin()
    continued = tap.run_state.continued_run
    lines = [] if continued is None else [f"continues run {continued}, which died"]
    for stream in tap.streams.values():
        if isinstance(stream, JdbcStream):
            lines += [*_lines(stream, tap), *_keys(stream, tap)]
    return "\n".join(lines) + "\n"


def _lines(stream: JdbcStream, tap: TapSparkJdbc) -> Iterator[str]:
    extraction, size = stream.extraction, SliceSize(tap.settings.slice_rows, tap.settings.fetch_size)
    plan, upper = stream.plan, extraction.sql.upper
    done = extraction.progress
    yield f"stream {plan.stream}: {plan.replication_method}{_range(extraction)}"
    if done.rows:
        yield f"  rows that the dead run has sent: {done.rows}"
    if done.complete:
        yield "  slices: none, the dead run has sent all of it"
        return
    yield f"  rows: about {_rows(extraction)}"
    if plan.replication_key is not None and upper is None and not extraction.sends_nulls and not extraction.sql.late:
        yield "  slices: none, there is nothing to read"
        return
    slices = extraction.slices(size.rows)
    for number, each in enumerate(islice(slices, SHOWN_SLICES), start=1):
        yield f"  slice {number}: {extraction.sql.statement(each)}"
    more = sum(1 for _ in slices)
    if more:
        yield f"  … and {more} more slices"


def _keys(stream: JdbcStream, tap: TapSparkJdbc) -> Iterator[str]:
    if stream.plan.detect_deletes:
        keys = PresentKeys(stream.plan, tap.database, tap.settings)
        yield f"  keys of all rows, to detect deletes: {keys.statement()}"


def _range(extraction: Extraction) -> str:
    key, upper = extraction.plan.replication_key, extraction.sql.upper
    if key is None:
        return ""
    if extraction.whole is None or upper is None:
        return f" by {key.column.name}, no rows in range"
    lower = extraction.whole.lower
    start = "the beginning" if lower is None else lower.value.text
    indexed = "" if key.indexed else " (not indexed: one pass)"
    settle = extraction.plan.settle_seconds
    settled = f"; younger than {settle:g} s: left for the next run" if settle else ""
    return f" by {key.column.name}{indexed}, from {start} to {upper.value.text}, both included{settled}"


def _rows(extraction: Extraction) -> int:
    """By the database's statistics; counted where there are none, or where an index makes that cheap."""
    key, estimate = extraction.plan.replication_key, extraction.plan.table.row_estimate
    # Of what is cut along the split column, the part that a dead run has sent does not come again.
    done = 0 if extraction.progress.split is None else extraction.progress.rows
    if key is None:
        return max(0, (extraction.count(Slice()) if estimate is None else estimate) - done)
    if extraction.whole is None:
        return 0
    if key.indexed:
        return extraction.count(Slice(extraction.whole))
    return max(0, (extraction.count(Slice(extraction.whole)) if estimate is None else estimate) - done)
