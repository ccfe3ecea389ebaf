"""The intake: any cut of the input gives the same groups, and no line is lost, changed or taken for
another.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.errors import ProtocolError
from target_spark_lake.intake.singer_lines import (
    LONG_LINE,
    DeadTapError,
    LineRouter,
    Message,
    RecordLines,
)

HOSTILE = [
    '"',
    "\\",
    '{"type":"RECORD"',
    "\u2028",
    "}",
    "\r",
    "é",
    "😀",
    "\x00",
    '","stream":"b"',
    "\n",
]
TEXT = st.lists(
    st.one_of(st.sampled_from(HOSTILE), st.characters(exclude_categories=["Cs"])), max_size=6
).map("".join)


def render(message: dict, style: int) -> bytes:
    """A message as different taps write it: compact, spaced, ASCII, other order of keys, type in
    lower case.
    """
    if style == 3:
        message = dict(reversed(message.items()))
    if style == 4:
        message = {**message, "type": message["type"].lower()}
    separators = (", ", ": ") if style in (1, 3) else (",", ":")
    line = json.dumps(message, separators=separators, ensure_ascii=style in (2, 3))
    return (" " if style == 2 else "").encode() + line.encode() + (b"\r\n" if style == 1 else b"\n")


MESSAGES = st.one_of(
    st.builds(
        lambda stream, text, n: {"type": "RECORD", "stream": stream, "record": {"a": text, "n": n}},
        st.sampled_from(["a", "b", 'q"\\', "ü"]),
        TEXT,
        st.integers(),
    ),
    st.builds(lambda text: {"type": "STATE", "value": {"x": text}}, TEXT),
    st.builds(lambda s: {"type": "SCHEMA", "stream": s, "schema": {}}, st.sampled_from(["a", "b"])),
)
INPUT = st.lists(st.tuples(MESSAGES, st.integers(0, 4)), max_size=30)


def route(pieces: list[bytes]) -> list[tuple[str, object]]:
    """All records and messages one by one, so that only their order and content count, not how they
    were grouped.
    """
    router = LineRouter()
    routed = [item for piece in pieces for item in router.feed(piece)] + list(router.close())
    flat: list[tuple[str, object]] = []
    for item in routed:
        if isinstance(item, Message):
            flat.append((item.kind, item.value))
        else:
            lines = item.data.split(b"\n")[:-1]
            assert len(lines) == item.rows
            flat += [(f"RECORD {item.stream}", json.loads(line)["record"]) for line in lines]
    return flat


@given(INPUT, st.data())
def test_any_chunking_yields_every_message_in_order(messages, data) -> None:
    """However the input is chunked, every message arrives once and in order."""
    raw = b"".join(render(message, style) for message, style in messages)
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=20).map(sorted))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    expected = [
        (f"RECORD {m['stream']}", m["record"])
        if m["type"] == "RECORD"
        else (m["type"], render_value(m, style))
        for m, style in messages
    ]
    assert route(pieces) == expected


def render_value(message: dict, style: int) -> dict:
    return json.loads(render(message, style))


def test_lines_with_known_head_are_grouped() -> None:
    lines = b"".join(
        render({"type": "RECORD", "stream": "a", "record": {"n": n}}, 0) for n in range(1000)
    )
    routed = list(LineRouter().feed(lines))
    assert [item.rows for item in routed if isinstance(item, RecordLines)] == [1, 999]
    assert b"".join(item.data for item in routed if isinstance(item, RecordLines)) == lines


def test_line_group_has_its_first_line_number() -> None:
    def record(stream: str) -> bytes:
        return render({"type": "RECORD", "stream": stream, "record": {}}, 0)

    lines = (
        record("a")
        + b"\n"
        + record("a") * 3
        + record("b")
        + render({"type": "STATE", "value": {}}, 0)
    )
    routed = list(LineRouter().feed(lines))
    assert [item.first_line if isinstance(item, RecordLines) else item.line for item in routed] == [
        1,
        3,
        6,
        7,
    ]


def test_missing_last_newline_and_bom_are_accepted() -> None:
    """The last line may lack its newline, and the first may have a byte order mark."""
    raw = b"\xef\xbb\xbf" + render({"type": "RECORD", "stream": "a", "record": {"n": 1}}, 0).rstrip(
        b"\n"
    )
    assert route([raw]) == [("RECORD a", {"n": 1})]


@pytest.mark.parametrize("size", range(1, 70))
def test_input_ending_inside_a_line_is_a_dead_tap(
    size: int,
) -> None:
    """Also in a line of a learned head, of which nobody looks at the rest before it is staged."""
    line = render(
        {"type": "RECORD", "stream": "a", "record": {"text": "some words", "n": 12345}}, 0
    )
    assert len(line) > size + 1
    router = LineRouter()
    whole = list(router.feed(line * 2 + line[:size]))
    assert sum(item.rows for item in whole if isinstance(item, RecordLines)) == 2
    with pytest.raises(DeadTapError, match="LAKE-005"):
        list(router.close())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"hello\n", "input line 2 is not JSON"),
        (b'{"type":"RECORD","stream":"b","record":{"n":\n', "input line 2 is not JSON"),
        (b"[1]\n", "input line 2 is not a Singer message"),
        (b'{"stream":"b"}\n', "input line 2 is not a Singer message"),
        (b'{"type":"RECORD","record":{}}\n', "input line 2 is a RECORD without a stream"),
        (b'{"type":"RECORD","stream":"b","record":[]}\n', "without a record object"),
        (b'{"type":"RECORD","stream":"b","record":{"n":NaN}}\n', "input line 2 is not JSON"),
    ],
)
def test_malformed_line_is_named_by_number(line: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        route([render({"type": "RECORD", "stream": "a", "record": {}}, 0) + line])


def test_line_naming_two_streams_misroutes_no_other() -> None:
    """A line that names two streams does not misroute any other line."""
    head = b'{"type":"RECORD","stream":"t","record":'
    found = route(
        [head + b'{"id":1},"stream":"s"}\n', head + b'{"id":2}}\n', head + b'{"id":3}}\n']
    )
    assert found == [("RECORD s", {"id": 1}), ("RECORD t", {"id": 2}), ("RECORD t", {"id": 3})]


def test_long_line_is_parsed_only_if_ambiguous() -> None:
    """A long line is routed unparsed unless it may name its stream twice."""
    head, text = b'{"type":"RECORD","stream":"t","record":', b'{"id":"' + b"x" * LONG_LINE + b'"}'
    found = route([head + text + b',"stream":"s"}\n', head + text + b"}\n", head + b'{"id":2}}\n'])
    assert [name for name, _ in found] == ["RECORD s", "RECORD t", "RECORD t"]
    # What is not JSON is found by the stage that parses it, as for every line of a learned head.
    ((stream, data, rows),) = (
        (each.stream, each.data, each.rows) for each in LineRouter().feed(head + text + b"\n")
    )
    assert (stream, data, rows) == ("t", head + text + b"\n", 1)
