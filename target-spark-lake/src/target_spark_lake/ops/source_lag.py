"""How far a pipeline's lake is behind its source: the tap, in a process of its own, reports what it
would read now.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from singer_spark.errors import SourceError, redact
from target_spark_lake.ops.pipeline_status import PipelineStatus

TAP = "tap-spark-jdbc"
_STREAM = re.compile(
    r"stream (?P<name>.+?): (?:INCREMENTAL|FULL_TABLE|LOG_BASED)(?: by (?P<range>.*))?"
)
_UPPER = re.compile(r".*, from .* to (?P<upper>\S.*?), both included.*")
_LOG = re.compile(r"stream (?P<name>.+?): LOG_BASED, changes from \S+ on")
_HELD_BACK = re.compile(r"  log: slot \S+ holds back (?P<bytes>\d+) bytes")
_FOLLOWS = re.compile(r"  log: (?P<bytes>\d+) bytes of the server's log follow")
_LOST = re.compile(r"  log: can't go on: (?P<why>.*)")
_ROWS = re.compile(r"  rows: about (?P<rows>\d+)")


@dataclass(frozen=True)
class ToRead:
    """What the next run would read from a stream.

    Attributes:
        rows: Approximate number of rows, including those at the bookmark's own value, sent or not.
        upper: The greatest value of the replication key; None if there is nothing to read, or no
            key.
        held_back: Bytes of log that the server keeps for a stream read from the log; None for other
            streams.
        follows: Bytes of log behind its bookmark, where the server keeps its log without regard to
            readers.
        lost: Why a stream can't continue in the log, and what to do; None if it can.
    """

    rows: int
    upper: str | None
    held_back: int | None = None
    follows: int | None = None
    lost: str | None = None


def to_read(tap_configs: Sequence[str], target_config: Mapping[str, Any]) -> dict[str, ToRead]:
    """What the tap's `--dry-run` would read, by stream; it reads no rows.

    Raises:
        SourceError: the tap is missing or failed; the text is the tap's own.
    """
    configs = [word for file in tap_configs for word in ("--config", file)]
    command = [
        str(Path(sys.executable).with_name(TAP)),
        *configs,
        "--state-from",
        "/dev/stdin",
        "--dry-run",
    ]
    try:
        # The config may contain secrets, so it is never written to a file.
        config = json.dumps(dict(target_config))
        done = subprocess.run(command, input=config, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SourceError(
            f"{TAP} can't be started beside {sys.executable}: {error.strerror}"
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SourceError(f"the tap can't say what there is to read: {redact(lines[-1])}")
    return _streams(done.stdout)


def _streams(text: str) -> dict[str, ToRead]:
    found: dict[str, ToRead] = {}
    name, upper = "", None
    for line in text.splitlines():
        if heading := _STREAM.fullmatch(line):
            name, bounds = heading["name"], _UPPER.fullmatch(heading["range"] or "")
            upper = bounds["upper"] if bounds else None
        elif heading := _LOG.fullmatch(line):
            name = heading["name"]
        elif name and (size := _HELD_BACK.fullmatch(line)):
            found[name] = ToRead(0, None, int(size["bytes"]))
        elif name and (size := _FOLLOWS.fullmatch(line)):
            found[name] = ToRead(0, None, follows=int(size["bytes"]))
        elif name and (lost := _LOST.fullmatch(line)):
            found[name] = ToRead(0, None, lost=lost["why"])
        elif name and (rows := _ROWS.fullmatch(line)):
            found[name] = ToRead(int(rows["rows"]), upper)
    return found


def with_lag(status: PipelineStatus, found: Mapping[str, ToRead]) -> PipelineStatus:
    """The status with what the tap reports of each stream: rows or bytes to read or held back, or a
    lost place.
    """
    streams = {name: dict(each) for name, each in status.streams.items()}
    for name, each in found.items():
        stream = streams.setdefault(name, {})
        if each.held_back is not None:
            stream["log_bytes_held_back"] = each.held_back
            continue
        if each.follows is not None:
            stream["log_bytes_to_read"] = each.follows
            continue
        if each.lost is not None:
            stream["log_lost"] = each.lost
            continue
        stream["rows_to_read"] = each.rows
        stream["lag_seconds"] = _seconds(stream.get("replication_key_value"), each)
    return replace(status, streams=streams)


def _seconds(bookmark: Any, found: ToRead) -> int | None:
    """Seconds from the bookmark to the source's newest value, if both are times."""
    if not isinstance(bookmark, str):
        return None
    try:
        start = datetime.fromisoformat(bookmark)
        end = start if found.upper is None else datetime.fromisoformat(found.upper)
        return max(0, int((end - start).total_seconds()))
    except (ValueError, TypeError):
        return None
