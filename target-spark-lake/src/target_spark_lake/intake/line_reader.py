"""Reads the input in large pieces and dispatches its messages, replacing singer-sdk's line-by-line
reader.
"""

from __future__ import annotations

import io
import logging
import select
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

from singer_sdk.singerlib.encoding.base import GenericSingerReader

from target_spark_lake.intake.singer_lines import (
    READ_BYTES,
    RECORD,
    LineRouter,
    RecordLines,
    parse_line,
)

CHECK_SECONDS = 0.5
PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031
logger = logging.getLogger("target-spark-lake")


class LineReader(GenericSingerReader[bytes]):
    """Calls the handlers with each message's dictionary, or for RECORD with a `RecordLines`
    group.
    """

    default_input = sys.stdin.buffer

    def __init__(
        self,
        check: Callable[[], None] = lambda: None,
        failed: Callable[[BaseException], None] | None = None,
    ):
        """Prepare to read.

        `check` is called at least twice a second, and may end the reading by an exception; `failed`
        is called with an exception that ended it early.
        """
        super().__init__()
        self._check = check
        self._failed = failed

    def deserialize_json(self, line: bytes) -> dict[str, Any]:
        """Parse one line."""
        return parse_line(line, 0)

    def process_lines(
        self, file_input: IO[Any] | None, callbacks: Mapping[str, Callable[[Any], None]]
    ) -> Counter[str]:
        """Read a binary or text stream, by default standard input, to its end; `callbacks` are by
        message type.
        """
        counts: Counter[str] = Counter()
        unknown: set[str] = set()
        try:
            for item in self._items(file_input if file_input is not None else sys.stdin.buffer):
                if isinstance(item, RecordLines):
                    callbacks[RECORD](item)
                    counts[RECORD] += item.rows
                elif item.kind in callbacks:
                    callbacks[item.kind](item.value)
                    counts[item.kind] += 1
                elif item.kind not in unknown:
                    unknown.add(item.kind)
                    kind = item.value["type"]
                    logger.warning(
                        "input line %d: messages of type %r are unknown, skipped", item.line, kind
                    )
        except BaseException as error:
            if self._failed is not None:
                self._failed(error)
            raise
        return counts

    def _items(self, source: IO[Any]) -> Iterator[Any]:
        router = LineRouter()
        for piece in _pieces(source, self._check):
            yield from router.feed(piece)
        yield from router.close()


def _pieces(source: IO[Any], check: Callable[[], None]) -> Iterator[bytes]:
    """The bytes of a stream, in pieces as large as available at once; never empty."""
    source = getattr(source, "buffer", source)
    try:
        descriptor = source.fileno()
    except (io.UnsupportedOperation, AttributeError, ValueError):
        yield from _pieces_of_object(source, check)
        return
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, _SET_PIPE_SIZE, PIPE_BYTES)
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
    while True:
        while not select.select([descriptor], [], [], CHECK_SECONDS)[0]:
            check()
        check()
        piece = read(READ_BYTES)
        if not piece:
            return
        yield piece


def _pieces_of_object(source: IO[Any], check: Callable[[], None]) -> Iterator[bytes]:
    while piece := source.read(READ_BYTES):
        check()
        yield piece.encode() if isinstance(piece, str) else piece
