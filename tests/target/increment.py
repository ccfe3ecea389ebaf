"""A run of three streams with a STATE after each part: what a tap sends, and how the lake looks
before and after.
"""

from __future__ import annotations

from pathlib import Path

from target.loading import JSON, Lake, record, schema, state

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
GROWS = schema(
    "grows", {"id": INT, "name": TEXT}, ("id",), **{"x-replication-method": "INCREMENTAL"}
)
WHOLE = schema(
    "whole", {"id": INT}, ("id",), **{"x-replication-method": "FULL_TABLE", "x-extent": "full"}
)
EMPTY = schema(
    "empty", {"id": INT}, ("id",), **{"x-replication-method": "FULL_TABLE", "x-extent": "full"}
)


def lake_with_two_rows(folder: Path) -> Lake:
    """A lake in which rows 1 and 2 of both tables are saved."""
    lake = Lake(folder)
    base = [
        GROWS,
        WHOLE,
        *(record(stream, id=n) for n in (1, 2) for stream in ("grows", "whole")),
        state(grows=2),
    ]
    lake.load(*lake.announced(base))
    return lake


def increment() -> list[JSON]:
    """Rows 3 to 7 of `grows`, all rows of `whole` again, and none of `empty`, with a STATE after
    each part of them.
    """
    return [
        GROWS,
        *(record("grows", id=n, name="new") for n in (3, 4)),
        state(grows=4),
        *(record("grows", id=n) for n in (5, 6)),
        state(grows=6),
        record("grows", id=7),
        state(grows=7),
        WHOLE,
        *(record("whole", id=n) for n in (1, 2, 3)),
        state(grows=7, whole=3),
        *(record("whole", id=n) for n in (4, 5)),
        state(grows=7, whole=5),
        EMPTY,
        state(grows=7),
    ]


def assert_as_before(lake: Lake) -> None:
    assert lake.state() == {"grows": 2}
    assert lake.rows("grows", "id") == lake.rows("whole", "id") == [(1,), (2,)]


def assert_exact(lake: Lake) -> None:
    """The increment arrived once, and nothing else is left."""
    assert lake.rows("grows", "id, name") == [
        (n, "new" if n in (3, 4) else None) for n in range(1, 8)
    ]
    assert lake.rows("whole", "id") == [(n,) for n in range(1, 6)]
    assert lake.rows("empty") == []
    assert lake.types("empty")["id"] == "BIGINT"
    assert lake.state() == {"grows": 7}
    assert [path for path in lake.files() if not path.startswith("raw/")] == [
        ".dataspoc/state/test/state.json"
    ]
