"""The page that `spark-lake report` writes: one HTML file that needs no network and no script."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from singer_spark.errors import redact
from singer_spark.program.amounts import count_text, size_text, span_text
from target_spark_lake.commit.journal import SUCCEEDED
from target_spark_lake.commit.run_reports import RUNNING
from target_spark_lake.report.charts import Chart, Measure, Spans, draw
from target_spark_lake.state.watermark import lag_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from target_spark_lake.report.run_history import PastRun, PipelineHistory

# What keeps the page small, however many runs and streams there are.
SHOWN_RUNS, SHOWN_FAILURES, LISTED_STREAMS, CHARTED_STREAMS = 50, 20, 300, 48
LONGEST_TEXT, LONGEST_NAME = 600, 120
# Characters that HTML can't hold, or that turn the text around them.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class StreamView:
    """A stream's numbers over the whole period, and its charts where the page has room for them."""

    name: str
    records: int
    bytes: int
    rejected: int
    watermark: str | None
    lag: float | None
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class RunView:
    """A run as a row of the table."""

    run: PastRun
    records: int
    bytes: int
    rejected: int
    seconds: float | None


@dataclass(frozen=True)
class PipelineView:
    """A pipeline as the page shows it; `more_…` counts what it leaves out."""

    name: str
    anchor: str
    runs: int
    failed: int
    last: PastRun | None
    success_age: float | None
    records: int
    bytes: int
    rejected: int
    lag: float | None
    spans: Spans | None
    labels: tuple[str, ...]
    charts: tuple[Chart, ...]
    streams: tuple[StreamView, ...]
    more_streams: int
    failures: tuple[PastRun, ...]
    more_failures: int
    table: tuple[RunView, ...]


def report_page(bucket: str, histories: Sequence[PipelineHistory], now: datetime) -> str:
    """Renders the page.

    Args:
        bucket: Its URL, as people know it.
        histories: The pipelines, in the order in which they are shown.
        now: When the page is made, UTC.

    Returns:
        A whole HTML document.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("target_spark_lake.report"),
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
    charted = _charted(histories)
    views = [_pipeline(number, history, now, charted) for number, history in enumerate(histories, start=1)]
    return environment.get_template("report.html.jinja").render(bucket=bucket, pipelines=views, now=now) + "\n"


def _text(value: object, longest: int = LONGEST_TEXT) -> str:
    """A text of the lake as the page may hold it: without secrets, without what can't be seen, of bounded length."""
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
    number: int, history: PipelineHistory, now: datetime, charted: frozenset[tuple[str, str]]
) -> PipelineView:
    runs = history.runs
    # In a pipeline's first moments its clock may be ahead of this one.
    spans = Spans.over(runs[0].started_at, max(now, runs[-1].started_at)) if runs else None
    streams = _streams(history, now, spans, charted)
    failures = tuple(run for run in reversed(runs) if run.outcome not in (SUCCEEDED, RUNNING))
    succeeded = [run for run in runs if run.outcome == SUCCEEDED]
    ended = succeeded[-1].finished_at or succeeded[-1].started_at if succeeded else None
    lags = [stream.lag for stream in streams if stream.lag is not None]
    return PipelineView(
        name=history.pipeline,
        anchor=f"pipeline-{number}",
        runs=len(runs),
        failed=len(failures),
        last=runs[-1] if runs else None,
        success_age=(now - ended).total_seconds() if ended else None,
        records=sum(stream.records for stream in streams),
        bytes=sum(stream.bytes for stream in streams),
        rejected=sum(stream.rejected for stream in streams),
        lag=max(lags, default=None),
        spans=spans,
        labels=tuple(_label(spans, each) for each in range(spans.count)) if spans else (),
        charts=_charts(runs, spans),
        streams=tuple(streams[:LISTED_STREAMS]),
        more_streams=max(0, len(streams) - LISTED_STREAMS),
        failures=failures[:SHOWN_FAILURES],
        more_failures=max(0, len(failures) - SHOWN_FAILURES),
        table=tuple(_row(run) for run in reversed(runs[-SHOWN_RUNS:])),
    )


def _row(run: PastRun) -> RunView:
    seconds = (run.finished_at - run.started_at).total_seconds() if run.finished_at else None
    return RunView(run, _total(run, "records"), _total(run, "bytes"), _total(run, "rejected"), seconds)


def _total(run: PastRun, fact: str) -> int:
    return sum(getattr(past, fact) for past in run.streams.values())


def _streams(
    history: PipelineHistory, now: datetime, spans: Spans | None, charted: frozenset[tuple[str, str]]
) -> list[StreamView]:
    """All streams, those with the most rows first."""
    names = {name for run in history.runs for name in run.streams} | set(history.watermarks)
    views = [
        _stream(name, history, now, spans if (history.pipeline, name) in charted else None) for name in sorted(names)
    ]
    return sorted(views, key=lambda view: -view.records)


def _stream(name: str, history: PipelineHistory, now: datetime, spans: Spans | None) -> StreamView:
    pasts = [run.streams[name] for run in history.runs if name in run.streams]
    watermark = history.watermarks.get(name)
    return StreamView(
        name,
        sum(past.records for past in pasts),
        sum(past.bytes for past in pasts),
        sum(past.rejected for past in pasts),
        None if watermark is None else str(watermark),
        lag_seconds(watermark, now),
        _stream_charts(name, history.runs, spans),
    )


def _charts(runs: Sequence[PastRun], spans: Spans | None) -> tuple[Chart, ...]:
    if spans is None:
        return ()
    measures = [
        Measure(
            "Runs",
            lambda value: count_text(round(value), "run"),
            {
                "succeeded": lambda run: float(run.outcome in (SUCCEEDED, RUNNING)),
                "failed": lambda run: float(run.outcome not in (SUCCEEDED, RUNNING)),
            },
        ),
        Measure("Rows", _rows, {"": lambda run: float(_total(run, "records"))}),
        Measure("Bytes", size_text, {"": lambda run: float(_total(run, "bytes"))}),
    ]
    if any(_total(run, "rejected") for run in runs):
        measures.append(Measure("Rejected", _records, {"failed": lambda run: float(_total(run, "rejected"))}))
    return _drawn(measures, runs, spans)


def _stream_charts(name: str, runs: Sequence[PastRun], spans: Spans | None) -> tuple[Chart, ...]:
    if spans is None:
        return ()

    def fact(run: PastRun, which: str) -> float | None:
        return float(getattr(run.streams[name], which)) if name in run.streams else None

    measures = [
        Measure("Rows", _rows, {"": lambda run: fact(run, "records")}),
        Measure("Bytes", size_text, {"": lambda run: fact(run, "bytes")}),
    ]
    if any(name in run.lags for run in runs):
        measures.append(Measure("Lag", span_text, {"": lambda run: run.lags.get(name)}, max))
    if any(run.streams[name].rejected for run in runs if name in run.streams):
        measures.append(Measure("Rejected", _records, {"failed": lambda run: fact(run, "rejected")}))
    return _drawn(measures, runs, spans)


def _drawn(measures: Iterable[Measure], runs: Sequence[PastRun], spans: Spans) -> tuple[Chart, ...]:
    return tuple(draw(measure, runs, spans, partial(_label, spans)) for measure in measures)


def _rows(value: float) -> str:
    return count_text(round(value), "row")


def _records(value: float) -> str:
    return count_text(round(value), "record")


def _label(spans: Spans, number: int) -> str:
    """A span for people: its day, with the time where spans are shorter than one."""
    moment: Any = spans.moment(number)
    return f"{moment:%Y-%m-%d}" if spans.length.days else f"{moment:%Y-%m-%d %H:%M}"
