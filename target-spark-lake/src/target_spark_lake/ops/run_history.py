"""History of pipelines as plain values: what each run did, and what is in the tables now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime
from typing import Any

from singer_spark.errors import DamagedError, SingerSparkError, one_line
from singer_spark.state.run_log import PUBLISHED, RunEntry, moment_of, read_entry, run_ids
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore
from singer_spark.store.storage import Storage, each
from target_spark_lake.commit.journal import SUCCEEDED
from target_spark_lake.commit.lock_entry import newest_entry
from target_spark_lake.commit.run_reports import error_of, outcome_of, undecided
from target_spark_lake.commit.watermark import ended_early, watermarks
from target_spark_lake.layout import HISTORY, Layout
from target_spark_lake.table.table_record import TableRecord

JSON = dict[str, Any]
UNREADABLE = "unreadable"


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
        pipeline: Its name.
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
    from target_spark_lake.ops.lake_rows import table_files
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
