"""`spark-lake verify`: the source against the lake, stream by stream, at the saved bookmarks. It only reads."""

from __future__ import annotations

import importlib
import logging
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, LockedError
from singer_spark.process.scratch import scratch_folder
from singer_spark.state.run_log import COMMITTED, last_committed
from singer_spark.state.store import published_state
from target_spark_lake.commit.lock_entry import newest_entry
from target_spark_lake.intake.stream_mapping import wants_mapping
from target_spark_lake.staging.lake_session import start_session
from target_spark_lake.verify.stream_verifier import StreamVerifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from singer_spark.compared_source import ComparedSource
    from singer_spark.state.store import StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.layout import Layout
    from target_spark_lake.settings import TargetSettings
    from target_spark_lake.verify.verify_report import VerifyReport

# By name alone: neither package imports the other (docs/inside/decisions/0007-verify.md).
SOURCE_MODULE = "tap_spark_jdbc.verify.source_view"
NAMED_KEYS = 100
logger = logging.getLogger("spark-lake")


@dataclass(frozen=True)
class TapSide:
    """How the tap is run.

    Attributes:
        config: Its config.
        catalog: Its catalog; None: all that the config selects.
        from_environment: Whether environment variables are part of the config.
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
    named_keys: int = NAMED_KEYS,
) -> VerifyReport:
    """Compares the streams of a tap with their tables.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        store: Where the published state is.
        settings: The target's.
        config: The target's config as it was given.
        tap: How the tap is run.
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
    with _source(tap) as source, _scratch() as copies:
        session = start_session(settings, storage, source.jars)
        verifier = StreamVerifier(storage, layout, settings, session, state, copies, named_keys)
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
def _source(tap: TapSide) -> Iterator[ComparedSource]:
    try:
        module = importlib.import_module(SOURCE_MODULE)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(SOURCE_MODULE.partition(".")[0]):
            raise
        raise ConfigurationError(
            "verify reads the source as tap-spark-jdbc does, which is not installed here: install it beside the target"
        ) from error
    source: ComparedSource = module.open_source(tap.config, tap.catalog, from_environment=tap.from_environment)
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
