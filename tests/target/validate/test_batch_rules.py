"""Records of batches that are invalid: reported, or quarantined, like those that come one by
one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from singer_spark.errors import RecordError
from target.batch_making import BatchRun, S, numbers
from target.loading import Lake, schema

pytestmark = pytest.mark.usefixtures("without_jvm")
TEXT = {"type": ["string", "null"]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_invalid_batch_records_are_quarantined(
    spark: object, lake: Lake, tap: BatchRun, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each is stored with its path and the reason."""
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    strict = schema("s", {"id": {"type": "integer", "minimum": 0}, "name": TEXT}, ("id",))
    rows = [{"id": 1, "name": "x"}, {"id": -1, "name": "x"}, {"id": 3, "name": "x"}]
    batch = tap.lines("s", rows) if kind == "jsonl" else tap.parquet("s", numbers(1, -1, 3))
    lake.load(strict, batch, on_invalid_record="quarantine")
    assert lake.rows("s", "id") == [(1,), (3,)]
    (rejected,) = (lake.folder / ".dataspoc/rejected/test").rglob("s.jsonl")
    (line,) = map(json.loads, rejected.read_text().splitlines())
    assert (line["record"]["id"], line["path"], "minimum" in line["error"]) == (-1, "/id", True)


def test_invalid_record_error_names_line_and_file(
    spark: object, lake: Lake, tap: BatchRun, monkeypatch
) -> None:
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    with pytest.raises(RecordError, match=r"LAKE-020 .*x"):
        lake.load(S, tap.lines("s", [{"id": 1}, {"id": "x"}]))
