"""What a run commits of its staged files: the changes of its tables, and the records that were
rejected.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from singer_spark.store.storage import each
from target_spark_lake.table.changes import StagedFile, TableChange
from target_spark_lake.validate.quarantine import STAGED_NAME, one_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.load.staging_pool import StagingPool

logger = logging.getLogger("target-spark-lake")


def changes_of(
    loads: Sequence[StreamLoad],
    run: PipelineRun,
    settings: TargetSettings,
    pool: StagingPool,
    spool: Path,
) -> tuple[TableChange, ...]:
    """The change of each stream's table."""
    if not any(load.columns.fields for load in loads):
        # A run without new data loads neither Arrow nor Spark.
        return tuple(TableChange(load.schema.stream, load.table) for load in loads)
    from target_spark_lake.formats.auto_compaction import AutoCompaction
    from target_spark_lake.formats.table_changes import table_changes
    from target_spark_lake.formats.table_writer import TableWriter

    change_of = partial(table_changes, TableWriter(run, settings, pool.session, spool))
    # A merge has Spark, and its memory, to itself.
    plain = [load for load in loads if not load.schema.merges]
    changes = each(run.storage, change_of, plain)
    found = {load.schema.stream: change for load, change in zip(plain, changes, strict=True)}
    compaction = AutoCompaction(run, settings, spool)
    return tuple(
        compaction.of(change)
        for load in loads
        for change in found.get(load.schema.stream) or change_of(load)
    )


def rejected_records(
    run: PipelineRun, sinks: Mapping[str, StreamSink], spool: Path
) -> dict[str, StagedFile]:
    """The quarantined records of each stream that has any, in one file."""
    staged = {name: f"{run.staging_path(name)}/{STAGED_NAME}" for name in sinks}
    files = {
        name: one_file(run.storage, sink.rejected(), staged[name], spool)
        for name, sink in sinks.items()
    }
    return {name: file for name, file in files.items() if file is not None}


def log_rejected(run: PipelineRun, rejected: Mapping[str, StagedFile]) -> None:
    """Warn of the records that a committed run has left out, and say where they are."""
    message = "stream %s: %s invalid record(s) rejected, kept with the reason in %s"
    for stream, file in rejected.items():
        location = f"{run.storage.url}/{run.layout.rejected(run.run_id, stream)}"
        logger.warning(message, stream, f"{file.rows:,}", location)
