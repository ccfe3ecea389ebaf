"""Status of a bucket's pipelines: the last successful sync of each, its age, its problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, SingerSparkError, one_line
from singer_spark.program.amounts import seconds_of, span_text
from singer_spark.state.run_log import COMMITTED, PUBLISHED, RunEntry
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore
from singer_spark.store.storage import Storage, each
from target_spark_lake.commit.bookmarks import ended_early, idle_seconds, lag_seconds, watermarks
from target_spark_lake.commit.journal import FAILED, SUCCEEDED
from target_spark_lake.commit.lock import LockEntry, newest_entry
from target_spark_lake.commit.run_reports import (
    KINDS,
    RUNNING,
    bookmarks,
    entries,
    error_of,
    outcome_of,
    pipelines,
)
from target_spark_lake.formats.compaction_plan import has_many, is_small
from target_spark_lake.layout import Layout, is_data_file
from target_spark_lake.table.table_record import PARQUET, TableRecord, tables_of

JSON = dict[str, Any]


@dataclass(frozen=True)
class PipelineStatus:
    """One pipeline at a glance.

    Attributes:
        last_success: When its last successful sync ended, as text; None if there was none.
            `spark-lake` commands don't count.
        age_seconds: How long ago that was.
        outcome: Outcome of the last sync that ended; `committed` if the last commit, of a sync or a
            command, is not yet published; `running` while the first sync runs; None if none ever
            started.
        running: Whether a living process holds the pipeline.
        streams: For each stream the rows of the last successful sync, the bookmark and its age, how
            long no new rows have come, and the number of small files of each table folder with
            many.
    """

    pipeline: str
    last_success: str | None
    age_seconds: int | None
    outcome: str | None
    running: bool
    streams: Mapping[str, JSON]


def age_limits(words: Sequence[str]) -> dict[str, float]:
    """Maximum ages of a last success in seconds, by pattern of names, from `PATTERN=26h`; `6h` is
    for all others.

    Raises:
        ConfigurationError: a word is not an age.
    """
    limits: dict[str, float] = {}
    for word in words:
        pattern, _, age = word.rpartition("=")
        seconds = seconds_of(age)
        if seconds is None:
            raise ConfigurationError(
                RunCode.BAD_FLAG, f"--max-age {word}: {age!r} is not an age like 30m, 6h or 2d"
            )
        limits.pop(pattern, None)  # of several matches the last one counts
        limits[pattern] = seconds
    return limits


def status(
    storage: Storage,
    store_of: Callable[[str], StateStore],
    limits: Mapping[str, float],
    only: str | None = None,
    *,
    file_bytes: int = 128 << 20,
) -> tuple[list[PipelineStatus], list[str]]:
    """Status of all pipelines of a bucket, or of `only` one, with a line for each that is too old
    or failed.

    Raises:
        StorageError: the bucket can't be read.
    """
    names = pipelines(storage, *KINDS) if only is None else [only]
    now = datetime.now(UTC)
    tables, unreadable = tables_of(storage)

    def look(name: str) -> tuple[PipelineStatus | None, list[str]]:
        small_files = _small_files(storage, tables.get(name, {}), file_bytes)
        fitting = [pattern for pattern in limits if fnmatchcase(name, pattern)] or [""]
        return _look(storage, name, store_of, limits.get(fitting[-1]), now, small_files)

    looks = each(storage, look, names)
    problems = [problem for _, each_of in looks for problem in each_of]
    return [one for one, _ in looks if one is not None], [*problems, *unreadable.values()]


def _look(
    storage: Storage,
    pipeline: str,
    store_of: Callable[[str], StateStore],
    limit: float | None,
    now: datetime,
    small_files: Mapping[str, Mapping[str, int]],
) -> tuple[PipelineStatus | None, list[str]]:
    """Status and problems of one pipeline; an unreadable one doesn't hide others."""
    layout, problems = Layout(pipeline), []
    try:
        source = StateSource(store_of(pipeline), storage, pipeline)
        lock = newest_entry(storage, layout)
        last, success = _last_sync(storage, layout, lock)
        committed = source.last
    except SingerSparkError as error:
        return None, [f"pipeline {pipeline}: {one_line(error)}"]
    waits = committed is not None and outcome_of(committed, lock) == COMMITTED
    try:
        saved = source.saved
    except SingerSparkError as error:
        saved, problems = None, [f"pipeline {pipeline}: {one_line(error)}"]
    streams = _streams(success, saved.value if saved else {}, now)
    for stream, tables in small_files.items():
        streams.setdefault(stream, {})["small_files"] = tables
    ended = None if success is None else success.body["finished_at"] or success.body["committed_at"]
    one = PipelineStatus(
        pipeline,
        ended,
        _age(ended, now),
        COMMITTED if waits else _outcome(last, lock),
        lock is not None and lock.is_held(),
        streams,
    )
    if committed is not None and waits:
        problems.append(
            f"pipeline {pipeline}: run {committed.run_id}: {error_of(committed, COMMITTED)}"
        )
    elif one.outcome not in (None, RUNNING, SUCCEEDED):
        problems.append(f"pipeline {pipeline}: its last run {str(one.outcome).replace('_', ' ')}")
    first_since = lock.since if lock is not None and one.outcome == RUNNING else None
    problems += _too_old(
        one, limit, None if first_since is None else int((now - first_since).total_seconds())
    )
    return one, problems


def _small_files(
    storage: Storage, tables: Mapping[str, TableRecord], file_bytes: int
) -> dict[str, dict[str, int]]:
    """Number of small files of each folder with many, by stream; counted here if no run has counted
    them yet.
    """
    found: dict[str, dict[str, int]] = {}
    for table, record in tables.items():
        count = record.small_files
        if count is None and record.format == PARQUET:
            files = (file for file in storage.list(table) if is_data_file(table, file.path))
            count = sum(is_small(file.size, file_bytes) for file in files)
        if count is not None and has_many(count):
            found.setdefault(record.stream, {})[table] = count
    return found


def _last_sync(
    storage: Storage, layout: Layout, lock: LockEntry | None
) -> tuple[RunEntry | None, RunEntry | None]:
    """The last run of the target that ended, and the last successful one; commands of `spark-lake`
    bring no rows.
    """
    last = None
    for entry in entries(storage, layout):
        if entry.body.get("command") is None and outcome_of(entry, lock) != RUNNING:
            last = last or entry
            if entry.phase == PUBLISHED:
                return last, entry
    return last, None


def _outcome(last: RunEntry | None, lock: LockEntry | None) -> str | None:
    """Outcome of the last run that ended, including one that died before its commit and is not yet
    undone.
    """
    if lock is not None and not lock.released and lock.command is None:
        if (last is None or last.run_id < lock.run_id) and not lock.is_held():
            return FAILED
        if last is None:
            return RUNNING
    return None if last is None else str(last.body["outcome"])


def _streams(success: RunEntry | None, state: JSON, now: datetime) -> dict[str, JSON]:
    reports, saved = success.body["streams"] if success else {}, bookmarks(state)
    values = watermarks({"bookmarks": saved})
    began = (
        datetime.fromisoformat(success.body["started_at"])
        if success and not ended_early(state)
        else None
    )

    def idle(name: str) -> int | None:
        seconds = idle_seconds(values.get(name), began if name in reports else None, now)
        return None if seconds is None else int(seconds)

    return {
        name: {
            "records": reports.get(name, {}).get("records", 0),
            "rejected": reports.get(name, {}).get("rejected", 0),
            "replication_key_value": values.get(name),
            "watermark_age_seconds": _age(values.get(name), now),
            "no_new_rows_seconds": idle(name),
        }
        for name in sorted({*reports, *saved})
    }


def _age(value: Any, now: datetime) -> int | None:
    """Whole seconds since a moment; None if the value is not a moment."""
    lag = lag_seconds(value, now)
    return None if lag is None else int(lag)


def _too_old(one: PipelineStatus, limit: float | None, first_run_seconds: int | None) -> list[str]:
    age = one.age_seconds if one.age_seconds is not None else first_run_seconds
    if limit is None or (age is not None and age <= limit):
        return []
    reason = (
        "it never succeeded"
        if one.age_seconds is None
        else f"its last success is {span_text(one.age_seconds)} ago"
    )
    return [f"pipeline {one.pipeline}: {reason}; the limit is {span_text(limit)}"]
