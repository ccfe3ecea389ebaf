"""The text of `--dry-run`: SQL, bounds, slices and estimated rows of each stream."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tap_spark_jdbc.extract.slice_bounds import SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import EVERYTHING, Point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.send.jdbc_stream import JdbcStream
    from tap_spark_jdbc.tap import TapSparkJdbc

SHOWN_SLICES = 20


def describe(tap: TapSparkJdbc, *, verbose: bool = False) -> str:
    """Describe the run's plan, with the whole SQL if `verbose`.

    Queries the database for bounds, reads no rows.
    """
    streams = tap.jdbc_streams()
    tap.begin()
    lines, errors = [_start(tap)], tap.stream_errors
    for stream in streams:
        if stream.name not in errors.reasons:
            with errors.of(stream.name):
                lines += _log_lines(stream, tap) or [*_lines(stream, tap, verbose), *_keys(stream)]
    lines += [f"skipped: {reason}" for reason in errors.reasons.values()]
    return "\n".join(lines) + "\n"


def _start(tap: TapSparkJdbc) -> str:
    state = tap.run_state
    if state.start == "resume":
        return f"continues run {state.continued_run}, which died"
    if state.start == "saved" and not state.is_full:
        return "starts from the saved state"
    why = "there is no state yet" if state.start == "first" else "no state is used"
    return f"starts from the beginning: {why}"


def _lines(stream: JdbcStream, tap: TapSparkJdbc, verbose: bool) -> Iterator[str]:
    size = SliceSize(tap.settings.slice_rows, tap.settings.fetch_size)
    plan, extraction = stream.plan, stream.extraction
    sql, done = extraction.sql, extraction.progress
    yield f"stream {plan.stream}: {plan.replication_method}{_range(extraction)}"
    if done.rows:
        yield f"  rows that the dead run has sent: {done.rows}"
    if extraction.dropped is not None:
        yield f"  what the dead run has sent is dropped: {extraction.dropped}"
    if done.complete and sql.late is None:
        yield "  slices: none, the dead run has sent all of it"
        return
    yield f"  rows: about {_rows(extraction)}"
    is_empty = plan.replication_key is not None and sql.upper is None
    if is_empty and not extraction.sends_nulls and not sql.late:
        yield "  slices: none, there is nothing to read"
        return
    yield f"  sql: {(sql.statement if verbose else sql.outline)(_everything(extraction))}"
    yield "  slices:"
    slices = extraction.slices(size.rows)
    for number, each in enumerate(islice(slices, SHOWN_SLICES), start=1):
        condition = sql.condition(each)
        if each.late and not verbose:
            condition = "rows below the bookmark that were committed late"
        yield f"  {number:5}  {'all rows' if condition == EVERYTHING else condition}"
    more = sum(1 for _ in slices)
    if more:
        yield f"         … and {more} more"


def _log_lines(stream: JdbcStream, tap: TapSparkJdbc) -> list[str]:
    """Lines for a stream that continues in the log; none if its table has to be read first."""
    if not stream.plan.is_log_based:
        return []
    from tap_spark_jdbc.send.stream_order import log_of

    log = log_of(tap.database, tap.snapshots, tap.run_state, tap.pipeline)
    outlook = log.outlook(stream.plan)
    if outlook is None:
        return []
    ahead = outlook.ahead if outlook.lost is None else f"can't continue: {outlook.lost}"
    first = f"stream {stream.name}: LOG_BASED, changes from {outlook.position} on"
    return [first, f"  log: {ahead}"]


def _keys(stream: JdbcStream) -> Iterator[str]:
    if stream.keys is not None:
        yield f"  keys of all rows, to detect deletes: {stream.keys.statement()}"


def _range(extraction: Extraction) -> str:
    key, upper = extraction.plan.replication_key, extraction.sql.upper
    if key is None:
        return ""
    stays = "" if extraction.plan.end_value is None else "; a backfill, the bookmark stays"
    if extraction.whole is None or upper is None:
        return f" by {key.column.name}, no rows in range{stays}"
    lower = extraction.whole.lower
    start = "the beginning" if lower is None else lower.value.text
    indexed = "" if key.indexed else " (not indexed: one pass)"
    settle = extraction.plan.settle_seconds
    settled = f"; younger than {settle:g} s: left for the next run" if settle else ""
    return (
        f" by {key.column.name}{indexed}, from {start} to {upper.value.text}, both "
        f"included{settled}{stays}"
    )


def _rows(extraction: Extraction) -> int:
    """The database's estimate if a whole table is read, otherwise an exact count."""
    plan, estimate = extraction.plan, extraction.plan.table.row_estimate
    # Rows cut along the split column that a dead run has already sent are not read again.
    done = 0 if extraction.progress.split is None else extraction.progress.rows
    key = plan.replication_key
    if key is not None and extraction.whole is None and not extraction.sends_nulls:
        return 0
    known = estimate is not None and plan.where is None and not extraction.is_delta
    if estimate is None or not known or (key is not None and key.indexed):
        estimate = extraction.count(_everything(extraction))
    return max(0, estimate - done)


def _everything(extraction: Extraction) -> Slice[Point]:
    """Everything the run reads of the stream, as one slice."""
    return Slice(extraction.whole, nulls=extraction.sends_nulls)
