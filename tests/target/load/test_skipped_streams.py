"""A tap that announced itself gives a stream up: nothing of it is published, under whatever name it
is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ProtocolError
from target.loading import Lake, record, schema, state

FULL = {"x-replication-method": "FULL_TABLE", "x-extent": "full"}
PROPERTIES = {"id": {"type": "integer"}}
OPENING = {"type": "STATE", "value": {}, "final": False, "start": "first"}


def sent(stream: str, *ids: int) -> list[dict[str, Any]]:
    return [
        schema(stream, PROPERTIES, ("id",), **FULL),
        *(record(stream, id=number) for number in ids),
    ]


def given_up(*streams: str, **more: Any) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {}}, "skipped": list(streams), **more}


def tables(lake: Lake) -> list[str]:
    return sorted(path.name for path in (lake.folder / "raw").iterdir())


@pytest.mark.parametrize(
    ("maps", "table"), [({}, "a"), ({"stream_maps": {"a": {"__alias__": "renamed"}}}, "renamed")]
)
def test_skipped_stream_keeps_its_mapped_table(
    tmp_path: Path, maps: dict[str, Any], table: str
) -> None:
    """A stream that the tap skips keeps its table, under its mapped name too."""
    lake = Lake(tmp_path)
    lake.load(
        OPENING, *sent("a", 1, 2), *sent("b", 1), {**state(bookmarks={}), "final": True}, **maps
    )
    assert tables(lake) == sorted(["b", table])

    opening = {**OPENING, "start": "full"}
    lake.load(
        opening, *sent("a", 3), given_up("a"), *sent("b", 4), given_up("a", final=True), **maps
    )

    assert lake.rows(table, "id") == [(1,), (2,)]
    assert lake.rows("b", "id") == [(4,)]


def test_new_skipped_stream_has_no_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(
        OPENING,
        *sent("a", 1),
        given_up("a", "unheard"),
        *sent("b", 1),
        given_up("a", "unheard", final=True),
    )
    assert tables(lake) == ["b"]


def test_record_after_skip_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with pytest.raises(ProtocolError, match=r"LAKE-004 .*a"):
        lake.load(
            OPENING, *sent("a", 1), given_up("a"), record("a", id=2), given_up("a", final=True)
        )
    assert not (tmp_path / "raw").exists()


def test_foreign_tap_skip_is_ignored(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(*sent("a", 1), given_up("a"))
    assert lake.rows("a", "id") == [(1,)]
