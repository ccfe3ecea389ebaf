"""The batches in the background: what a failed run leaves of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from singer_spark.storage import Storage
from target_spark_lake.changes import StagedBatch
from target_spark_lake.staging_pool import StagingPool


class Job:
    """A batch whose end comes when it may."""

    folder = ".dataspoc/staging/runs/test/run/s/00000"

    def __init__(self, staged: Path, *, fails: bool) -> None:
        self.staged, self.fails = staged, fails
        self.at_work, self.may_end = threading.Event(), threading.Event()

    def stage(self, *_: Any) -> StagedBatch:
        self.at_work.set()
        assert self.may_end.wait(60)
        self.staged.parent.mkdir(parents=True)
        self.staged.touch()
        if self.fails:
            raise OSError("disk")
        return StagedBatch(())


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_that_ends_after_its_run_failed_leaves_nothing_staged(tmp_path: Path, fails: bool) -> None:
    staged = tmp_path / Job.folder / "plain.parquet"
    job = Job(staged, fails=fails)
    pool = StagingPool(Storage(str(tmp_path)), lambda: pytest.fail("no batch asks for Spark"))
    future = pool.submit(job)
    assert job.at_work.wait(60)
    pool.abandon()
    job.may_end.set()
    assert isinstance(future.exception(60), OSError) is fails
    assert not staged.exists()
