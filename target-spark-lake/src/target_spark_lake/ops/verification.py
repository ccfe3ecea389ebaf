"""`spark-lake verify`: compares the source with the lake, stream by stream, at the saved bookmarks.

It only reads; a repair is a journalled run, which holds the pipeline from the first look to the
commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from singer_spark.compared_source import ComparedSource, SourceRows
from singer_spark.core.lake_type import Struct
from singer_spark.core.messages import DELETED_AT, LSN, METADATA_COLUMNS, UNCHANGED
from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import ConfigurationError, LockedError
from singer_spark.state.run_log import COMMITTED, last_committed
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore
from singer_spark.store.storage import Storage
from target_spark_lake.commit.lock import newest_entry
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.stream_mapping import wants_mapping
from target_spark_lake.layout import Layout
from target_spark_lake.ops.command import tap_module
from target_spark_lake.ops.compared_rows import LakeTable, committed_table, compared_columns
from target_spark_lake.ops.comparison import Comparison, Found
from target_spark_lake.ops.repair import Repair, repairable
from target_spark_lake.ops.summing import in_part, summed
from target_spark_lake.ops.verify_report import StreamReport, VerifyReport
from target_spark_lake.table.changes import Commit

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark_lake.commit.pipeline_run import PipelineRun

logger = logging.getLogger("spark-lake")


class NotLoadedError(ConfigurationError):
    """A stream has rows and no table."""


@dataclass(frozen=True)
class StreamVerifier:
    """Compares single streams at the pipeline's STATE; `scratch` is a local folder.

    A `repair`, if given, receives the differences.
    """

    storage: Storage
    layout: Layout
    settings: TargetSettings
    state: Mapping[str, Any]
    scratch: Path
    repair: Repair | None = None

    def report(self, source: ComparedSource, streams: Sequence[str]) -> VerifyReport:
        """Compare streams."""
        reports, problems = [], []
        for stream in streams:
            try:
                reports.append(self._stream(source, stream))
            except NotLoadedError as error:
                problems.append(str(error))
        left = self.repair.left.values() if self.repair else ()
        return VerifyReport(tuple(reports), (*problems, *left))

    def _stream(self, source: ComparedSource, stream: str) -> StreamReport:
        # The lake is read first, because rows that a run brings in between are also above the
        # bookmark at the source.
        table = committed_table(self.storage, self.layout, self.settings, stream)
        with source.opened(stream, self.state) as rows:
            if table is None or not table.columns.fields:
                return self._without_table(rows)
            _log_scope(rows, table)
            comparison = self._comparison(rows, table)
            found = self._compared(rows, table, comparison)
        facts = comparison.keys, rows.replication_key, rows.watermark
        repaired = None
        if self.repair is not None:
            repaired = {} if stream in self.repair.left else repairable(table, found.counts)
        return StreamReport(stream, found.counts, found.keys, *facts, repaired)

    def _compared(self, rows: SourceRows, table: LakeTable, comparison: Comparison) -> Found:
        """Compare by sums made in the database, then by rows where these differ or lack."""
        names = {*(each.name for each in comparison.columns), DELETED_AT}
        wanted = Struct(tuple(each for each in table.columns if each.name in names))

        def lake() -> Iterator[pa.RecordBatch]:
            return table.rows(self.storage, wanted)

        sums = summed(rows, comparison, lake)
        if sums is not None and sums.part is None:
            return Found(sums.counts, {})
        part, even = (None, None) if sums is None else (sums.part, sums.counts)

        def looked_at() -> Iterator[pa.RecordBatch]:
            for batch in lake():
                yield comparison.of_lake(
                    batch if part is None else in_part(part, comparison, batch)
                )

        use = None if self.repair is None else self.repair.staging(rows, table, comparison, part)
        return comparison.of(lambda: rows.read(part, comparison.of_source), looked_at, use, even)

    def _without_table(self, rows: SourceRows) -> StreamReport:
        """The report for a stream that has no table, which is fine if it has no rows."""
        if not rows.is_empty():
            raise NotLoadedError(
                LakeCode.TABLE_MISSING,
                f"stream {rows.stream}: pipeline {self.layout.pipeline} never loaded it, so there "
                f"is no table of it in {self.storage.url}; load it first, or deselect it in the "
                "tap",
            )
        return StreamReport(
            rows.stream, {}, {}, rows.key_properties, rows.replication_key, rows.watermark
        )

    def _comparison(self, rows: SourceRows, table: LakeTable) -> Comparison:
        columns = compared_columns(rows.columns, table.columns)
        names = [each.name for each in columns]
        chosen = self.settings.options_of(rows.stream).key_properties
        keys = table.record.key_properties or rows.key_properties if chosen is None else chosen
        lacking = [name for name in keys if name not in names]
        if lacking or not columns:
            what = f"the key column {', '.join(lacking)}" if lacking else "any column"
            raise ConfigurationError(
                LakeCode.NOT_COMPARABLE,
                f"stream {rows.stream}: source and table {table.folder} don't both have {what}; is "
                "it another table?",
            )
        return Comparison(columns, tuple(keys), table.keeps_versions, self.scratch)


def _log_scope(rows: SourceRows, table: LakeTable) -> None:
    """Log what is compared, and what is not."""
    ours, theirs = rows.columns.types, table.columns.types
    new = [name for name in ours if name not in theirs]
    own = {*METADATA_COLUMNS, LSN, UNCHANGED}
    gone = [name for name in theirs if name not in ours and name not in own]
    if new:
        logger.warning(
            "stream %s: columns that the lake does not have: %s", rows.stream, ", ".join(new)
        )
    if gone:
        logger.info(
            "stream %s: columns that the source no longer has: %s", rows.stream, ", ".join(gone)
        )
    if rows.watermark is not None:
        logger.info(
            "stream %s: comparing up to %s %s", rows.stream, rows.replication_key, rows.watermark
        )
        return
    why = "it has no replication key" if rows.replication_key is None else "it has no bookmark"
    logger.info(
        "stream %s: comparing all rows as they are now (%s): rows that changed at the source "
            "since the last run differ",
        rows.stream, why,
    )  # fmt: skip


@dataclass(frozen=True)
class TapSide:
    """How the tap is run: config, catalog if any, and whether variables complete it."""

    config: Mapping[str, Any]
    catalog: Mapping[str, Any] | None = None
    from_environment: bool = False


def verify(
    storage: Storage,
    layout: Layout,
    store: StateStore,
    settings: TargetSettings,
    config: Mapping[str, Any],
    tap: TapSide,
    *,
    stream: str | None = None,
) -> VerifyReport:
    """Compare the streams of a tap, or one of them, with their tables.

    Raises:
        ConfigurationError: there is no such stream, or no tap, or records are transformed.
        LockedError: a run is being published, or was published meanwhile.
        SourceError: the database refused.
        StorageError: the lake can't be read.
    """
    _refuse_mapping(config)
    before = _state_of(storage, layout)
    saved = StateSource(store, storage, layout.pipeline).saved
    state = {} if saved is None else saved.value
    with (
        closing(_opened(tap)) as source,
        TemporaryDirectory(
            prefix="verify-", dir=scratch_folder(), ignore_cleanup_errors=True
        ) as folder,
    ):
        verifier = StreamVerifier(storage, layout, settings, state, Path(folder))
        report = verifier.report(source, _chosen(source, stream))
    if not report.agrees and _state_of(storage, layout) != before:
        raise LockedError(
            LakeCode.CHANGED_BESIDE,
            f"pipeline {layout.pipeline}: a run was published while its tables were compared; run "
            "verify again",
        )
    return report


def repair(
    run: PipelineRun,
    settings: TargetSettings,
    config: Mapping[str, Any],
    tap: TapSide,
    *,
    stream: str | None = None,
) -> VerifyReport:
    """Compare like `verify`, and bring differences from the source into the lake; the state stays.

    The run is ended in any case; if nothing differs it leaves no trace.

    Raises:
        ConfigurationError: as in `verify`; or a table can't be repaired.
        LockedError: a dead run can be resumed, or another run took over the pipeline.
        RecordError: the source lacks more rows than `max_deletes_percent` allows.
        SourceError: the database refused.
        StorageError: the lake can't be read or written; the text says whether the run is committed.
    """
    with run.failing(ConfigurationError, LockedError):
        _refuse_mapping(config)
        run.guard_checkpoint("a repair", "repair")
    storage, layout, state = run.storage, run.layout, run.committed_state() or {}
    scratch = TemporaryDirectory(prefix="repair-", dir=scratch_folder(), ignore_cleanup_errors=True)
    with run.failing(ConfigurationError), scratch as folder:
        with closing(_opened(tap)) as source:
            staging = Repair(run, settings, Path(folder) / "staged")
            verifier = StreamVerifier(storage, layout, settings, state, Path(folder), staging)
            report = verifier.report(source, _chosen(source, stream))
        changes = staging.changes()
        if changes:
            too_late_to_stop()
            run.commit(Commit(changes))
            return replace(report, run_id=run.run_id)
    run.leave()
    return report


def _refuse_mapping(config: Mapping[str, Any]) -> None:
    if wants_mapping(config):
        raise ConfigurationError(
            LakeCode.NOT_COMPARABLE,
            "stream_maps or flattening change records in transit, so the lake's rows are not "
            "the source's: there is nothing to compare",
        )


def _state_of(storage: Storage, layout: Layout) -> str | None:
    """Id of the last committed run, which readers see completely.

    Raises:
        LockedError: it is not completely published.
    """
    last, lock = last_committed(storage, layout.runs), newest_entry(storage, layout)
    held = lock is not None and lock.is_held()
    if last is not None and last.phase == COMMITTED:
        way_out = (
            "run verify again when it is done"
            if held
            else "run `spark-lake recover`, then verify again"
        )
        raise LockedError(
            LakeCode.NOT_PUBLISHED_YET,
            f"pipeline {layout.pipeline}: run {last.run_id} is committed, but not all of it is "
            f"published yet; {way_out}",
        )
    if lock is not None and held:
        logger.info(
            "pipeline %s is held by %s; verify only reads, and ignores what that run has not "
                "published",
            layout.pipeline, lock.holder(),
        )  # fmt: skip
    return None if last is None else last.run_id


def _opened(tap: TapSide) -> ComparedSource:
    module = tap_module("source_view")
    if module is None:
        raise ConfigurationError(
            LakeCode.PROGRAM_MISSING,
            "verify reads the source as tap-spark-jdbc does, which is not installed here: install "
            "it beside the target",
        )
    source: ComparedSource = module.open_source(
        tap.config, tap.catalog, from_environment=tap.from_environment
    )
    return source


def _chosen(source: ComparedSource, stream: str | None) -> tuple[str, ...]:
    known = source.streams()
    if stream is None:
        return known
    if stream not in known:
        raise ConfigurationError(
            LakeCode.TABLE_MISSING,
            f"stream {stream}: the tap has no such stream; it has {', '.join(known) or 'none'}",
        )
    return (stream,)
