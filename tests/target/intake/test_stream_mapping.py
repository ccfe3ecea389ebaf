"""Stream maps and flattening: what they can't map is reported, never left out."""

from __future__ import annotations

import pytest

from singer_spark.errors import ProtocolError
from target.loading import Lake, record, schema, state
from target_spark_lake.load.batches import RecordBeforeSchemaError

pytestmark = pytest.mark.usefixtures("without_jvm")

ID = {"id": {"type": "integer"}}
MAPPED = [
    {"stream_maps": {"s": {"more": "'x'"}}},
    {"flattening_enabled": True, "flattening_max_depth": 2},
]
BATCH = {
    "type": "BATCH",
    "stream": "s",
    "encoding": {"format": "jsonl"},
    "manifest": ["file:///nowhere"],
}


@pytest.mark.parametrize("settings", MAPPED)
@pytest.mark.parametrize("early", [record("s", id=1), BATCH], ids=["record", "batch"])
def test_data_before_schema_is_refused(tmp_path, early: dict, settings: dict) -> None:
    """A RECORD or BATCH before its SCHEMA is refused with stream maps and flattening too."""
    lake = Lake(tmp_path / "lake")
    with pytest.raises(RecordBeforeSchemaError, match="LAKE-003"):
        lake.load(
            schema("other", ID), early, schema("s", ID), record("s", id=2), state(x=1), **settings
        )
    assert lake.state() is None


@pytest.mark.parametrize("settings", MAPPED)
@pytest.mark.parametrize("bad", [b'{"id": NaN}', b'{"id": 1', b'{"id": "\\ud83d"}'])
def test_bad_line_is_reported_with_number(tmp_path, bad: bytes, settings: dict) -> None:
    line = b'{"type":"RECORD","stream":"s","record":' + bad + b"}\n"
    good = b'{"type":"RECORD","stream":"s","record":{"id":\r1}}\n'
    with pytest.raises(ProtocolError, match="LAKE-001"):
        Lake(tmp_path / "lake").load(schema("s", ID), good, good, line, **settings)
