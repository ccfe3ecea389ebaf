"""What one failing stream does to the run: the end of it, or (`on_stream_error: skip`) a stream that is left out."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from singer_spark.errors import ConfigurationError, SchemaError, SkippedStreamsError, SourceError, StateError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

logger = logging.getLogger("tap-spark-jdbc")
# Of the stream or of its table; what befalls the machine, or the pipe, ends every run.
_OF_A_STREAM = (SourceError, StateError, ConfigurationError, SchemaError)


class StreamErrors:
    """The streams that did not arrive, each with the reason; `skips`: the others arrive all the same."""

    def __init__(self, policy: Literal["fail", "skip"]) -> None:
        self.skips = policy == "skip"
        self.told: dict[str, str] = {}

    def skip(self, stream: str, reason: str) -> None:
        """Leaves a stream out of the run."""
        self.told[stream] = reason
        logger.error("%s; the other streams go on (on_stream_error)", reason)

    @contextmanager
    def of(self, stream: str, skipped: Callable[[], None] | None = None) -> Iterator[None]:
        """Around all that may fail of one stream, which is named; `skipped` is called once the stream is left out."""
        try:
            yield
        except _OF_A_STREAM as error:
            named = one_line(error)
            if not named.startswith(f"stream {stream}"):
                named = f"stream {stream}: {named}"
            if not self.skips:
                raise type(error)(named) from error
            self.skip(stream, named)
            if skipped is not None:
                skipped()

    @contextmanager
    def of_all(self, streams: Mapping[str, Callable[[], None]]) -> Iterator[None]:
        """Around all that may fail of several streams at once: they are left out together."""
        try:
            yield
        except _OF_A_STREAM as error:
            if not self.skips:
                raise
            for stream, skipped in streams.items():
                self.skip(stream, f"stream {stream} is read from the log with others: {one_line(error)}")
                skipped()

    def finish(self, streams: int) -> None:
        """The run is over, and so many streams arrived; SkippedStreamsError: not all."""
        if self.told:
            raise SkippedStreamsError(
                f"{len(self.told)} of {streams + len(self.told)} streams did not arrive, their tables and bookmarks "
                f"stay (on_stream_error): {'; '.join(self.told.values())}"
            )
