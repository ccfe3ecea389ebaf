"""The batches in the background: what a failed run leaves of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from singer_spark.store.storage import Storage
from target_spark_lake.load.sink import StagingPool
from target_spark_lake.table.changes import StagedBatch

FOLDER = ".dataspoc/staging/runs/test/run/s/00000"


@dataclass
class Job:
    """Stands for a batch: all that the pool itself asks of one."""

    stage: Callable[..., StagedBatch]
    folder: str = FOLDER


@pytest.mark.parametrize("fails", [False, True])
def test_batch_ending_after_failure_leaves_nothing(tmp_path: Path, fails: bool) -> None:
    """A batch that ends after its run failed leaves nothing staged."""
    storage, at_work, abandoned = Storage(str(tmp_path)), threading.Event(), threading.Event()
    staged = tmp_path / FOLDER / "plain.parquet"

    def stage(*_: Any) -> StagedBatch:
        at_work.set()
        assert abandoned.wait(60)
        staged.parent.mkdir(parents=True)
        staged.touch()
        if fails:
            raise OSError("disk")
        return StagedBatch(())

    pool = StagingPool(storage, lambda: pytest.fail("no batch asks for Spark"))
    future = pool.submit(Job(stage))
    assert at_work.wait(60)
    pool.abandon()
    abandoned.set()
    assert isinstance(future.exception(60), OSError) is fails
    assert not staged.exists()
