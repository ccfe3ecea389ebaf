"""The SDK's METRIC lines, for work that bypasses the SDK's own counting."""

from __future__ import annotations

import os
import sys
from enum import StrEnum


class OwnMetric(StrEnum):
    """Metrics the SDK has no name for: bytes, and a watermark's lag in seconds."""

    BYTE_COUNT = "byte_count"
    WATERMARK_LAG = "watermark_lag"


RECORD_COUNT, SYNC_DURATION = "record_count", "sync_duration"


def log_metric(kind: str, metric: OwnMetric | str, value: float, stream: str) -> None:
    """Log a counter, timer or gauge as the SDK does, for programs: not on a terminal, nor unless
    the SDK is loaded.
    """
    metrics = sys.modules.get("singer_sdk.metrics")
    if metrics is None or sys.stderr.isatty():
        return
    named = metric if isinstance(metric, OwnMetric) else metrics.Metric(metric)
    tags = {metrics.Tag.STREAM: stream, metrics.Tag.PID: os.getpid()}
    metrics.log(metrics.get_metrics_logger(), metrics.Point(kind, named, value, tags))
