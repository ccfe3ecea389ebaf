"""Errors for slices that can't be read or written, the same for all readers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from singer_spark.engine.spark_jvm import jvm_failure
from singer_spark.error_codes import RunCode
from singer_spark.errors import (
    ConnectionLostError,
    DisturbedError,
    ResourceError,
    SingerSparkError,
    SourceError,
    StorageError,
    cut,
    shortage,
)
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection_errors import (
    code_of,
    first_sql_state,
    is_lost,
    is_of_storage,
    job_reason,
    may_quote,
    with_hint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

# PostgreSQL's SQLSTATE for bytes that are not text; its message does not name the column.
_NO_TEXT = "22021"


# The dialects' own words for a value, which a cast that must fail carries into the server's
# message, and what follows them there.
_COMPLAINT = re.compile(r"(?:key )?column .* holds a value that is not a valid .*", re.DOTALL)
_MORE = re.compile(r"""["']?\s+(?:Detail|DETAIL|Position|Where|CONTEXT)\b.*$|["']$""", re.DOTALL)


class TooWideError(Exception):
    """A round trip brought more bytes than it may; nothing was read."""


@contextmanager
def reading_errors(
    plan: StreamPlan, source: JdbcSource, location: str = "", bound: int | None = None
) -> Iterator[None]:
    """Turn an error of the JVM, or of a job in it, into one line.

    Args:
        plan: The stream's.
        source: The database.
        location: Where rows are written, if anywhere.
        bound: The bytes that a round trip may bring, if there is a limit.
    """
    try:
        yield
    except (TooWideError, SingerSparkError):
        raise
    except Exception as error:
        if _is_too_wide(error, source, bound):
            raise TooWideError from error
        if lacking := jvm_failure() or shortage(error, location):
            if lacking.code is RunCode.OUT_OF_MEMORY:
                advice = "or lower `fetch_size` and `slice_rows`, or `n_jobs`"
                lacking = ResourceError(
                    RunCode.OUT_OF_MEMORY, f"stream {plan.stream}: {lacking.message}; {advice}"
                )
            raise lacking from error
        reason = job_reason(str(error))
        if location and is_of_storage(error):
            raise unwritable(plan.stream, location, reason) from error
        state, lost = first_sql_state(error), is_lost(error)
        hidden = source.hides_values and may_quote(error)
        failure = refused(plan, source, reason, state, lost=lost, hides_values=hidden)
        raise failure from None if hidden else error


def _is_too_wide(error: Exception, source: JdbcSource, bound: int | None) -> bool:
    parameter = source.dialect.fetch_bound
    return (
        bound is not None and parameter is not None and f"exceeded {parameter} limit" in str(error)
    )


def unwritable(stream: str, location: str, reason: str) -> StorageError:
    """The error for a batch file that can't be written to its location."""
    return StorageError(
        TapCode.BATCH_LOCATION,
        f"stream {stream}: a batch can't be written to {location}: {cut(reason, 400)}; look at "
        "`batch_config` and `storage_options`",
    )


def refused(
    plan: StreamPlan, source: JdbcSource, reason: str, state: str, *, lost: bool, hides_values: bool
) -> SourceError:
    """The error for rows that the database refuses, for this reason and with this SQLSTATE."""
    complaint = None if hides_values else _COMPLAINT.search(reason)
    message = (
        _MORE.sub("", complaint[0])
        if complaint
        else with_hint(reason, state, hides_values=hides_values)
    )
    if state == _NO_TEXT:
        texts = ", ".join(
            column.name for column in plan.columns if column.reading.read_as == "STRING"
        )
        message += (
            f"; a text of {cut(texts, 200)} is not UTF-8: set that column's type_overrides "
            "to binary"
        )
    kind: type[SourceError] = ConnectionLostError if lost else SourceError
    code = TapCode.CONNECTION_LOST if lost else code_of(state, reason, TapCode.READING_FAILED)
    if source.snapshot is not None and source.snapshot in reason:
        if not lost:
            kind, code = DisturbedError, TapCode.CHANGED_WHILE_READ
        message = (
            "the server has lost the snapshot that the stream is read in, as when it "
            f"restarts ({reason}); "
        )
        message += "run again: that continues where this run stopped"
    return kind(code, f"stream {plan.stream}: reading failed: {message}")
