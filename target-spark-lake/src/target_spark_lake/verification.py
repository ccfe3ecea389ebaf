"""`spark-lake verify`: the source against the lake, stream by stream, at the saved bookmarks. It only reads."""

from __future__ import annotations

import importlib
import logging
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.compared_source import ROW
from singer_spark.errors import ConfigurationError, LockedError, SingerSparkError, StorageError
from singer_spark.run_log import COMMITTED, last_committed
from singer_spark.scratch import scratch_folder
from singer_spark.state_store import published_state
from target_spark_lake.compared_columns import compared_columns
from target_spark_lake.comparison import Comparison
from target_spark_lake.lake_rows import committed_table
from target_spark_lake.lake_session import start_session
from target_spark_lake.lake_type import Struct, columns_of_spark
from target_spark_lake.lock_entry import newest_entry
from target_spark_lake.record_metadata import DELETED_AT, METADATA_COLUMNS
from target_spark_lake.stream_mapping import wants_mapping
from target_spark_lake.verify_report import StreamReport, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from singer_spark.compared_source import ComparedSource, SourceRows
    from singer_spark.state_store import StateStore
    from singer_spark.storage import Storage
    from target_spark_lake.lake_rows import LakeTable
    from target_spark_lake.layout import Layout
    from target_spark_lake.settings import TargetSettings

# By name alone: neither package imports the other (docs/decisions/0007-verify.md).
SOURCE_MODULE = "tap_spark_jdbc.source_view"
NAMED_KEYS = 100
logger = logging.getLogger("spark-lake")


def verify(
    storage: Storage,
    layout: Layout,
    store: StateStore,
    settings: TargetSettings,
    config: Mapping[str, Any],
    tap_config: Mapping[str, Any],
    *,
    catalog: Mapping[str, Any] | None = None,
    stream: str | None = None,
    named_keys: int = NAMED_KEYS,
) -> VerifyReport:
    """Compares the streams of a tap with their tables.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        store: Where the published state is.
        settings: The target's.
        config: The target's config as it was given.
        tap_config: The tap's config.
        catalog: The tap's catalog; None: all that its config selects.
        stream: This stream alone; None for all of them.
        named_keys: So many keys are named of each kind of difference.

    Raises:
        ConfigurationError: there is no such stream, the tap is not installed, or rows are changed on their way.
        LockedError: a run is being published, or was published meanwhile.
        SourceError: the database refused.
        StorageError: the lake can't be read.
    """
    if wants_mapping(config):
        raise ConfigurationError(
            "stream_maps or flattening change records on their way, so the lake's rows are not the source's: there is "
            "nothing to compare"
        )
    before = _state_of(storage, layout)
    saved = published_state(store)
    state = {} if saved is None else saved.value
    with _source(tap_config, catalog) as source, _scratch() as copies:
        session = start_session(settings, storage, source.jars)
        verifier = _Verifier(storage, layout, settings, session, state, copies, named_keys)
        report = verifier.report(source, _chosen(source, stream))
    if not report.agrees and _state_of(storage, layout) != before:
        raise LockedError(
            f"pipeline {layout.pipeline}: a run was published while its tables were compared; run verify again"
        )
    return report


def _state_of(storage: Storage, layout: Layout) -> str | None:
    """The last committed run, all of which readers see.

    Raises:
        LockedError: they don't yet.
    """
    last, lock = last_committed(storage, layout.runs), newest_entry(storage, layout)
    held = lock is not None and lock.is_held()
    if last is not None and last.phase == COMMITTED:
        way_out = "run verify again when it is done" if held else "run `spark-lake recover`, then verify again"
        raise LockedError(
            f"pipeline {layout.pipeline}: run {last.run_id} is committed, and not all of it is published yet; {way_out}"
        )
    if lock is not None and held:
        logger.info(
            "pipeline %s is held by %s: verify only reads, what that run has not published does not count",
            layout.pipeline, lock.holder(),
        )  # fmt: skip
    return None if last is None else last.run_id


@contextmanager
def _source(config: Mapping[str, Any], catalog: Mapping[str, Any] | None) -> Iterator[ComparedSource]:
    try:
        module = importlib.import_module(SOURCE_MODULE)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(SOURCE_MODULE.partition(".")[0]):
            raise
        raise ConfigurationError(
            "verify reads the source as tap-spark-jdbc does, which is not installed here: install it beside the target"
        ) from error
    source: ComparedSource = module.open_source(config, catalog)
    try:
        yield source
    finally:
        source.close()


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="verify-", dir=scratch_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _chosen(source: ComparedSource, stream: str | None) -> tuple[str, ...]:
    known = source.streams()
    if stream is None:
        return known
    if stream not in known:
        raise ConfigurationError(f"stream {stream}: the tap has no such stream; it has {', '.join(known) or 'none'}")
    return (stream,)


class NotLoadedError(ConfigurationError):
    """A stream has rows and no table."""


class _Verifier:
    """Compares single streams."""

    def __init__(
        self,
        storage: Storage,
        layout: Layout,
        settings: TargetSettings,
        session: SparkSession,
        state: Mapping[str, Any],
        copies: Path,
        named_keys: int,
    ) -> None:
        self._storage = storage
        self._layout = layout
        self._settings = settings
        self._session = session
        self._state = state
        self._copies = copies
        self._named_keys = named_keys

    def report(self, source: ComparedSource, streams: Sequence[str]) -> VerifyReport:
        """Compares streams."""
        reports, problems = [], []
        for stream in streams:
            try:
                reports.append(self._stream(source, stream))
            except NotLoadedError as error:
                problems.append(str(error))
        return VerifyReport(tuple(reports), tuple(problems))

    def _stream(self, source: ComparedSource, stream: str) -> StreamReport:
        # The lake first: what a run brings in between is newer than the bookmark at the source, too.
        table = committed_table(self._storage, self._layout, self._settings, stream)
        with source.opened(stream, self._state, self._session) as rows:
            if table is None:
                return self._without_table(rows)
            _tell(rows, table)
            comparison = self._comparison(rows, table)
            columns = [each.name for each in comparison.columns]
            asked = Struct(tuple(each for each in table.columns if each.name in {*columns, DELETED_AT}))
            with _told(rows, table):
                lake = table.rows(self._session, self._storage, self._copies, asked)
                found = comparison.of(rows.rows, lake)
        return StreamReport(stream, found.counts, found.keys, comparison.keys, rows.replication_key, rows.watermark)

    def _without_table(self, rows: SourceRows) -> StreamReport:
        """A stream without rows need not have a table."""
        with rows.told():
            if not rows.rows.isEmpty():
                raise NotLoadedError(
                    f"stream {rows.stream}: pipeline {self._layout.pipeline} never loaded it, there is no table of it "
                    f"in {self._storage.url}; load it first, or leave it out of what the tap selects"
                )
        return StreamReport(rows.stream, {}, {}, rows.key_properties, rows.replication_key, rows.watermark)

    def _comparison(self, rows: SourceRows, table: LakeTable) -> Comparison:
        columns = compared_columns(_columns_of(rows), table.columns)
        names = [each.name for each in columns]
        told = self._settings.options_of(rows.stream).key_properties
        keys = table.record.key_properties or rows.key_properties if told is None else told
        lacking = [name for name in keys if name not in names]
        if lacking or not columns:
            what = f"the key column {', '.join(lacking)}" if lacking else "any column"
            raise ConfigurationError(
                f"stream {rows.stream}: source and table {table.folder} don't both have {what}; is it another table?"
            )
        return Comparison(columns, tuple(keys), table.keeps_versions, self._named_keys)


def _columns_of(rows: SourceRows) -> Struct:
    return columns_of_spark(rows.rows.schema[ROW].dataType)


def _tell(rows: SourceRows, table: LakeTable) -> None:
    """Says what is compared, and what is not."""
    ours, theirs = _columns_of(rows).types, table.columns.types
    new = [name for name in ours if name not in theirs]
    gone = [name for name in theirs if name not in ours and name not in METADATA_COLUMNS]
    if new:
        logger.warning("stream %s: columns that the lake does not have: %s", rows.stream, ", ".join(new))
    if gone:
        logger.info("stream %s: columns that the source does not have any more: %s", rows.stream, ", ".join(gone))
    if rows.watermark is not None:
        logger.info("stream %s: comparing up to %s %s", rows.stream, rows.replication_key, rows.watermark)
        return
    why = "it has no replication key" if rows.replication_key is None else "it has no bookmark"
    logger.info(
        "stream %s: comparing all rows as they are now (%s): what has changed at the source since the last run differs",
        rows.stream, why,
    )  # fmt: skip


@contextmanager
def _told(rows: SourceRows, table: LakeTable) -> Iterator[None]:
    """Tells a failed job by whoever failed: the lake where it names one of its files, else the source."""
    try:
        with rows.told():
            yield
    except SingerSparkError as error:
        cause = " ".join(str(error.__cause__ or "").split())
        if "FAILED_READ_FILE" in cause or table.folder in cause:
            raise StorageError(
                f"stream {rows.stream}: table {table.folder} can't be read, or changed meanwhile; run verify again "
                f"({cause[:300]})"
            ) from error
        raise
