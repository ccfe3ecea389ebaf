"""History of pipelines as plain values: what each run did, and the lag of its watermarks at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from singer_spark.errors import DamagedError
from singer_spark.state.run_log import ABORTED, PUBLISHED, RunEntry, moment_of, read_entry, run_ids
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore
from singer_spark.storage.at_once import each
from singer_spark.storage.storage import Storage
from target_spark_lake.commit.lock_entry import newest_entry
from target_spark_lake.commit.run_reports import error_of, outcome_of, undecided
from target_spark_lake.layout import Layout
from target_spark_lake.state.watermark import lags_at, watermarks

JSON = dict[str, Any]
UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Amounts:
    """Records loaded, bytes of the files published, records rejected."""

    records: int
    bytes: int
    rejected: int


def total(every: Iterable[Amounts]) -> Amounts:
    """The sum of several amounts."""
    values = [(each.records, each.bytes, each.rejected) for each in every]
    return Amounts(*map(sum, zip(*values, strict=True))) if values else Amounts(0, 0, 0)


@dataclass(frozen=True)
class PastRun:
    """A run.

    Attributes:
        run_id: Sorts by time.
        started_at: UTC.
        finished_at: UTC; None while it runs, or if its end was not recorded.
        outcome: `succeeded`, `committed` (not published yet), `failed`, `rolled_back`, `running`, or `unreadable`.
        streams: What a published run did, by stream.
        lags: Stream to its watermark's lag at the end of the run, in seconds; only for keys that are times.
        error: Why it failed or is not published, in one line without secrets.
        command: The `spark-lake` command that it was; None for a sync.
    """

    run_id: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str
    streams: Mapping[str, Amounts] = field(default_factory=dict)
    lags: Mapping[str, float] = field(default_factory=dict)
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
    """A pipeline's runs, oldest first, and its current watermarks: stream to the value of its replication key."""

    pipeline: str
    runs: tuple[PastRun, ...]
    watermarks: Mapping[str, Any]


def read_history(storage: Storage, layout: Layout, store: StateStore, newest: int) -> PipelineHistory:
    """Read a pipeline's history: the `newest` number of runs.

    Raises:
        StorageError: the storage failed.
        StateError: the saved state is malformed, or another lake's.
    """
    ids = run_ids(storage, layout.runs)[:newest]
    read = each(storage, lambda run_id: _entry(storage, layout, run_id), reversed(ids))
    lock = newest_entry(storage, layout)
    runs, saved = [], _state_before(read)
    for found in read:
        if isinstance(found, PastRun):
            runs.append(found)
        elif found is not None:
            saved = saved if found.state is None else found.state
            runs.append(_past(found, saved, outcome_of(found, lock)))
    if lock is not None and not lock.released and lock.run_id not in ids:
        outcome, error = undecided(lock)
        runs.append(PastRun(lock.run_id, lock.since, None, outcome, error=error, command=lock.command))
    now = StateSource(store, storage, layout.pipeline).saved
    return PipelineHistory(layout.pipeline, tuple(runs), watermarks(now.value if now else None))


def _entry(storage: Storage, layout: Layout, run_id: str) -> RunEntry | PastRun | None:
    try:
        return read_entry(storage, layout.runs, run_id)
    except DamagedError as error:
        return PastRun(run_id, moment_of(run_id), None, UNREADABLE, error=str(error))


def _state_before(read: list[RunEntry | PastRun | None]) -> JSON | None:
    """The state before the first of these runs, from the first journal that records it."""
    for found in read:
        if found is not None and not isinstance(found, PastRun) and found.phase != ABORTED:
            state: JSON | None = found.body.get("previous_state")
            return state
    return None


def _past(entry: RunEntry, saved: JSON | None, outcome: str) -> PastRun:
    body = entry.body
    finished = body.get("finished_at")
    ended = datetime.fromisoformat(finished) if finished else None
    return PastRun(
        entry.run_id,
        datetime.fromisoformat(body["started_at"]),
        ended,
        outcome,
        {name: _amounts(each) for name, each in body["streams"].items()} if entry.phase == PUBLISHED else {},
        lags_at(saved, ended) if ended else {},
        error_of(entry, outcome),
        body.get("command"),
    )


def _amounts(report: JSON) -> Amounts:
    return Amounts(report["records"], report["bytes"], report["rejected"])
