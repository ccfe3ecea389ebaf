"""History of pipelines as plain values: what each run did, what is in the tables now, and charts of
the runs, grouped into equal spans of time; no drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from math import log1p
from typing import Any

from singer_spark.errors import DamagedError, SingerSparkError, one_line
from singer_spark.state.run_log import PUBLISHED, RunEntry, moment_of, read_entry, run_ids
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore
from singer_spark.store.storage import Storage, each
from target_spark_lake.commit.bookmarks import ended_early, watermarks
from target_spark_lake.commit.journal import SUCCEEDED
from target_spark_lake.commit.lock import newest_entry
from target_spark_lake.commit.run_reports import error_of, outcome_of, undecided
from target_spark_lake.layout import HISTORY, Layout
from target_spark_lake.table.table_record import TableRecord

JSON = dict[str, Any]
UNREADABLE = "unreadable"
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
class Amounts:
    """Records loaded, bytes of the files published, records rejected, rows deleted."""

    records: int
    bytes: int
    rejected: int
    deleted: int = 0


def total(every: Iterable[Amounts]) -> Amounts:
    """The sum of several amounts."""
    values = [astuple(each) for each in every]
    return Amounts(*map(sum, zip(*values, strict=True))) if values else Amounts(0, 0, 0)


@dataclass(frozen=True)
class PastRun:
    """A run.

    Attributes:
        run_id: Sorts by time.
        started_at: UTC.
        finished_at: UTC; None while it runs, or if its end was not recorded.
        outcome: `succeeded`, `committed` (not published yet), `failed`, `rolled_back`, `running`,
            or `unreadable`.
        streams: What a published run did, by stream.
        error: Why it failed or is not published, in one line without secrets.
        command: The `spark-lake` command that it was; None for a sync.
    """

    run_id: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str
    streams: Mapping[str, Amounts] = field(default_factory=dict)
    error: str | None = None
    command: str | None = None

    @property
    def total(self) -> Amounts:
        """The sum over all streams."""
        return total(self.streams.values())

    @property
    def seconds(self) -> float | None:
        """Duration; None while the run is running, or if its end was not recorded."""
        return (self.finished_at - self.started_at).total_seconds() if self.finished_at else None


@dataclass(frozen=True)
class PipelineHistory:
    """A pipeline's runs and the state that they left.

    Attributes:
        runs: Oldest first.
        watermarks: Stream to the current value of its replication key.
        ended_early: Whether the last run did not get to the end of all streams.
        rows: Stream to the number of rows in its table, where it was counted.
    """

    pipeline: str
    runs: tuple[PastRun, ...]
    watermarks: Mapping[str, Any]
    ended_early: bool = False
    rows: Mapping[str, int] = field(default_factory=dict)

    def read_at(self, stream: str) -> datetime | None:
        """When the newest run began that read a stream to its end; None if that is unknown."""
        if self.ended_early:
            return None
        syncs = (
            run for run in reversed(self.runs) if run.command is None and run.outcome == SUCCEEDED
        )
        return next((run.started_at for run in syncs if stream in run.streams), None)


def read_history(
    storage: Storage, layout: Layout, store: StateStore, newest: int
) -> PipelineHistory:
    """Read a pipeline's history: the `newest` number of runs.

    Raises:
        StorageError: the storage failed.
        StateError: the saved state is malformed, or another lake's.
    """
    ids = run_ids(storage, layout.runs)[:newest]
    read = each(storage, lambda run_id: _entry(storage, layout, run_id), reversed(ids))
    lock = newest_entry(storage, layout)
    runs = []
    for found in read:
        if isinstance(found, PastRun):
            runs.append(found)
        elif found is not None:
            runs.append(_past(found, outcome_of(found, lock)))
    if lock is not None and not lock.released and lock.run_id not in ids:
        outcome, error = undecided(lock)
        runs.append(
            PastRun(lock.run_id, lock.since, None, outcome, error=error, command=lock.command)
        )
    now = StateSource(store, storage, layout.pipeline).saved
    state = now.value if now else None
    return PipelineHistory(layout.pipeline, tuple(runs), watermarks(state), ended_early(state))


def stored_rows(
    storage: Storage, layout: Layout, tables: Mapping[str, TableRecord]
) -> tuple[dict[str, int], dict[str, str]]:
    """The number of rows in each table, by stream, and why some could not be counted, by folder.

    The number is known from a table's index, or else from the footers of its files.
    """
    # Only here: not every report has tables, and these load Arrow.
    from target_spark_lake.ops.compared_rows import table_files
    from target_spark_lake.table.table_index import current_index, read_index

    rows: dict[str, int] = {}
    problems: dict[str, str] = {}
    for folder, record in tables.items():
        if folder.endswith(HISTORY):
            continue
        try:
            known = read_index(storage, layout.table_index(folder))
            files = current_index(
                storage, known, table_files(storage, layout, folder, record), ()
            ).files
            rows[record.stream] = sum(file.rows for file in files.values())
        except SingerSparkError as error:
            problems[folder] = one_line(error)
    return rows, problems


def _entry(storage: Storage, layout: Layout, run_id: str) -> RunEntry | PastRun | None:
    try:
        return read_entry(storage, layout.runs, run_id)
    except DamagedError as error:
        return PastRun(run_id, moment_of(run_id), None, UNREADABLE, error=str(error))


def _past(entry: RunEntry, outcome: str) -> PastRun:
    body = entry.body
    finished = body.get("finished_at")
    ended = datetime.fromisoformat(finished) if finished else None
    return PastRun(
        entry.run_id,
        datetime.fromisoformat(body["started_at"]),
        ended,
        outcome,
        {name: _amounts(each) for name, each in body["streams"].items()}
        if entry.phase == PUBLISHED
        else {},
        error_of(entry, outcome),
        body.get("command"),
    )


def _amounts(report: JSON) -> Amounts:
    # Older journals did not count what was deleted.
    return Amounts(report["records"], report["bytes"], report["rejected"], report.get("deleted", 0))


@dataclass(frozen=True)
class Spans:
    """Consecutive equal spans of time; each contains the runs that started in it."""

    start: datetime
    length: timedelta
    count: int

    @staticmethod
    def over(first: datetime, last: datetime) -> Spans:
        """Few enough spans for a phone, at round moments; the last has the last moment."""
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
