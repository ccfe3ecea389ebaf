"""Protects a dead run's checkpoint from commands that commit something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.errors import LockedError

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun


def guard_checkpoint(run: PipelineRun, command: str, again: str) -> None:
    """Refuse a commit that would void what the next run could resume from.

    Raises:
        LockedError: there is such a run; `again` says what to do after it.
    """
    left = run.recovery.checkpoint
    if left is not None:
        raise LockedError(
            f"pipeline {run.layout.pipeline}: run {left.run_id} died and the next run goes on from what it staged, "
            f"which {command} would throw away; {again} after that run"
        )
