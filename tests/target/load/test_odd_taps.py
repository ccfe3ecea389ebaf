"""What taps send that nobody expects: the run takes it, or says what to do, and nothing is stuck
forever.
"""

from __future__ import annotations

import pytest

from singer_spark.errors import ConfigurationError, ProtocolError, RecordError
from target.loading import JSON, Lake, record, schema, state

pytestmark = pytest.mark.usefixtures("without_jvm")
ID: JSON = {"id": {"type": "integer"}}
ANY: JSON = {**ID, "x": {}}
MARKED: JSON = {
    "_sdc_extracted_at": {"type": "string"},
    "_sdc_sequence": {"type": "integer"},
    "_sdc_batched_at": {},
}


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


def test_target_sets_declared_metadata_columns(lake: Lake, monkeypatch) -> None:
    """Metadata values of the tap are replaced, even under a closed schema."""
    closed = schema("s", {**ID, **MARKED}, additionalProperties=False)
    values = {"_sdc_extracted_at": "2020-01-01T00:00:00Z", "_sdc_sequence": 5}
    lake.load(
        closed, record("s", id=1, **values), record("s", id=2, **values, _sdc_batched_at={"a": 1})
    )
    assert lake.rows("s", "id") == [(1,), (2,)]
    assert all(row[0].year > 2020 for row in lake.rows("s", "_sdc_batched_at"))
    with pytest.raises(RecordError, match="LAKE-020"):
        lake.load(closed, record("s", id=1, **values, more=1))


def test_usual_metadata_columns_skip_validator(lake: Lake, monkeypatch) -> None:
    """Metadata columns of the usual types pass the bulk check."""
    monkeypatch.setattr("target_spark_lake.validate.record_validator.RecordValidator.message", None)
    closed = schema("s", {**ID, **MARKED}, additionalProperties=False)
    lake.load(closed, record("s", id=1, _sdc_extracted_at="2020-01-01T00:00:00Z", _sdc_sequence=5))
    assert lake.rows("s", "id") == [(1,)]


ODD = {
    "half a surrogate pair": b'"\\ud83d"',
    "a number of 5,000 digits": b"9" * 5000,
    "an exponent beyond all": b"1e99999999999999999999999",
    "nested 1,000 deep": b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "nested 200,000 deep": b"[" * 200_000 + b"]" * 200_000,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd", "is_first"), [(odd, first) for odd in ODD for first in (0, 1)][:-1]
)
def test_odd_record_is_invalid(lake: Lake, odd: str, is_first: bool) -> None:
    """This holds even for the first record, from which the intake learns the layout."""
    line = b'{"type": "RECORD", "stream": "s", "record": {"id":2,"x":' + ODD[odd] + b"}}\n"
    line = line.replace(b": ", b":").replace(b", ", b",") if is_first else line
    good = [record("s", id=1, x="a"), record("s", id=3, x="b")]
    with pytest.raises(RecordError, match="input line 3: stream s: a record"):
        lake.load(schema("s", ANY), good[0], line, good[1], state(n=1))
    lake.load(schema("s", ANY), good[0], line, good[1], state(n=1), on_invalid_record="quarantine")
    assert lake.rows("s", "id") == [(1,), (3,)]
    (rejected,) = (lake.folder / ".dataspoc/rejected").rglob("*.jsonl")
    (kept,) = rejected.read_bytes().splitlines()
    assert (
        ODD[odd].replace(b'"', b"") in kept.replace(b'\\"', b"").replace(b'"', b"")
        or b"ud83d" in kept
    )
    assert kept.startswith(b'{"record": ')


@pytest.mark.parametrize("odd", [b"NaN", b"{", b'"\xff"'])
def test_invalid_json_is_not_quarantined(lake: Lake, odd: bytes) -> None:
    line = b'{"type":"RECORD","stream":"s","record":{"id":2,"x":' + odd + b"}}\n"
    with pytest.raises(ProtocolError, match="LAKE-001"):
        lake.load(schema("s", ANY), record("s", id=1), line, on_invalid_record="quarantine")


def test_unusable_stream_name_is_refused(lake: Lake) -> None:
    """A name that no folder can have is refused with a remedy."""
    name = "\u6f22" * 40
    with pytest.raises(ConfigurationError, match=r"LAKE-053 .*360.*stream_maps"):
        lake.load(schema(name, ID), record(name, id=1))
    lake.load(schema(name, ID), record(name, id=1), stream_maps={name: {"__alias__": "short"}})
    assert lake.rows("short", "id") == [(1,)]


def test_undeclared_members_are_dropped(lake: Lake, caplog) -> None:
    """Undeclared members are dropped, with one warning per stream."""
    lines = [record("s", id=n, more=1, _sdc_sequence=1, other={"a": 1}) for n in range(3)]
    lake.load(schema("s", ID), schema("t", ID), *lines, record("t", id=1), *lines, state(n=1))
    assert not {"more", "other"} & set(lake.types("s"))
    reported = [each for each in caplog.messages if "does not declare" in each]
    assert len(reported) == 1
    assert reported[0].startswith(
        "stream s: its records have more, other, which its SCHEMA does not declare"
    )
