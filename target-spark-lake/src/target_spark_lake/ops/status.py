"""`spark-lake status`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, SourceError, redact
from singer_spark.program.amounts import size_text, span_text
from target_spark_lake.commit.bookmarks import newest_row_text
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import (
    JSON,
    TAP,
    Chosen,
    Lake,
    files_option,
    report_problems,
    show,
    subcommand,
    table_of,
)
from target_spark_lake.ops.pipeline_status import PipelineStatus, age_limits, status

_STREAM = re.compile(
    r"stream (?P<name>.+?): (?:INCREMENTAL|FULL_TABLE|LOG_BASED)(?: by (?P<range>.*))?"
)
_UPPER = re.compile(r".*, from .* to (?P<upper>\S.*?), both included.*")
_LOG = re.compile(r"stream (?P<name>.+?): LOG_BASED, changes from \S+ on")
_HELD_BACK = re.compile(r"  log: slot \S+ holds back (?P<bytes>\d+) bytes")
_FOLLOWS = re.compile(r"  log: (?P<bytes>\d+) bytes of the server's log follow")
_LOST = re.compile(r"  log: can't (?:continue|go on): (?P<why>.*)")
_ROWS = re.compile(r"  rows: about (?P<rows>\d+)")
NO_PIPELINE = "-"


@dataclass(frozen=True)
class ToRead:
    """What the next run would read from a stream.

    Attributes:
        rows: Approximate number of rows, including those at the bookmark's own value, sent or not.
        upper: The greatest value of the replication key; None if there is nothing to read, or no
            key.
        held_back: Bytes of write-ahead log that the server keeps for a stream; None for other
            streams.
        follows: Bytes of binary log after its bookmark, if the server keeps its log without regard
            to readers.
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
    program = str(Path(sys.executable).with_name(TAP))
    command = [program, *configs, "--state-from", "/dev/stdin", "--dry-run"]
    try:
        # The config may contain secrets, so it is never written to a file.
        config = json.dumps(dict(target_config))
        done = subprocess.run(command, input=config, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SourceError(
            LakeCode.PROGRAM_MISSING,
            f"{TAP} can't be started beside {sys.executable}: {error.strerror}",
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SourceError(
            LakeCode.TAP_REFUSED, f"the tap can't say what there is to read: {redact(lines[-1])}"
        )
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
        elif each.follows is not None:
            stream["log_bytes_to_read"] = each.follows
        elif each.lost is not None:
            stream["log_lost"] = each.lost
        else:
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


@subcommand("status", "status", "status --max-age 6h --max-age 'nightly-*=26h'")
@click.option(
    "--max-age",
    multiple=True,
    metavar="[PIPELINE=]AGE",
    help="how old the last success may be (30m, 6h, 2d); repeatable, PIPELINE may be a pattern",
)
@files_option("--tap-config", help="also show how far the pipeline is behind its source")
def status_command(chosen: Chosen, max_age: Sequence[str], tap_config: Sequence[str]) -> int:
    """Show all pipelines of the bucket; exit code 1 if the last success of one is too old, or its
    last run failed or is not published.
    """
    # Only the bucket is needed from the config.
    lake = Lake.of(chosen, default_pipeline=NO_PIPELINE)
    limits, file_bytes = age_limits(max_age), lake.settings.file_bytes
    pipelines, problems = status(
        lake.storage, lake.store_of, limits, chosen.pipeline, file_bytes=file_bytes
    )
    if tap_config:
        asked = lake.layout.pipeline
        if asked == NO_PIPELINE:
            raise ConfigurationError(
                RunCode.BAD_FLAG,
                "--tap-config: name the pipeline of that source, by --pipeline or the config's "
                "pipeline",
            )
        try:
            coming = to_read(tap_config, {**lake.config, "pipeline": asked})
        except SourceError as error:
            # A source that is down must not hide the status of the pipelines.
            coming, problems = {}, [*problems, f"pipeline {asked}: {error}"]
        pipelines = [
            with_lag(each, coming) if each.pipeline == asked else each for each in pipelines
        ]
        problems += [f"pipeline {asked}: {each.lost}" for each in coming.values() if each.lost]
    show(chosen, [asdict(each) for each in pipelines], lambda found: _table(found, lake.location))
    return report_problems(problems) or int(not pipelines)


def _table(pipelines: list[JSON], location: str) -> Any:
    if not pipelines:
        return f"No pipeline has run in {location}."
    columns = ["pipeline", "last run", "last success", "rows", "newest row"]
    rows: list[tuple[object, ...]] = [
        (each["pipeline"], *_outcome_cells(each), *_stream_cells(each["streams"]))
        for each in pipelines
    ]
    lags = [_lag_text(each["streams"]) for each in pipelines]
    if any(lags):
        columns.append("behind the source")
        rows = [(*row, lag) for row, lag in zip(rows, lags, strict=True)]
    lines = [*filter(None, map(_small_files_text, pipelines)), f"Pipelines in {location}."]
    return table_of(rows, columns, lines)


def _outcome_cells(pipeline: JSON) -> tuple[object, object]:
    now = "running" if pipeline["running"] else None
    last = " · ".join(dict.fromkeys(part for part in (pipeline["outcome"], now) if part))
    ago = (
        "never" if pipeline["age_seconds"] is None else f"{span_text(pipeline['age_seconds'])} ago"
    )
    return last or "none", ago


def _stream_cells(streams: JSON) -> tuple[object, object]:
    aged = {
        name: each
        for name, each in streams.items()
        if each.get("watermark_age_seconds") is not None
    }
    oldest = max(aged, key=lambda name: int(aged[name]["watermark_age_seconds"]), default=None)
    rows = sum(each.get("records", 0) for each in streams.values())
    rejected = sum(each.get("rejected", 0) for each in streams.values())
    watermark = None
    if oldest is not None:
        age, idle = aged[oldest]["watermark_age_seconds"], aged[oldest].get("no_new_rows_seconds")
        watermark = f"{oldest}: {newest_row_text(age, idle)}"
    return f"{rows:,}" + (f", {rejected:,} rejected" if rejected else ""), watermark


def _lag_text(streams: JSON) -> str:
    """A line for each stream that the tap reported on."""
    lines = []
    for name, each in streams.items():
        if "rows_to_read" in each:
            time = "" if each["lag_seconds"] is None else f"{span_text(each['lag_seconds'])}, "
            lines.append(f"{name}: {time}about {each['rows_to_read']:,} rows to read")
        if (held := each.get("log_bytes_held_back")) is not None:
            lines.append(f"{name}: {size_text(held)} of log held back")
        if (follows := each.get("log_bytes_to_read")) is not None:
            lines.append(f"{name}: {size_text(follows)} of log to read")
        if "log_lost" in each:
            lines.append(f"{name}: its place in the log is lost")
    return "\n".join(lines)


def _small_files_text(pipeline: JSON) -> str:
    """The pipeline's tables with many small files; empty if there are none."""
    tables = [
        each
        for stream in pipeline["streams"].values()
        for each in stream.get("small_files", {}).items()
    ]
    named = ", ".join(f"{table} has {count:,} small files" for table, count in tables)
    way_out = "`spark-lake compact` joins them, and with `auto_compact: true` each run does"
    return named and f"pipeline {pipeline['pipeline']}: {named}; {way_out}"
