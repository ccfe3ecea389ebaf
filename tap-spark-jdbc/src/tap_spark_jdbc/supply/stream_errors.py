"""Errors of a stream. Those for slices that can't be read or written are the same for all readers.
A failing stream ends the run, or (`on_stream_error: skip`) it is left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from singer_spark.engine.spark_jvm import jvm_failure
from singer_spark.error_codes import RunCode
from singer_spark.errors import (
    ConfigurationError,
    ConnectionLostError,
    DisturbedError,
    ResourceError,
    SchemaError,
    SingerSparkError,
    SkippedStreamsError,
    SourceError,
    StateError,
    StorageError,
    cut,
    first_of,
    lacking_python,
    one_line,
    shortage,
)
from tap_spark_jdbc.config.settings import SKIP_HINT
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection_errors import (
    first_sql_state,
    is_lost,
    is_of_storage,
    job_reason,
    may_quote,
    refusal,
    with_hint,
)

if TYPE_CHECKING:
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

logger = logging.getLogger("tap-spark-jdbc")

# PostgreSQL's SQLSTATE for bytes that are not text; its message does not name the column.
_NO_TEXT = "22021"
# The dialects' own words for a value, which a cast that must fail carries into the server's
# message, and what follows them there.
_COMPLAINT = re.compile(r"(?:key )?column .* holds a value that is not a valid .*", re.DOTALL)
_MORE = re.compile(r"""["']?\s+(?:Detail|DETAIL|Position|Where|CONTEXT)\b.*$|["']$""", re.DOTALL)
# Errors of the stream or its table; a failure of the machine or the pipe always ends the run.
OF_A_STREAM = (SourceError, StateError, ConfigurationError, SchemaError)
_PASSING = (ConnectionLostError, DisturbedError)
# What reads rows may be started by the first stream that needs it.
_OF_THE_MACHINE = (RunCode.JAVA_MISSING, RunCode.SPARK_NOT_STARTED, TapCode.DRIVER_UNKNOWN)


class TooWideError(Exception):
    """A round trip returned more bytes than it may; nothing was read."""


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
        if unsuitable := lacking_python(reason, "name no cluster in the setting spark"):
            raise ConfigurationError(
                TapCode.EXECUTORS_UNSUITABLE, f"stream {plan.stream}: {unsuitable}"
            ) from error
        if location and is_of_storage(error):
            raise unwritable(plan.stream, location, reason) from error
        state, lost = first_sql_state(error), is_lost(error)
        hidden = source.hides_values and may_quote(error)
        failure = refused(plan, source, reason, state, lost=lost, hides_values=hidden)
        raise failure from None if hidden else error


def _is_too_wide(error: Exception, source: JdbcSource, bound: int | None) -> bool:
    parameter = source.dialect.fetch_bound
    if bound is None or parameter is None:
        return False
    return f"exceeded {parameter} limit" in str(error)


def unwritable(stream: str, location: str, reason: str) -> StorageError:
    """The error for a batch file that can't be written to its location."""
    return StorageError(
        TapCode.BATCH_LOCATION,
        f"stream {stream}: a batch can't be written to {location}: {cut(reason, 400)}; check "
        "`batch_config` and `storage_options`",
    )


def refused(
    plan: StreamPlan, source: JdbcSource, reason: str, state: str, *, lost: bool, hides_values: bool
) -> SourceError:
    """The error for rows that the database refuses, for this reason and with this SQLSTATE."""
    complaint = None if hides_values else _COMPLAINT.search(reason)
    message = with_hint(reason, state, hides_values=hides_values)
    if complaint:
        message = _MORE.sub("", complaint[0])
    if state == _NO_TEXT:
        texts = ", ".join(each.name for each in plan.columns if each.reading.read_as == "STRING")
        message += (
            f"; a text of {cut(texts, 200)} is not UTF-8: set that column's type_overrides "
            "to binary"
        )
    kind, code = refusal(state, reason, TapCode.READING_FAILED, lost=lost)
    if source.snapshot is not None and source.snapshot in reason:
        if not lost:
            kind, code = DisturbedError, TapCode.CHANGED_WHILE_READ
        message = (
            "the server has lost the snapshot in which the stream is read, as it does when it "
            f"restarts ({reason}); run again: the next run continues where this one stopped"
        )
    return kind(code, f"stream {plan.stream}: reading failed: {message}")


class StreamErrors:
    """The streams left out so far.

    Attributes:
        skips_all: Whether any failing stream is left out, instead of ending the run.
        others: Whether the run has other streams, which would arrive if one were left out.
        strangers: Streams left out in any case: no setting names them, and none arrived yet.
        reasons: Why each stream was left out, by stream.
    """

    def __init__(self, policy: Literal["fail", "skip"]) -> None:
        self.skips_all = policy == "skip"
        self.others = False
        self.strangers: frozenset[str] = frozenset()
        self.reasons: dict[str, str] = {}

    def skips(self, stream: str) -> bool:
        """Whether a stream that fails is left out."""
        return self.skips_all or stream in self.strangers

    def skip(self, stream: str, reason: str) -> None:
        """Leave a stream out of the run."""
        self.reasons[stream] = reason
        why = "on_stream_error" if self.skips_all else "no setting names it, and it never arrived"
        logger.error("%s; the other streams continue (%s)", reason, why)

    @contextmanager
    def of(self, stream: str, skipped: Callable[[], None] | None = None) -> Iterator[None]:
        """Handle errors of one stream and name it in them.

        `skipped` is called once the stream is left out.
        """
        try:
            yield
        except OF_A_STREAM as error:
            if error.code in _OF_THE_MACHINE:
                raise
            named = error.message
            if not named.startswith(f"stream {stream}"):
                named = f"stream {stream}: {named}"
            # A temporary failure is not held against a stream: the next run continues where this
            # one stopped.
            if not self.skips_all and isinstance(error, _PASSING):
                raise type(error)(error.code, named) from error
            if not self.skips(stream):
                hint = f"; {SKIP_HINT}" if self.others else ""
                raise type(error)(error.code, named + hint) from error
            self.skip(stream, one_line(type(error)(error.code, named)))
            if skipped is not None:
                skipped()

    @contextmanager
    def of_all(self, streams: Mapping[str, Callable[[], None]]) -> Iterator[None]:
        """Handle errors of several streams at once: they are left out together."""
        try:
            yield
        except OF_A_STREAM as error:
            if not self.skips_all or error.code in _OF_THE_MACHINE:
                raise
            for stream, skipped in streams.items():
                self.skip(
                    stream, f"stream {stream} is read from the log with others: {one_line(error)}"
                )
                skipped()

    def check(self, streams: int) -> None:
        """Before the run's end: SourceError if none of its `streams` arrived, unless the user wants
        to skip any.
        """
        if self.reasons and not streams and not self.skips_all:
            raise SourceError(TapCode.NO_STREAM_ARRIVED, first_of([*self.reasons.values()]))

    def finish(self, streams: int) -> None:
        """End the run, in which `streams` arrived; SkippedStreamsError: others were left out."""
        if self.reasons:
            raise SkippedStreamsError(
                TapCode.STREAMS_SKIPPED,
                f"{len(self.reasons)} of {streams + len(self.reasons)} streams did not arrive; "
                "their tables and bookmarks stay as they were (on_stream_error): "
                f"{first_of([*self.reasons.values()])}",
            )
