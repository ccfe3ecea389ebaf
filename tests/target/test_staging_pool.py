"""The batches in the background: what a failed run leaves of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from singer_spark.storage import Storage
from target_spark_lake import staging_pool
from target_spark_lake.changes import StagedBatch
from target_spark_lake.staging_pool import StagingPool


class Job:
    """Stands for a batch: all that the pool itself asks of one."""

    folder = ".dataspoc/staging/runs/test/run/s/00000"


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_that_ends_after_its_run_failed_leaves_nothing_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    storage, at_work, abandoned = Storage(str(tmp_path)), threading.Event(), threading.Event()
    staged = tmp_path / Job.folder / "plain.parquet"

    def stage_batch(*_: Any) -> StagedBatch:
        at_work.set()
        assert abandoned.wait(60)
        staged.parent.mkdir(parents=True)
        staged.touch()
        if fails:
            raise OSError("disk")
        return StagedBatch(())

    monkeypatch.setattr(staging_pool, "stage_batch", stage_batch)
    pool = StagingPool(storage, lambda: pytest.fail("no batch asks for Spark"))
    job: Any = Job()
    future = pool.submit(job)
    assert at_work.wait(60)
    pool.abandon()
    abandoned.set()
    assert isinstance(future.exception(60), OSError) is fails
    assert not staged.exists()
