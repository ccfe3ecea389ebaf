"""Input of Singer lines: raw RECORD lines are grouped by stream without parsing, other messages
become dictionaries.

A RECORD line is recognized by its head, the bytes from its start to its record's `{`. A stream's
head is learned from the first of its lines, which is parsed as JSON; from then on whole buffers of
lines with that head pass in one piece. The stage that parses the lines checks whether they are
valid JSON to the end.
"""

from __future__ import annotations

import fcntl
import io
import json
import logging
import re
import select
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import orjson
from singer_sdk.singerlib.encoding.base import GenericSingerReader

from singer_spark.core.exact_json import is_deep_state, state_from_json
from singer_spark.errors import ProtocolError, SingerSparkError
from target_spark_lake.error_codes import LakeCode

RECORD, STATE = "RECORD", "STATE"
READ_BYTES = 1 << 21
# No tap sends longer lines; without a limit an endless line would fill the memory.
LONGEST_LINE = 1 << 30
# Parsed as Python's objects, a line takes up to twenty times its length.
LONG_LINE = 1 << 20
SHOWN_CHARACTERS = 120

_HEAD = re.compile(
    rb'\{\s*(?:"type"\s*:\s*"[A-Za-z]+"\s*,\s*"stream"\s*:\s*"(?:[^"\\]|\\.)*"'
    rb'|"stream"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"type"\s*:\s*"[A-Za-z]+")'
    rb'\s*,\s*"record"\s*:\s*(?=\{)'
)
CHECK_SECONDS = 0.5
PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031
logger = logging.getLogger("target-spark-lake")


class DeadTapError(ProtocolError):
    """The input ended where no living tap would end it."""


class EmptyInputError(SingerSparkError):
    """The tap sent nothing; its own log says why, so this is no error of the target's own."""


@dataclass(frozen=True)
class RecordLines:
    """Adjacent RECORD lines of one stream.

    Attributes:
        stream: The stream's name.
        data: Whole lines, each with its newline.
        rows: Number of lines.
        first_line: Number of the first one, from 1, in the input or the file that they come from.
        file: Name for errors of the BATCH file that they come from; None for lines of the input.
    """

    stream: str
    data: bytes
    rows: int
    first_line: int
    file: str | None = None


@dataclass(frozen=True)
class Message:
    """A line other than a RECORD: its type in capitals, its content, its number in the input."""

    kind: str
    value: dict[str, Any]
    line: int


class LineRouter:
    """Turns arbitrary pieces of the input into record groups and messages, in input order."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._next_line = 1
        self._heads: dict[bytes, str] = {}
        self._not_followed_by: dict[bytes, re.Pattern[bytes]] = {}

    def feed(self, piece: bytes) -> Iterator[RecordLines | Message]:
        """Take the next bytes of the input and yield what is complete.

        Raises:
            ProtocolError: a line is malformed.
        """
        end = piece.rfind(b"\n") + 1
        if not end:
            self._rest.append(piece)
            self._rest_bytes += len(piece)
            if self._rest_bytes > LONGEST_LINE:
                raise _malformed(self._next_line, f"is longer than {LONGEST_LINE} bytes")
            return
        lines = b"".join((*self._rest, piece[:end]))
        self._rest, self._rest_bytes = [piece[end:]], len(piece) - end
        yield from self._route(lines)

    def close(self) -> Iterator[RecordLines | Message]:
        """Handle the end of the input, whose last line may lack the newline.

        Raises:
            DeadTapError: the last line is incomplete.
        """
        line, self._rest = b"".join(self._rest), []
        try:
            routed = self._single(line)
        except ProtocolError as error:
            if not isinstance(error.__cause__, orjson.JSONDecodeError):
                raise
            raise DeadTapError(
                LakeCode.TAP_DIED,
                f"{error.message}; the input ends there because the tap died; nothing was "
                "published",
            ) from error
        if routed is not None:
            yield routed

    def _route(self, lines: bytes) -> Iterator[RecordLines | Message]:
        position, size = 0, len(lines)
        while position < size:
            head = self._head_at(lines, position)
            if head is None:
                end = lines.index(b"\n", position) + 1
                routed = self._single(lines[position:end])
                self._next_line += 1
                if routed is not None:
                    yield routed
            else:
                end = self._end_of_run(lines, position, head)
                data = lines if (position, end) == (0, size) else lines[position:end]
                rows = data.count(b"\n")
                yield RecordLines(self._heads[head], data, rows, self._next_line)
                self._next_line += rows
            position = end

    def _head_at(self, lines: bytes, position: int) -> bytes | None:
        match = _HEAD.match(lines, position)
        head = match[0] if match else None
        return head if head in self._heads else None

    def _end_of_run(self, lines: bytes, position: int, head: bytes) -> int:
        """End of the lines that begin with this head: the first newline not followed by it."""
        match = self._not_followed_by[head].search(lines, position)
        return match.end() if match else len(lines)

    def _single(self, line: bytes) -> RecordLines | Message | None:
        if (stream := _stream_of_long(line)) is not None:
            return RecordLines(stream, line, 1, self._next_line)
        stripped = line.strip()
        if self._next_line == 1:
            stripped = stripped.removeprefix(b"\xef\xbb\xbf")
        if not stripped:
            return None
        try:
            message = parse_line(stripped, self._next_line)
        except ProtocolError:
            deep = _head_of_deep(stripped)
            if deep is None:
                raise
            message = deep
        kind = message["type"].upper()
        if kind != RECORD:
            return Message(kind, message, self._next_line)
        stream = _record_stream(message, self._next_line)
        match = _HEAD.match(stripped)
        # If the stream is named again after the record, that applies to this line only.
        if (
            match
            and match[0] not in self._heads
            and orjson.loads(match[0] + b"{}}")["stream"] == stream
        ):
            self._heads[match[0]] = stream
            self._not_followed_by[match[0]] = re.compile(rb"\n(?!" + re.escape(match[0]) + rb")")
        return RecordLines(stream, stripped + b"\n", 1, self._next_line)


def parse_line(line: bytes, number: int) -> dict[str, Any]:
    """Parse a line as a Singer message; in a STATE, numbers and texts are kept exactly.

    Raises:
        ProtocolError: it is not JSON, not an object, or has no type.
    """
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        # Numbers beyond a float or lone surrogates: valid in a state, and in a record a matter for
        # its validation.
        odd = _exactly(line, RECORD, STATE)
        if odd is None:
            raise _malformed(number, f"is not JSON ({error}): {_shown(line)}") from error
        return odd
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise _malformed(number, f"is not a Singer message: it has no type: {_shown(line)}")
    if message["type"].upper() != STATE:
        return message
    state = _exactly(line, STATE)
    if state is None:
        raise _malformed(number, f"is a STATE that is nested too deeply: {_shown(line)}")
    return state


def _exactly(line: bytes, *kinds: str) -> dict[str, Any] | None:
    """A message of one of these types, parsed exactly; None for any other line, and for a state
    with too many levels.
    """
    try:
        message = state_from_json(line)
    except (ValueError, RecursionError):
        return None
    kind = message.get("type") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind.upper() not in kinds:
        return None
    return None if kind.upper() == STATE and is_deep_state(message.get("value")) else dict(message)


def _stream_of_long(line: bytes) -> str | None:
    """The stream of a RECORD line too long to be parsed twice; None for any other line."""
    if len(line) < LONG_LINE or not line.endswith(b"\n") or (head := _HEAD.match(line)) is None:
        return None
    if line.find(b'"stream"', head.end()) >= 0:  # perhaps that of the message, which is named twice
        return None
    message = orjson.loads(head[0] + b"{}}")
    return _record_stream(message, 0) if message["type"].upper() == RECORD else None


def _head_of_deep(line: bytes) -> dict[str, Any] | None:
    """A RECORD line that is nested too deeply to be parsed, without its record; None for any other
    line.
    """
    head = _HEAD.match(line)
    try:
        json.loads(line)
    except RecursionError:
        message = orjson.loads(head[0] + b"{}}") if head else {}
        return message if message.get("type", "").upper() == RECORD else None
    except ValueError:
        pass
    return None


def _record_stream(message: dict[str, Any], number: int) -> str:
    stream = message.get("stream")
    if not isinstance(stream, str) or not stream:
        raise _malformed(number, "is a RECORD without a stream")
    if not isinstance(message.get("record"), dict):
        raise _malformed(number, f"is a RECORD of stream {stream} without a record object")
    return stream


def _malformed(number: int, problem: str) -> ProtocolError:
    return ProtocolError(LakeCode.INPUT_MALFORMED, f"input line {number} {problem}")


def _shown(line: bytes) -> str:
    text = line[:SHOWN_CHARACTERS].decode(errors="replace")
    return repr(text + ("…" if len(line) > SHOWN_CHARACTERS else ""))


class LineReader(GenericSingerReader[bytes]):
    """Calls the handlers with each message's dictionary, or `RecordLines` for RECORDs."""

    default_input = sys.stdin.buffer

    def __init__(
        self,
        check: Callable[[], None],
        failed: Callable[[BaseException], None],
    ):
        """Prepare to read; `failed` gets an exception that ends it early.

        `check` is called at least twice a second, and may end the reading by an exception.
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
                        "input line %d: messages of type %r are unknown and are skipped",
                        item.line,
                        kind,
                    )
        except BaseException as error:
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
    with suppress(OSError):
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
