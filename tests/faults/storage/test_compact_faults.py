"""A compaction dies, or its storage fails, at any call: no row is lost or stays twice, and no
reader misses one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import DIE_BEFORE, FAIL_AFTER, FAULTS, Counting, Died, Faulty, Watched
from faults.small_lake import LAYOUT, NO_BEATS, PIPELINE, STEP, SmallLake, ids_as_received
from singer_spark.core.identity import Process
from singer_spark.errors import SingerSparkError
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats.compaction import CompactedTable, compact
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
        """In the publishing moment a row may stand twice; none is missing, and none is new."""
        for stream in ("grows", "whole"):
            assert set(self.rows(stream)) == set(range(BOUND))
        assert self.published_bound() == BOUND

    def files(self) -> int:
        return len(self.storage().list(LAYOUT.table("grows")))


@dataclass(frozen=True)
class PartitionedLake(CompactedLake):
    """The two files of a run lie in two folders, so names alone don't tell the order of rows any
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


@pytest.mark.slow
def test_a_fault_at_any_storage_call_of_a_compaction_of_folders_keeps_the_order_in_which_rows_were_received(  # noqa: E501
    tmp_path: Path, dead: Process
) -> None:
    first = PartitionedLake(f"{tmp_path}/first")
    for _ in range(RUNS):
        first.sync()

    def lake(name: object) -> PartitionedLake:
        shutil.copytree(first.url, tmp_path / f"{name}")
        return PartitionedLake(f"{tmp_path}/{name}")

    probe = lake("probe")
    counting = Counting()
    probe.compact(probe.faulty_files(counting))
    assert (probe.files(), len(probe.storage().list(".dataspoc/orders"))) == (2, 2)
    for fault in (FAIL_AFTER, DIE_BEFORE):
        for nth in counting.places(fault):
            broken = lake(f"{fault}{nth}")
            storage = broken.faulty_files(partial(Faulty, nth=nth, fault=fault))
            with suppress(SingerSparkError, Died):
                broken.compact(storage, dead)
            broken.check_order()
            broken.compact()
            assert broken.files() == 2
            broken.check_order()
            broken.check_exact(BOUND)
    watched = lake("watched")
    watched.compact(watched.faulty_files(lambda files: Watched(files, watched.check_order)))
    watched.check_exact(watched.sync())
    watched.compact()
    assert len(watched.storage().list(".dataspoc/orders")) == 2


@pytest.fixture
def lakes(tmp_path: Path) -> Callable[[object], CompactedLake]:
    """Gives lakes of the same three runs."""
    first = CompactedLake(f"{tmp_path}/first")
    for _ in range(RUNS):
        first.sync()

    def lake(name: object) -> CompactedLake:
        shutil.copytree(first.url, tmp_path / f"{name}")
        return CompactedLake(f"{tmp_path}/{name}")

    return lake


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_storage_call_of_a_compaction_loses_and_repeats_nothing(
    lakes: Callable[[object], CompactedLake], dead: Process, fault: str
) -> None:
    counting = Counting()
    probe = lakes("probe")
    (done,) = probe.compact(probe.faulty_files(counting))
    assert (done.retired, done.published, probe.files()) == (2 * RUNS, 1, 1)
    probe.check_exact(BOUND)
    calls = counting.calls
    assert {"move", "delete", "create", "exchange", "replace"} <= set(calls)
    for nth in counting.places(fault):
        lake = lakes(nth)
        broken = lake.faulty_files(partial(Faulty, nth=nth, fault=fault))
        with suppress(SingerSparkError, Died):
            lake.compact(broken, dead)
        lake.check_readers_see_all_rows()
        lake.compact()
        lake.check_exact(BOUND)
        assert lake.files() == 1
    lake.check_exact(lake.sync())


@pytest.mark.slow
def test_a_reader_before_and_after_every_call_of_a_compaction_finds_all_rows(
    lakes: Callable[[object], CompactedLake],
) -> None:
    lake = lakes("watched")
    lake.compact(lake.faulty_files(lambda files: Watched(files, lake.check_readers_see_all_rows)))
    assert lake.files() == 1
    lake.check_exact(BOUND)
