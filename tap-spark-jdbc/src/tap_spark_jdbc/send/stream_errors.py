"""What a failing stream does to the run: it ends the run, or (`on_stream_error: skip`) it is left
out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from singer_spark.errors import (
    ConfigurationError,
    ConnectionLostError,
    DisturbedError,
    SchemaError,
    SkippedStreamsError,
    SourceError,
    StateError,
    first_of,
    one_line,
)
from tap_spark_jdbc.config.config_schema import SKIP_HINT
from tap_spark_jdbc.error_codes import TapCode

logger = logging.getLogger("tap-spark-jdbc")
# Errors of the stream or its table; a failure of the machine or the pipe always ends the run.
OF_A_STREAM = (SourceError, StateError, ConfigurationError, SchemaError)
_PASSING = (ConnectionLostError, DisturbedError)


class StreamErrors:
    """The streams left out so far.

    Attributes:
        skips_all: Whether any failing stream is left out, instead of ending the run.
        others: Whether the run has other streams, which would arrive if one were left out.
        strangers: Streams that are left out in any case: no setting names them, and they never
            arrived.
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
            if not self.skips_all:
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
                f"{len(self.reasons)} of {streams + len(self.reasons)} streams did not arrive, "
                "their tables and "
                f"bookmarks stay (on_stream_error): {first_of([*self.reasons.values()])}",
            )
