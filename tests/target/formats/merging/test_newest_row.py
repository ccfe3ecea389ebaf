"""Which of the rows of a key is the newest: by its cursor, or by when it was received."""

from __future__ import annotations

import pytest

from target.formats.merging.keyed_items import INT, ITEM, item, items, lake
from target.loading import Lake, record, schema

pytestmark = pytest.mark.usefixtures("engine")

__all__ = ["lake"]


def test_late_committed_row_wins_over_earlier_rows(lake: Lake) -> None:
    """Its database holds no newer one, whatever the cursors say; what comes after it is compared as
    usual.
    """
    late = items(**{"x-late-rows": True})
    lake.load(items(), item(1, 10, "a"), item(2, 10, "a"), item(3, 10, "a"), item(4, 10, "a"))
    rows = [
        item(1, 5, "late"),
        item(2, 5, "late"),
        item(2, 4, "later"),
        item(3, 20, "late"),
        item(5, 1, "new"),
    ]
    after = [item(1, 9, "old"), item(2, 11, "newer"), item(4, 9, "old")]
    lake.load(late, *rows, items(), *after)
    assert lake.rows("s", "id, clock, name") == [
        (1, 5, "late"),
        (2, 11, "newer"),
        (3, 20, "late"),
        (4, 10, "a"),
        (5, 1, "new"),
    ]


def test_greatest_cursor_wins_then_last_received(lake: Lake) -> None:
    """By every method, because there is one conflict; the test against a dict shows which method
    keeps what.
    """
    rows = [
        item(1, 5, "a"),
        item(1, 7, "b"),
        item(1, 6, "c"),
        item(2, 1, "d"),
        item(2, 1, "e"),
        item(3, None, "f"),
    ]
    lake.load(items(), *rows, item(3, None, "g"), item(4, 1, "h"), item(4, None, "i"))
    assert lake.rows("s", "id, name") == [(1, "b"), (2, "e"), (3, "g"), (4, "h")]
    lake.load(
        items(),
        item(1, 6, "late"),
        item(2, 1, "again"),
        item(3, 0, "at last"),
        item(4, None, "late"),
    )
    assert lake.rows("s", "id, name") == [(1, "b"), (2, "again"), (3, "at last"), (4, "h")]


def test_last_received_wins_without_a_cursor(lake: Lake) -> None:
    """Without a cursor the last received row wins; an option can name a cursor."""
    lake.load(items(cursor=False), item(1, 9, "a"), item(1, 1, "b"))
    lake.load(items(cursor=False), item(1, 0, "c"))
    assert lake.rows("s", "id, name") == [(1, "c")]
    lake.load(items(), item(1, 9, "b"), item(1, 99, "a"), stream_options={"s": {"cursor": "name"}})
    assert lake.rows("s", "id, name") == [(1, "c")]


@pytest.mark.parametrize("engine", ["local", "local in pieces"], indirect=True)
def test_last_received_wins_for_source_ordered_cursor(lake: Lake) -> None:
    """Where only the source can compare cursors, the last received row wins.

    The engines then see no cursor at all.
    """
    source = items(**{"x-cursor-order": "source"})
    lake.load(items(), item(1, 9, "a"))
    lake.load(source, item(1, 5, "b"), item(1, 3, "c"))
    assert lake.rows("s", "id, name") == [(1, "c")]
    lake.load(items(), source, item(1, 1, "d"))
    assert lake.rows("s", "id, name") == [(1, "d")]
    lake.load(source, item(1, 0, "e"), stream_options={"s": {"cursor": "clock"}})
    assert lake.rows("s", "id, name") == [(1, "d")]


def test_numeric_text_cursor_compares_as_a_number(lake: Lake) -> None:
    """A numeric cursor that is stored as text is compared as a number."""
    options = {"s": {"columns": {"clock": "string"}}}
    lake.load(items(), item(1, 9, "a"), stream_options=options)
    lake.load(items(), item(1, 10, "b"), item(1, 9, "late"), stream_options=options)
    assert lake.rows("s", "id, clock, name") == [(1, "10", "b")]


# PySpark leaves the sockets of its answers to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_input_order_holds_across_validation_paths(lake: Lake) -> None:
    """Lines are Spark's, but 1.0 for an integer is jsonschema's; both are in the middle of the
    batch.
    """
    properties = {**ITEM, "more": {"type": ["object", "null"], "properties": {"n": INT}}}
    message = schema("s", properties, ("id",), **{"x-load-method": "append-dedup"})
    lines = []
    for turn in range(6):
        clocks = [1.0 if (turn + n) % 3 == 0 else 1 for n in range(4)]
        lines += [
            record("s", id=n, clock=clock, name=f"{turn}", more={"n": n})
            for n, clock in enumerate(clocks)
        ]
    lines += [
        record("s", id=0, clock=1.0, name="last", more=None),
        record("s", id=1, clock=1.0, name="lost"),
    ]
    lake.load(message, *lines, record("s", id=1, clock=1, name="last"), staging="spark")
    assert lake.rows("s", "id, name") == [(0, "last"), (1, "last"), (2, "5"), (3, "5")]
    assert len(lake.rows("s__history")) == len(lines) + 1
    assert [
        name for table in ("s", "s__history") for name in lake.types(table) if "spark_lake" in name
    ] == []
