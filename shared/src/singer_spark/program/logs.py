"""Logging of both programs: lines on standard error, or what the logging config named by
`SINGER_SDK_LOG_CONFIG` says.
"""

from __future__ import annotations

import logging
import logging.config
import os
import sys
from enum import StrEnum
from pathlib import Path

from singer_spark.core.lean_imports import import_singer_sdk
from singer_spark.errors import redact_logs


class OwnMetric(StrEnum):
    """Metrics the SDK has no name for: bytes, and a watermark's lag in seconds."""

    BYTE_COUNT = "byte_count"
    WATERMARK_LAG = "watermark_lag"


RECORD_COUNT, SYNC_DURATION = "record_count", "sync_duration"


def log_metric(kind: str, metric: OwnMetric | str, value: float, stream: str) -> None:
    """Log a counter, timer or gauge as the SDK does, for programs: neither on a terminal nor if the
    SDK is not loaded.
    """
    metrics = sys.modules.get("singer_sdk.metrics")
    if metrics is None or sys.stderr.isatty():
        return
    named = metric if isinstance(metric, OwnMetric) else metrics.Metric(metric)
    tags = {metrics.Tag.STREAM: stream, metrics.Tag.PID: os.getpid()}
    metrics.log(metrics.get_metrics_logger(), metrics.Point(kind, named, value, tags))


LOG_CONFIG = "SINGER_SDK_LOG_CONFIG"
LEVELS = ("debug", "info", "warning", "error")
# Meltano writes a logging config for each run, at its own level.
MELTANO_RUNS = "/.meltano/run/"
CHATTY = ("py4j", "botocore", "fsspec", "s3fs", "urllib3", "asyncio", "pyiceberg")


def set_up_logs(program: str, level: str | None) -> None:
    """Set up logging, with secrets masked.

    Args:
        program: The program's name.
        level: One of `LEVELS`, by default from the environment; singer-sdk's own lines, METRIC too,
            need `debug`, or a logging config written by the user.
    """
    own = f"{program.upper().replace('-', '_')}_LOGLEVEL"
    named = map(os.environ.get, (own, "LOGLEVEL", "SINGER_SDK_LOG_LEVEL"))
    level = level or next(filter(None, named), "info")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if LOG_CONFIG in os.environ:
        # Meltano's config names the SDK's formatter.
        import_singer_sdk()
    leave_out_libraries(sdk=not logs_as_configured() or MELTANO_RUNS in os.environ[LOG_CONFIG])
    redact_logs()


def leave_out_libraries(*, sdk: bool = True) -> None:
    """Keep the libraries' messages about their own work out of the log, except warnings.

    Args:
        sdk: Whether to include singer-sdk: on the present handlers, and not at `debug`.
    """
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
    root = logging.getLogger()
    for handler in root.handlers if sdk and root.level > logging.DEBUG else ():
        handler.addFilter(_is_ours_or_urgent)


def logs_as_configured() -> bool:
    """Set up logging from the file that the variable names.

    Returns False if it is unset, or there is no such file.
    """
    path = os.environ.get(LOG_CONFIG)
    if not path:
        return False
    # As JSON is YAML, this reads both Meltano's files and those written by hand.
    import yaml

    try:
        config = yaml.safe_load(Path(path).read_text())
    except FileNotFoundError:
        logging.getLogger(__name__).warning("%s names no file: %s", LOG_CONFIG, path)
        return False
    logging.config.dictConfig(config)
    return True


def is_structured() -> bool:
    """Whether a program reads the log, so that all messages must go through it."""
    formats = {type(each.formatter).__name__ for each in logging.getLogger().handlers}
    return "StructuredFormatter" in formats


def _is_ours_or_urgent(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or "singer_sdk" not in Path(record.pathname).parts
