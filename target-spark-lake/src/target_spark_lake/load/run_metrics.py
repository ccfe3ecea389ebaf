"""Metrics of a run: the SDK's METRIC lines, and `metrics_file` in OpenMetrics' text format.

All of the file's metrics are gauges, so that node_exporter's textfile collector accepts it too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.core.scratch import write_whole
from singer_spark.program.logs import OwnMetric, log_metric
from target_spark_lake.commit.bookmarks import lags_at

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.table.changes import StreamReport

logger = logging.getLogger(__name__)
PREFIX = "spark_lake"


def emit_success(
    run: PipelineRun,
    reports: Mapping[str, StreamReport],
    state: Mapping[str, Any] | None,
    metrics_file: str | None,
) -> None:
    """Emit the metrics of a committed run, given the state after it.

    A file that can't be written is only logged.
    """
    now = datetime.now(UTC)
    lags = lags_at(state, now)
    for stream, lag in lags.items():
        if stream in reports:
            log_metric("gauge", OwnMetric.WATERMARK_LAG, lag, stream)
    if metrics_file:
        _write(metrics_file, _text(run, now, now, reports, lags))


def emit_failure(run: PipelineRun, metrics_file: str | None) -> None:
    """Emit the metrics of a failed run: when the last successful one ended, and the current lag of
    the watermarks.
    """
    if metrics_file:
        now = datetime.now(UTC)
        last = run.recovery.last
        success = datetime.fromisoformat(last.body["committed_at"]) if last else None
        _write(metrics_file, _text(run, now, success, None, lags_at(run.committed_state(), now)))


def _text(
    run: PipelineRun,
    now: datetime,
    success: datetime | None,
    reports: Mapping[str, StreamReport] | None,
    lags: Mapping[str, float],
) -> bytes:
    from prometheus_client import CollectorRegistry, Gauge
    from prometheus_client.openmetrics.exposition import generate_latest

    registry, pipeline = CollectorRegistry(), run.layout.pipeline

    def gauge(name: str, text: str, value: float) -> None:
        Gauge(f"{PREFIX}_{name}", text, ["pipeline"], registry=registry).labels(pipeline).set(value)

    def gauges(name: str, text: str, values: Mapping[str, float]) -> None:
        found = Gauge(f"{PREFIX}_{name}", text, ["pipeline", "stream"], registry=registry)
        for stream, value in values.items():
            found.labels(pipeline, stream).set(value)

    gauge("run_success", "1 if the last run succeeded, else 0.", float(reports is not None))
    gauge("run_end_timestamp_seconds", "When the last run ended.", now.timestamp())
    took = (now - run.started_at).total_seconds()
    gauge("run_duration_seconds", "How long the last run took.", took)
    if success is not None:
        gauge(
            "last_success_timestamp_seconds", "When the last good run ended.", success.timestamp()
        )
    if reports is not None:
        for name, text, amount in (
            ("stream_records", "Records published by the last run.", "records"),
            ("stream_bytes", "Bytes of the files that the last run wrote.", "bytes"),
            ("stream_rejected_records", "Records quarantined.", "rejected"),
        ):
            gauges(name, text, {stream: getattr(each, amount) for stream, each in reports.items()})
    gauges("stream_lag_seconds", "How far the watermark lay behind the end of the last run.", lags)
    marks = {stream: now.timestamp() - lag for stream, lag in lags.items()}
    text = "The watermark, where the replication key is a time."
    gauges("stream_watermark_timestamp_seconds", text, marks)
    return bytes(generate_latest(registry))  # type: ignore[no-untyped-call]


def _write(metrics_file: str, text: bytes) -> None:
    try:
        write_whole(Path(metrics_file).expanduser(), text)
    except OSError as error:
        logger.warning("metrics_file %s could not be written: %s", metrics_file, error.strerror)
