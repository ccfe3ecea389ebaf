"""`spark-lake verify`: compares the source with the lake, stream by stream, at the saved bookmarks.

It only reads; a repair is a journalled run, which holds the pipeline from the first look to the
commit.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from singer_spark.compared_source import ComparedSource
from singer_spark.core.scratch import scratch_folder
from singer_spark.core.signals import too_late_to_stop
from singer_spark.errors import ConfigurationError, LockedError
from singer_spark.state.run_log import COMMITTED, last_committed
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore
from singer_spark.store.storage import Storage
from target_spark_lake.commit.lock_entry import newest_entry
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.intake.stream_mapping import wants_mapping
from target_spark_lake.layout import Layout
from target_spark_lake.ops.repair import Repair
from target_spark_lake.ops.stream_verifier import StreamVerifier
from target_spark_lake.ops.verify_report import VerifyReport
from target_spark_lake.table.changes import Commit

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun

# By name only: neither package imports the other (docs/decisions.md, 7).
SOURCE_MODULE = "tap_spark_jdbc.verify.source_view"
logger = logging.getLogger("spark-lake")


@dataclass(frozen=True)
class TapSide:
    """How the tap is run: its config, its catalog if any, and whether environment variables are
    used.
    """

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
        ConfigurationError: there is no such stream, the tap is not installed, or records are
            transformed on their way.
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
            f"pipeline {layout.pipeline}: a run was published while its tables were compared; run "
            "verify again"
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
            "stream_maps or flattening change records on their way, so the lake's rows are not the "
            "source's: there is "
            "nothing to compare"
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
            f"pipeline {layout.pipeline}: run {last.run_id} is committed, and not all of it is "
            f"published yet; {way_out}"
        )
    if lock is not None and held:
        logger.info(
            "pipeline %s is held by %s: verify only reads, what that run has not published does "
                "not count",
            layout.pipeline, lock.holder(),
        )  # fmt: skip
    return None if last is None else last.run_id


def _opened(tap: TapSide) -> ComparedSource:
    try:
        module = importlib.import_module(SOURCE_MODULE)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(SOURCE_MODULE.partition(".")[0]):
            raise
        raise ConfigurationError(
            "verify reads the source as tap-spark-jdbc does, which is not installed here: install "
            "it beside the target"
        ) from error
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
            f"stream {stream}: the tap has no such stream; it has {', '.join(known) or 'none'}"
        )
    return (stream,)
