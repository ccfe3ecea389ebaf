"""A compaction dies, or its storage fails, at any call: no row is lost or stays twice, and no
reader misses one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import DIE_BEFORE, FAIL_AFTER, Watched
from faults.small_lake import LAYOUT, NO_BEATS, PIPELINE, STEP, SmallLake, Wrap, ids_as_received
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.identity import Process
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats.maintenance import CompactedTable, compact
from target_spark_lake.table.changes import TableChange

RUNS = 3
BOUND = RUNS * STEP


@dataclass(frozen=True)
class CompactedLake(SmallLake):
    """`grows` has two files a run."""

    options: dict[str, Any] = field(default_factory=dict, hash=False)

    def compact(
        self, storage: Storage | None = None, process: Process | None = None
    ) -> tuple[CompactedTable, ...]:
        settings = TargetSettings.from_config({"bucket": self.url, "pipeline": PIPELINE})
        run = open_run(
            storage or self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process
        )
        return compact(run, settings)

    def check_readers_see_all_rows(self) -> None:
        """At the moment of publishing, a row may be there twice; none is missing, and none is
        new.
        """
        for stream in ("grows", "whole"):
            assert set(self.rows(stream)) == set(range(BOUND))
        assert self.published_bound() == BOUND

    def files(self) -> int:
        return len(self.storage().list(LAYOUT.table("grows")))


@dataclass(frozen=True)
class PartitionedLake(CompactedLake):
    """The two files of a run are in two folders, so names alone don't show the order of rows any
    more.
    """

    def appended(self, run: PipelineRun, bound: int) -> TableChange:
        change = super().appended(run, bound)
        staged = tuple(replace(file, partition=f"part={n}") for n, file in enumerate(change.staged))
        return replace(change, staged=staged)

    def order(self) -> list[int]:
        """The rows as they were received."""
        storage, table = self.storage(), LAYOUT.table("grows")
        return ids_as_received(storage, LAYOUT, table, [file.path for file in storage.list(table)])

    def check_order(self) -> None:
        assert list(dict.fromkeys(self.order())) == list(range(BOUND))


@pytest.fixture
def folders(tmp_path: Path) -> PartitionedLake:
    lake = PartitionedLake(f"{tmp_path}/folders")
    for _ in range(RUNS):
        lake.sync()
    return lake


def compacted(lake: CompactedLake, wrap: Wrap, process: Process | None = None) -> None:
    lake.compact(lake.faulty_files(wrap), process)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [FAIL_AFTER, DIE_BEFORE])
def test_fault_while_folders_are_compacted(
    folders: PartitionedLake, dead: Process, fault: str
) -> None:
    """A fault at any storage call of a compaction of folders keeps the order of the rows."""
    for lake in fault_sweep(folders.copied, partial(compacted, process=dead), fault):
        lake.check_order()
        lake.compact()
        assert lake.files() == 2
        lake.check_order()
        lake.check_exact(BOUND)


@pytest.mark.slow
def test_readers_while_folders_are_compacted(folders: PartitionedLake) -> None:
    """Before and after each call of a compaction of folders the order of the rows is there."""
    compacted(folders, lambda files: Watched(files, folders.check_order))
    assert (folders.files(), len(folders.storage().list(".dataspoc/orders"))) == (2, 2)
    folders.check_exact(folders.sync())
    folders.compact()
    assert len(folders.storage().list(".dataspoc/orders")) == 2


@pytest.fixture
def first(tmp_path: Path) -> CompactedLake:
    """A lake of three runs."""
    lake = CompactedLake(f"{tmp_path}/first")
    for _ in range(RUNS):
        lake.sync()
    return lake


@pytest.mark.slow
@in_turn
def test_fault_in_compaction_loses_nothing(
    first: CompactedLake, dead: Process, faults: tuple[str, ...], step: int
) -> None:
    """A fault at any storage call of a compaction loses and repeats nothing."""
    probe = first.copied("probe")
    (done,) = probe.compact()
    assert (done.retired, done.published, probe.files()) == (2 * RUNS, 1, 1)
    probe.check_exact(BOUND)
    calls = {"move", "delete", "create", "exchange", "replace"}
    operation = partial(compacted, process=dead)
    for lake in fault_sweep(first.copied, operation, *faults, step=step, calls=calls):
        lake.check_readers_see_all_rows()
        lake.compact()
        lake.check_exact(BOUND)
        assert lake.files() == 1
    lake.check_exact(lake.sync())


@pytest.mark.slow
def test_readers_during_compaction_see_all_rows(
    first: CompactedLake,
) -> None:
    """A reader before and after every call of a compaction finds all rows."""
    compacted(first, lambda files: Watched(files, first.check_readers_see_all_rows))
    assert first.files() == 1
    first.check_exact(BOUND)
