"""`spark-lake status`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Any

from singer_spark.errors import ConfigurationError, SourceError
from singer_spark.program.amounts import size_text, span_text
from target_spark_lake.commit.watermark import newest_row_text
from target_spark_lake.ops.command import (
    CONFIG,
    JSON,
    Command,
    Lake,
    report_problems,
    show,
    table_of,
)
from target_spark_lake.ops.pipeline_status import age_limits, status
from target_spark_lake.ops.source_lag import to_read, with_lag

NO_PIPELINE = "-"


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--max-age",
        action="append",
        default=[],
        metavar="[PIPELINE=]AGE",
        help="how old the last success may be (30m, 6h, 2d); repeatable, PIPELINE may be a pattern",
    )
    parser.add_argument(
        "--tap-config",
        action="append",
        metavar="FILE",
        help="also show how far the pipeline is behind its source",
    )


def _run(chosen: Namespace) -> int:
    # Only the bucket is needed from the config.
    lake = Lake.of(chosen, default_pipeline=NO_PIPELINE)
    limits, file_bytes = age_limits(chosen.max_age), lake.settings.file_bytes
    pipelines, problems = status(
        lake.storage, lake.store_of, limits, chosen.pipeline, file_bytes=file_bytes
    )
    if chosen.tap_config:
        asked = lake.layout.pipeline
        if asked == NO_PIPELINE:
            raise ConfigurationError(
                "--tap-config: name the pipeline of that source, by --pipeline or the config's "
                "pipeline"
            )
        try:
            coming = to_read(chosen.tap_config, {**lake.config, "pipeline": asked})
        except SourceError as error:
            # A source that is down must not hide the status of the pipelines.
            coming, problems = {}, [*problems, f"pipeline {asked}: {error}"]
        pipelines = [
            with_lag(each, coming) if each.pipeline == asked else each for each in pipelines
        ]
        problems += [f"pipeline {asked}: {each.lost}" for each in coming.values() if each.lost]
    show(chosen, [asdict(each) for each in pipelines], lambda found: _table(found, lake.place))
    return report_problems(problems) or int(not pipelines)


def _table(pipelines: list[JSON], place: str) -> Any:
    if not pipelines:
        return f"No pipeline has run in {place}."
    columns = ["pipeline", "last run", "last success", "rows", "newest row"]
    rows: list[tuple[object, ...]] = [
        (each["pipeline"], *_outcome_cells(each), *_stream_cells(each["streams"]))
        for each in pipelines
    ]
    lags = [_lag_text(each["streams"]) for each in pipelines]
    if any(lags):
        columns.append("behind the source")
        rows = [(*row, lag) for row, lag in zip(rows, lags, strict=True)]
    return table_of(
        rows, columns, [*filter(None, map(_small_files_text, pipelines)), f"Pipelines in {place}."]
    )


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


STATUS = Command(
    "status",
    "all pipelines of the bucket; exit code 1 when one is too old, failed last, or is not published",  # noqa: E501
    (f"status {CONFIG}", f"status {CONFIG} --max-age 6h --max-age 'nightly-*=26h'"),
    _run,
    _flags,
)
