"""Whether a stream of a foreign tap is whole or a delta, and that no delta overwrites a table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from singer_spark.errors import ConfigurationError
from target.formats.merging.keyed_items import ITEM, item, lake
from target.loading import Lake, schema
from target_spark_lake.ops import spark_lake

__all__ = ["lake"]


def foreign(
    method: str, bookmark_properties: list, saved: dict | None
) -> tuple[list[dict], list[dict]]:
    """What a foreign tap sends before its records, and behind them."""
    message = schema("s", ITEM, ("id",), **{"x-load-method": method})
    message["bookmark_properties"] = bookmark_properties
    return [message, schema("beside", ITEM)], [] if saved is None else [
        {"type": "STATE", "value": saved}
    ]


# What a run is, is resolved before any format is asked: each format and each case once.
FOREIGN = pytest.mark.parametrize(
    ("lake", "bookmark_properties", "saved", "whole"),
    [
        ("parquet", [], {"bookmarks": {"beside": {"replication_key_value": 1}}}, True),
        ("delta", ["clock"], {}, False),
        ("iceberg", [], {"bookmarks": {"its_own_name": {"lsn": 4}}}, False),
    ],
    indirect=["lake"],
)


@FOREIGN
def test_foreign_stream_is_full_unless_marked_delta(
    lake: Lake, bookmark_properties: list, saved: dict, whole: bool
) -> None:
    """A foreign tap's stream is full unless something marks it as a delta."""
    before, behind = foreign("overwrite-delete-stale", bookmark_properties, saved)
    for rows in ([item(1, 1, "a"), item(2, 1, "a")], [item(2, 2, "b")]):
        lake.load(*before, *rows, *behind)
    assert lake.rows("s", "id") == ([(2,)] if whole else [(1,), (2,)])


@pytest.mark.parametrize("silent", ["first", "last"])
def test_stream_is_delta_if_any_schema_is_delta(lake: Lake, silent: str) -> None:
    """A schema without bookmark_properties, first or last, does not make the stream whole."""
    (says, beside), behind = foreign("overwrite-delete-stale", ["clock"], {"bookmarks": {}})
    silence = foreign("overwrite-delete-stale", [], None)[0][0]
    lake.load(says, beside, *(item(n, 1, "a") for n in range(3)), *behind)
    first, last = (silence, says) if silent == "first" else (says, silence)
    lake.load(first, beside, item(2, 9, "new"), last, item(2, 4, "old"), *behind)
    # The cursor holds like the extent: both are said by bookmark_properties.
    assert lake.rows("s", "id, clock, name") == [(0, 1, "a"), (1, 1, "a"), (2, 9, "new")]


@FOREIGN
def test_overwrite_by_possible_delta_is_refused(
    lake: Lake, bookmark_properties: list, saved: dict, whole: bool
) -> None:
    """An overwrite is refused where a foreign stream may be a delta."""
    before, behind = foreign("overwrite", bookmark_properties, saved)
    lake.load(*before, *(item(n, 1, "a") for n in range(5)), *behind)
    files = lake.files()
    for rows, left in (([item(2, 2, "b")], [(2,)]), ([], [])):
        if whole:
            lake.load(*before, *rows, *behind)
            assert lake.rows("s", "id") == left
        else:
            with pytest.raises(ConfigurationError, match="LAKE-042"):
                lake.load(*before, *rows, *behind)
            assert lake.files() == files
            assert len(lake.rows("s")) == 5


def test_foreign_delta_overwrite_is_refused_in_batches(lake: Lake, tmp_path: Path) -> None:
    """An overwrite by a foreign delta is refused in batches too."""
    before, behind = foreign("overwrite", [], {"bookmarks": {"its_own_name": {"lsn": 4}}})
    lake.load(*before, *(item(n, 1, "a") for n in range(5)), *behind)
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id": 9, "clock": 9, "name": "z"}\n'))
    batch = {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "jsonl", "compression": "gzip"},
        "manifest": [file.as_uri()],
    }
    with pytest.raises(ConfigurationError, match=r"LAKE-042 .*its_own_name"):
        lake.load(*before, batch, *behind, batch_roots=[str(tmp_path)])
    assert len(lake.rows("s")) == 5


def test_known_delta_is_refused_before_any_record(
    lake: Lake,
) -> None:
    """A delta that its schema reveals is refused before any record is read."""
    before, behind = foreign("overwrite", ["clock"], {})
    lake.load(*before, item(1, 1, "a"), *behind)
    with pytest.raises(ConfigurationError, match=r"LAKE-042 .*bookmark_properties"):
        lake.load(*before, b"this line is not even read\n")


def test_foreign_stream_is_full_after_state_reset(lake: Lake) -> None:
    """After a state reset, a foreign stream is full for one run."""
    before, behind = foreign(
        "overwrite", ["clock"], {"bookmarks": {"s": {"replication_key_value": 1}}}
    )
    lake.load(*before, item(1, 1, "a"), *behind)
    assert reset_state(lake) == 0
    lake.load(*before, item(2, 1, "a"), *behind)
    assert lake.rows("s", "id") == [(2,)]
    with pytest.raises(ConfigurationError, match="LAKE-042"):
        lake.load(*before, item(3, 1, "a"), *behind)


def reset_state(lake: Lake) -> int:
    config = lake.folder.with_suffix(".json")
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    return spark_lake.command(["state", "reset", "--config", str(config)])
