"""What monitoring gets of a run: `metrics_file`, and the SDK's METRIC lines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from singer_spark.errors import ProtocolError
from singer_spark.program.progress import Progress
from target.loading import Lake, record, schema, state, to_bytes

HOSTILE = 'or"ders\\\n{ü}'
NUMBER = {"id": {"type": "integer"}}
HOUR = 3_600


def bookmarks(**values: str) -> dict[str, object]:
    return {
        "bookmarks": {
            name: {"replication_key": "at", "replication_key_value": each}
            for name, each in values.items()
        }
    }


def reported(path: Path) -> dict[tuple[str, str | None], float]:
    """Name and stream to value, as both kinds of readers of such a file find them."""
    found = [
        {
            (s.name, s.labels.get("stream")): s.value
            for family in parse(path.read_text())
            for s in family.samples
        }
        for parse in (openmetrics, prometheus)
    ]
    assert found[0] == found[1]
    return found[0]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_metrics_file_has_rows_bytes_lag_and_duration(lake: Lake, tmp_path: Path) -> None:
    """A run writes its rows, bytes, lag and duration to a metrics file."""
    path = tmp_path / "spark_lake.prom"
    path.write_text("what stood there")
    began = datetime.now(UTC)
    mark = (began - timedelta(hours=1)).isoformat()
    lake.load(
        schema(HOSTILE, NUMBER),
        record(HOSTILE, id=1),
        record(HOSTILE, id=2),
        state(**bookmarks(**{HOSTILE: mark, "numbered": "340"})),
        metrics_file=str(path),
    )
    ended, found = datetime.now(UTC), reported(path)
    assert found["spark_lake_run_success", None] == 1
    assert found["spark_lake_stream_records", HOSTILE] == 2
    assert found["spark_lake_stream_rejected_records", HOSTILE] == 0
    (file,) = (lake.folder / "raw").rglob("*.parquet")
    assert found["spark_lake_stream_bytes", HOSTILE] == file.stat().st_size
    longest = (ended - began).total_seconds()
    assert 0 < found["spark_lake_run_duration_seconds", None] <= longest
    assert HOUR <= found["spark_lake_stream_lag_seconds", HOSTILE] <= HOUR + longest
    watermark = found["spark_lake_stream_watermark_timestamp_seconds", HOSTILE]
    assert watermark == pytest.approx(began.timestamp() - HOUR, abs=1e-3)
    assert ("spark_lake_stream_lag_seconds", "numbered") not in found
    assert (
        began.timestamp()
        <= found["spark_lake_last_success_timestamp_seconds", None]
        <= ended.timestamp()
    )
    assert 'pipeline="test"' in path.read_text()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_failed_run_metrics_keep_last_success(lake: Lake, tmp_path: Path) -> None:
    """A failed run's metrics show the last success and the watermark's current age."""
    path = tmp_path / "spark_lake.prom"
    mark = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    with pytest.raises(ProtocolError):
        lake.load(schema("s", NUMBER), record("s", id=2), b"no message\n", metrics_file=str(path))
    first = reported(path)
    assert first["spark_lake_run_success", None] == 0
    assert ("spark_lake_last_success_timestamp_seconds", None) not in first
    lake.load(
        schema("s", NUMBER), record("s", id=1), state(**bookmarks(s=mark)), metrics_file=str(path)
    )
    good = reported(path)
    with pytest.raises(ProtocolError):
        lake.load(schema("s", NUMBER), record("s", id=2), b"no message\n", metrics_file=str(path))
    failed = reported(path)
    assert failed["spark_lake_run_success", None] == 0
    success = good["spark_lake_run_end_timestamp_seconds", None]
    assert failed["spark_lake_last_success_timestamp_seconds", None] == pytest.approx(
        success, abs=600
    )
    assert failed["spark_lake_stream_lag_seconds", "s"] > good["spark_lake_stream_lag_seconds", "s"]
    assert ("spark_lake_stream_records", "s") not in failed


def test_unwritable_metrics_file_is_only_a_warning(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A metrics file that cannot be written is logged and fails no run."""
    with caplog.at_level(logging.WARNING):
        lake.load(
            schema("s", NUMBER), record("s", id=1), metrics_file=f"{tmp_path}/none/spark_lake.prom"
        )
    assert "could not be written: No such file or directory" in caplog.text
    assert lake.rows("s", "id") == [(1,)]


@pytest.mark.slow
def test_run_logs_sdk_metrics_per_stream(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "target.json").write_text(
        json.dumps({"bucket": str(lake.folder), "pipeline": "test"})
    )
    mark = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    lines = [record("s", id=number) for number in range(3)]
    done = subprocess.run(
        [
            Path(sys.executable).parent / "target-spark-lake",
            "--config",
            tmp_path / "target.json",
            "--log-level",
            "debug",
        ],
        input=to_bytes(schema("s", NUMBER), *lines, state(**bookmarks(s=mark))),
        capture_output=True,
        timeout=300,
        check=True,
    )
    points = [
        json.loads(line.split(b"METRIC: ", 1)[1])
        for line in done.stderr.splitlines()
        if b"METRIC: " in line
    ]
    assert {each["tags"]["stream"] for each in points} == {"s"}
    values = {each["metric"]: each["value"] for each in points}
    assert values["record_count"] == 3
    assert values["byte_count"] > 0
    assert values["sync_duration"] >= 0
    assert values["watermark_lag"] == pytest.approx(HOUR, rel=0.5)


def test_progress_percentage_uses_tap_estimate(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    monkeypatch.setattr(Progress, "phase", lambda self, *_, **__: said.append(self.line()))
    lake.load(
        {**schema("s", NUMBER), "row_estimate": 4},
        record("s", id=1),
        {**schema("t", NUMBER), "row_estimate": "?"},
    )
    assert "s: 1 records loaded (~25 %), 55 B" in said
