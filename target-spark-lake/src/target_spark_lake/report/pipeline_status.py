"""How the pipelines of a bucket are doing: the last good sync of each, its age, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from singer_spark.errors import ConfigurationError, SingerSparkError, one_line
from singer_spark.program.amounts import seconds_of, span_text
from singer_spark.state.run_log import COMMITTED, PUBLISHED, RunEntry
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore
from singer_spark.storage.at_once import each
from singer_spark.storage.storage import Storage
from target_spark_lake.commit.journal import FAILED, SUCCEEDED
from target_spark_lake.commit.lock_entry import LockEntry, newest_entry
from target_spark_lake.commit.run_reports import KINDS, RUNNING, bookmarks, entries, error_of, outcome_of, pipelines
from target_spark_lake.config_schema import PARQUET
from target_spark_lake.layout import Layout, is_data_file
from target_spark_lake.maintenance.compaction_plan import has_many, is_small
from target_spark_lake.state.watermark import lag_seconds, watermarks
from target_spark_lake.tables.table_record import TableRecord, tables_of

JSON = dict[str, Any]


@dataclass(frozen=True)
class PipelineStatus:
    """One pipeline at a glance.

    Attributes:
        pipeline: Its name.
        last_success: When its last good sync ended, as text; None: there was none. What `spark-lake` did is no sync.
        age_seconds: How long ago that was.
        outcome: Of the last sync that ended; `committed` where the last commit, a sync's or a command's, is not
            published yet; `running` where the first sync is at work; None where none ever began.
        running: Whether a living process holds it.
        streams: Rows of the last good sync, the bookmark and its age, stream by stream; of tables that have many small
            files, by their folders, how many.
    """

    pipeline: str
    last_success: str | None
    age_seconds: int | None
    outcome: str | None
    running: bool
    streams: Mapping[str, JSON]


@dataclass(frozen=True)
class AgeLimits:
    """How old the last good sync of a pipeline may be, in seconds."""

    named: tuple[tuple[str, float], ...] = ()
    others: float | None = None

    @staticmethod
    def of(words: Sequence[str]) -> AgeLimits:
        """Reads `6h` for all, and `PATTERN=26h` for those of a name; of several that fit the last one counts.

        Raises:
            ConfigurationError: one is no age.
        """
        named, others = [], None
        for word in words:
            pattern, _, age = word.rpartition("=")
            seconds = seconds_of(age)
            if seconds is None:
                raise ConfigurationError(f"--max-age {word}: {age!r} is no age like 30m, 6h or 2d")
            if pattern:
                named.append((pattern, seconds))
            else:
                others = seconds
        return AgeLimits(tuple(named), others)

    def of_pipeline(self, pipeline: str) -> float | None:
        """The limit of a pipeline; None: any age is fine."""
        fitting = [seconds for pattern, seconds in self.named if fnmatchcase(pipeline, pattern)]
        return fitting[-1] if fitting else self.others


def status(
    storage: Storage,
    store_of: Callable[[str], StateStore],
    limits: AgeLimits,
    only: str | None = None,
    *,
    file_bytes: int = 128 << 20,
) -> tuple[list[PipelineStatus], list[str]]:
    """Looks at all pipelines of a bucket, or at `only` one; with a line for each that is too old or failed.

    Raises:
        StorageError: the bucket can't be read.
    """
    names = pipelines(storage, *KINDS) if only is None else [only]
    now = datetime.now(UTC)
    tables, unreadable = tables_of(storage)

    def look(name: str) -> tuple[PipelineStatus | None, list[str]]:
        small_files = _small_files(storage, tables.get(name, {}), file_bytes)
        return _look(storage, name, store_of, limits.of_pipeline(name), now, small_files)

    looks = each(storage, look, names)
    problems = [problem for _, each_of in looks for problem in each_of]
    return [one for one, _ in looks if one is not None], [*problems, *unreadable.values()]


def _look(
    storage: Storage,
    pipeline: str,
    store_of: Callable[[str], StateStore],
    limit: float | None,
    now: datetime,
    small_files: Mapping[tuple[str, str], int],
) -> tuple[PipelineStatus | None, list[str]]:
    """One pipeline, and what is wrong with it; one that can't be read hides no other."""
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
    ended = None if success is None else success.body["finished_at"] or success.body["committed_at"]
    one = PipelineStatus(
        pipeline,
        ended,
        _age(ended, now),
        COMMITTED if waits else _outcome(last, lock),
        lock is not None and lock.is_held(),
        _with_small_files(_streams(success, bookmarks(saved.value) if saved else {}, now), small_files),
    )
    if committed is not None and waits:
        problems.append(f"pipeline {pipeline}: run {committed.run_id}: {error_of(committed, COMMITTED)}")
    elif one.outcome not in (None, RUNNING, SUCCEEDED):
        problems.append(f"pipeline {pipeline}: its last run {str(one.outcome).replace('_', ' ')}")
    first_since = lock.since if lock is not None and one.outcome == RUNNING else None
    problems += _too_old(one, limit, None if first_since is None else int((now - first_since).total_seconds()))
    return one, problems


def _small_files(storage: Storage, tables: Mapping[str, TableRecord], file_bytes: int) -> dict[tuple[str, str], int]:
    """How many each table has, by stream and folder; those that no run has counted yet are counted here."""
    found = {}
    for table, record in tables.items():
        if record.small_files is not None:
            found[record.stream, table] = record.small_files
        elif record.format == PARQUET:
            files = (file for file in storage.list(table) if is_data_file(table, file.path))
            found[record.stream, table] = sum(is_small(file.size, file_bytes) for file in files)
    return found


def _with_small_files(streams: dict[str, JSON], small_files: Mapping[tuple[str, str], int]) -> dict[str, JSON]:
    for (stream, table), count in small_files.items():
        if has_many(count):
            streams.setdefault(stream, {}).setdefault("small_files", {})[table] = count
    return streams


def _last_sync(storage: Storage, layout: Layout, lock: LockEntry | None) -> tuple[RunEntry | None, RunEntry | None]:
    """The last run of the target that ended, and the last good one; what `spark-lake` itself did brings no row."""
    last = None
    for entry in entries(storage, layout):
        if entry.body.get("command") is None and outcome_of(entry, lock) != RUNNING:
            last = last or entry
            if entry.phase == PUBLISHED:
                return last, entry
    return last, None


def _outcome(last: RunEntry | None, lock: LockEntry | None) -> str | None:
    """Of the last run that ended; one that died before its commit ended, too, though nobody has undone it yet."""
    if lock is not None and not lock.released and lock.command is None:
        if (last is None or last.run_id < lock.run_id) and not lock.is_held():
            return FAILED
        if last is None:
            return RUNNING
    return None if last is None else str(last.body["outcome"])


def _streams(success: RunEntry | None, saved: JSON, now: datetime) -> dict[str, JSON]:
    told = success.body["streams"] if success else {}
    values = watermarks({"bookmarks": saved})
    return {
        name: {
            "records": told.get(name, {}).get("records", 0),
            "rejected": told.get(name, {}).get("rejected", 0),
            "replication_key_value": values.get(name),
            "watermark_age_seconds": _age(values.get(name), now),
        }
        for name in sorted({*told, *saved})
    }


def _age(value: Any, now: datetime) -> int | None:
    """Whole seconds since a moment; None where it is none."""
    lag = lag_seconds(value, now)
    return None if lag is None else int(lag)


def _too_old(one: PipelineStatus, limit: float | None, first_run_seconds: int | None) -> list[str]:
    age = one.age_seconds if one.age_seconds is not None else first_run_seconds
    if limit is None or (age is not None and age <= limit):
        return []
    told = "it never succeeded" if one.age_seconds is None else f"its last success is {span_text(one.age_seconds)} ago"
    return [f"pipeline {one.pipeline}: {told}, allowed are {span_text(limit)}"]
