"""`spark-lake report`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from singer_spark.core.scratch import write_whole
from singer_spark.errors import ConfigurationError, SingerSparkError, one_line, redact
from singer_spark.program.amounts import count_text, size_text, span_text
from target_spark_lake.commit.bookmarks import idle_seconds, lag_seconds, newest_row_text
from target_spark_lake.commit.journal import SUCCEEDED
from target_spark_lake.commit.run_reports import RUNNING, pipelines
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import Layout
from target_spark_lake.ops.command import (
    Chosen,
    Lake,
    file_option,
    report_problems,
    show,
    subcommand,
)
from target_spark_lake.ops.run_history import (
    Amounts,
    Chart,
    Measure,
    PastRun,
    PipelineHistory,
    Spans,
    draw,
    read_history,
    stored_rows,
    total,
)
from target_spark_lake.table.table_record import tables_of

# Limits that keep the page small, however many runs and streams there are.
SHOWN_RUNS, SHOWN_FAILURES, LISTED_STREAMS, CHARTED_STREAMS = 50, 20, 300, 48
LONGEST_TEXT, LONGEST_NAME = 600, 120
# Characters that HTML can't hold, or that change the direction of text.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)


@dataclass(frozen=True)
class StreamView:
    """A stream over the whole period.

    Attributes:
        total: What runs did.
        rows: Rows in its table; None: unknown.
        watermark: The value of its replication key in the state.
        newest: How old its newest row is, in words; None: unknown.
        lag: For how long the source may have had rows that the lake lacks.
        chart: Its rows over time, if the page has room for it.
    """

    name: str
    total: Amounts
    rows: int | None
    watermark: Any
    newest: str | None
    lag: float | None
    chart: Chart | None


@dataclass(frozen=True)
class PipelineView:
    """A pipeline as shown on the page: newest runs and largest streams first.

    As in `spark-lake status`, the last run and the last success are syncs: commands bring no rows.
    """

    name: str
    runs: tuple[PastRun, ...]
    last_sync: PastRun | None
    failures: tuple[PastRun, ...]
    success_age: float | None
    total: Amounts
    lag: float | None
    spans: Spans | None
    labels: tuple[str, ...]
    charts: tuple[Chart, ...]
    streams: tuple[StreamView, ...]


def report_page(bucket: str, histories: Sequence[PipelineHistory], now: datetime) -> str:
    """Render the page, a complete HTML document, as of a moment in UTC."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("target_spark_lake.ops"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "text": _text,
        "name": partial(_text, longest=LONGEST_NAME),
        "count": count_text,
        "size": size_text,
        "span": span_text,
        "moment": _moment,
    }
    environment.globals |= {
        "shown_runs": SHOWN_RUNS,
        "shown_failures": SHOWN_FAILURES,
        "listed_streams": LISTED_STREAMS,
    }
    charted = _charted(histories)
    views = [_pipeline(history, now, charted) for history in histories]
    template = environment.get_template("report.html.jinja")
    return template.render(bucket=bucket, pipelines=views, now=now) + "\n"


def _text(value: object, longest: int = LONGEST_TEXT) -> str:
    """A text from the lake for the page: without secrets or invisible characters, and of limited
    length.
    """
    text = _UNSEEN.sub("\ufffd", redact(str(value)))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _charted(histories: Sequence[PipelineHistory]) -> frozenset[tuple[str, str]]:
    """Pipelines and streams that get charts of their own: those with the most rows."""
    rows: dict[tuple[str, str], int] = {}
    for history in histories:
        for run in history.runs:
            for stream, past in run.streams.items():
                key = (history.pipeline, stream)
                rows[key] = rows.get(key, 0) + past.records
    return frozenset(sorted(rows, key=lambda key: (-rows[key], key))[:CHARTED_STREAMS])


def _pipeline(
    history: PipelineHistory, now: datetime, charted: frozenset[tuple[str, str]]
) -> PipelineView:
    runs = history.runs
    # At the very start of a pipeline, its clock may be ahead of this one.
    spans = Spans.over(runs[0].started_at, max(now, runs[-1].started_at)) if runs else None
    names = {name for run in runs for name in run.streams} | set(history.watermarks)
    streams = [
        _stream(name, history, now, spans if (history.pipeline, name) in charted else None)
        for name in sorted(names)
    ]
    syncs = [run for run in reversed(runs) if run.command is None]
    success = next((run for run in syncs if run.outcome == SUCCEEDED), None)
    return PipelineView(
        name=history.pipeline,
        runs=runs[::-1],
        last_sync=next(iter(syncs), None),
        failures=tuple(run for run in reversed(runs) if not _went_well(run)),
        success_age=(now - (success.finished_at or success.started_at)).total_seconds()
        if success
        else None,
        total=total(run.total for run in runs),
        lag=max((stream.lag for stream in streams if stream.lag is not None), default=None),
        spans=spans,
        labels=tuple(_label(spans, each) for each in range(spans.count)) if spans else (),
        charts=_drawn(_measures(runs), runs, spans),
        streams=tuple(sorted(streams, key=lambda view: -view.total.records)),
    )


def _stream(name: str, history: PipelineHistory, now: datetime, spans: Spans | None) -> StreamView:
    runs, watermark, read_at = history.runs, history.watermarks.get(name), history.read_at(name)
    age, idle = lag_seconds(watermark, now), idle_seconds(watermark, read_at, now)
    unread = (now - read_at).total_seconds() if read_at is not None else None
    records = Measure("Rows", _counted("row"), {"": lambda run: _records(run.streams.get(name))})
    return StreamView(
        name,
        total(run.streams[name] for run in runs if name in run.streams),
        history.rows.get(name),
        watermark,
        None if age is None else newest_row_text(age, idle),
        unread if idle is not None or age is None else age,
        next(iter(_drawn([records], runs, spans)), None),
    )


def _records(amounts: Amounts | None) -> float | None:
    return None if amounts is None else float(amounts.records)


def _went_well(run: PastRun) -> bool:
    return run.outcome in (SUCCEEDED, RUNNING)


def _measures(runs: Sequence[PastRun]) -> list[Measure]:
    """What is shown of each run; rejects and deletes if there are any."""
    good, bad = (lambda run: float(_went_well(run))), (lambda run: float(not _went_well(run)))
    seconds = {"": lambda run: None if run.command else run.seconds}
    measures = [
        Measure("Runs", _counted("run"), {"succeeded": good, "failed": bad}),
        Measure("Duration", span_text, seconds, max),
        Measure("Rows", _counted("row"), {"": lambda run: float(run.total.records)}),
        Measure("Bytes", size_text, {"": lambda run: float(run.total.bytes)}),
    ]
    if any(run.total.deleted for run in runs):
        measures.append(
            Measure("Deleted", _counted("row"), {"": lambda run: float(run.total.deleted)})
        )
    if any(run.total.rejected for run in runs):
        measures.append(
            Measure(
                "Rejected", _counted("record"), {"failed": lambda run: float(run.total.rejected)}
            )
        )
    return measures


def _counted(unit: str) -> Callable[[float], str]:
    return lambda value: count_text(round(value), unit)


def _drawn(
    measures: Iterable[Measure], runs: Sequence[PastRun], spans: Spans | None
) -> tuple[Chart, ...]:
    if spans is None:
        return ()
    return tuple(draw(measure, runs, spans, partial(_label, spans)) for measure in measures)


def _label(spans: Spans, number: int) -> str:
    """Label of a span: its date, with the time if spans are shorter than a day."""
    moment: Any = spans.moment(number)
    return f"{moment:%Y-%m-%d}" if spans.length.days else f"{moment:%Y-%m-%d %H:%M}"


@subcommand("report", "report --output report.html", "report --output report.html --all")
@file_option("--output", required=True, help="the page to write, such as report.html")
@click.option("--all", "all_pipelines", is_flag=True, help="all pipelines of the bucket")
@click.option("--runs", default=1000, metavar="N", help="the newest runs of each pipeline (1000)")
def report_command(chosen: Chosen, output: str, runs: int, *, all_pipelines: bool) -> int:
    """One HTML page about runs, rows, watermarks and failures, which needs no network."""
    lake = Lake.of(chosen)
    histories, (tables, unreadable) = [], tables_of(lake.storage)
    problems = list(unreadable.values())
    for each in pipelines(lake.storage, "runs") if all_pipelines else [lake.layout.pipeline]:
        try:
            layout = Layout(each, lake.settings.path, lake.settings.iceberg_catalog)
            history = read_history(lake.storage, layout, lake.store_of(each), runs)
            rows, uncounted = stored_rows(lake.storage, layout, tables.get(each, {}))
            histories.append(replace(history, rows=rows))
            problems += uncounted.values()
        except SingerSparkError as error:
            # A pipeline that can't be read must not hide others.
            problems.append(f"pipeline {each}: {one_line(error)}")
    page = report_page(lake.location, histories, datetime.now(UTC)).encode()
    path = Path(output).expanduser()
    try:
        write_whole(path, page)
    except OSError as error:
        raise ConfigurationError(
            LakeCode.FILE_UNWRITABLE, f"can't write the report to {output}: {error.strerror}"
        ) from error
    found = {history.pipeline: len(history.runs) for history in histories}
    made = {"output": str(path), "bytes": len(page), "runs": found}
    show(chosen, made, lambda report: f"Written: {report['output']}")
    return report_problems(problems)
