"""Runs grouped into equal spans of time, and the shapes of charts for their numbers: plain values,
no drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import log1p

from target_spark_lake.ops.run_history import PastRun

SPANS_AT_MOST, SPANS_AT_LEAST = 42, 14
# Height of a chart in its own units, and width of one span.
HEIGHT, STEP = 100.0, 10.0
# A scale is logarithmic if the greatest value is this many times the median.
LOG_FROM = 20
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
# Lengths of spans in seconds: the first that is long enough is used, beyond the last its multiples.
_LENGTHS = (
    _MINUTE,
    5 * _MINUTE,
    15 * _MINUTE,
    _HOUR,
    3 * _HOUR,
    6 * _HOUR,
    12 * _HOUR,
    _DAY,
    2 * _DAY,
    7 * _DAY,
)
_NAMES = {_MINUTE: "minute", _HOUR: "hour", _DAY: "day", 7 * _DAY: "week"}


@dataclass(frozen=True)
class Spans:
    """Consecutive equal spans of time; each contains the runs that started in it."""

    start: datetime
    length: timedelta
    count: int

    @staticmethod
    def over(first: datetime, last: datetime) -> Spans:
        """Few enough spans for a phone, aligned to round moments, with the last moment in the last
        one.
        """
        wanted = (last - first).total_seconds() / (SPANS_AT_MOST - 1)
        longest = _LENGTHS[-1]
        seconds = next(
            (each for each in _LENGTHS if each >= wanted), longest * (int(wanted // longest) + 1)
        )
        last_one, first_one = int(last.timestamp() // seconds), int(first.timestamp() // seconds)
        count = max(last_one - first_one + 1, SPANS_AT_LEAST)
        start = datetime.fromtimestamp((last_one - count + 1) * seconds, UTC)
        return Spans(start, timedelta(seconds=seconds), count)

    def of(self, moment: datetime) -> int:
        """Number of the span that contains a moment, or of the nearest span."""
        return min(max(int((moment - self.start) / self.length), 0), self.count - 1)

    def moment(self, number: int) -> datetime:
        """When a span starts."""
        return self.start + number * self.length

    @property
    def name(self) -> str:
        """The length of a span in words: `hour`, `6 hours`."""
        seconds = int(self.length.total_seconds())
        if seconds in _NAMES:
            return _NAMES[seconds]
        size = max(each for each in _NAMES if seconds % each == 0)
        return f"{seconds // size} {_NAMES[size]}s"


@dataclass(frozen=True)
class Bar:
    """One bar: position, height and base in the chart's units; `y` grows downwards."""

    x: float
    y: float
    height: float
    kind: str


@dataclass(frozen=True)
class Chart:
    """A chart of one measure over all spans.

    Attributes:
        title: What it shows.
        summary: The same as text, for users who can't see it.
        top: The greatest value.
        is_log: Whether its scale is logarithmic.
        bars: The bars of all spans.
        texts: The values of each span; empty without a run.
    """

    title: str
    summary: str
    top: str
    is_log: bool
    bars: tuple[Bar, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Measure:
    """What a chart shows: for each kind of bar a run's contribution, combined by `max` if they
    don't add up.
    """

    title: str
    text: Callable[[float], str]
    value: Mapping[str, Callable[[PastRun], float | None]]
    gather: Callable[[Iterable[float]], float] = sum


def draw(
    measure: Measure, runs: Sequence[PastRun], spans: Spans, when: Callable[[int], str]
) -> Chart:
    """A chart of a pipeline's runs; `when` labels a span, given its number."""
    found: dict[str, list[list[float]]] = {
        kind: [[] for _ in range(spans.count)] for kind in measure.value
    }
    for run in runs:
        for kind, value_of in measure.value.items():
            value = value_of(run)
            if value is not None:
                found[kind][spans.of(run.started_at)].append(value)
    values = {
        kind: [measure.gather(some) if some else None for some in every]
        for kind, every in found.items()
    }
    heights = [
        sum(max(every[number] or 0.0, 0.0) for every in values.values())
        for number in range(spans.count)
    ]
    top = max(heights)
    # Otherwise one great value, such as that of a first load, would leave nothing visible of the
    # others.
    positive = sorted(height for height in heights if height > 0)
    is_log = (
        len(measure.value) == 1 and bool(positive) and top > LOG_FROM * positive[len(positive) // 2]
    )
    texts = tuple(_text(measure, values, number) for number in range(spans.count))
    bars = tuple(
        bar for number in range(spans.count) for bar in _stack(values, number, top, is_log=is_log)
    )
    summary = _summary(measure, values, heights, spans, when)
    return Chart(measure.title, summary, measure.text(top), is_log, bars, texts)


def _stack(
    values: Mapping[str, Sequence[float | None]], number: int, top: float, *, is_log: bool
) -> Iterable[Bar]:
    """The bars of one span, stacked; positive values are always visible."""
    ground = HEIGHT
    for kind, every in values.items():
        value = every[number]
        if value is not None and value > 0:
            share = log1p(value) / log1p(top) if is_log else value / top
            height = round(max(share * HEIGHT, 2.0), 1)
            ground -= height
            yield Bar(number * STEP + 1, round(max(ground, 0.0), 1), height, kind)


def _text(measure: Measure, values: Mapping[str, Sequence[float | None]], number: int) -> str:
    values_by_kind = [(kind, every[number]) for kind, every in values.items()]
    named = [
        f"{measure.text(value)} {kind}".rstrip()
        for kind, value in values_by_kind
        if value is not None and (value or not kind)
    ]
    return ", ".join(named)


def _summary(
    measure: Measure,
    values: Mapping[str, Sequence[float | None]],
    heights: Sequence[float],
    spans: Spans,
    when: Callable[[int], str],
) -> str:
    period = f"{measure.title} for each {spans.name} from {when(0)} to {when(spans.count - 1)}"
    top = max(heights)
    if top <= 0:
        return f"{period}: none"
    most = f"max {measure.text(top)}, {when(heights.index(top))}"
    if measure.gather is not sum:
        return f"{period}: {most}"
    totals = (
        f"{measure.text(sum(value or 0.0 for value in every))} {kind}".rstrip()
        for kind, every in values.items()
    )
    return f"{period}: {', '.join(totals)} in all, {most}"
