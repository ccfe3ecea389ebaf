"""A compaction of Delta tables dies, fails, or meets other writers: each table is as it was, or one
version on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from faults.faulty import Watched
from faults.small_lake import NO_BEATS, Wrap
from faults.storage.test_delta_faults import (
    CHANGES,
    GROWS,
    LAYOUT,
    TwoTables,
    rows_after,
    store_of,
)
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.identity import Process
from singer_spark.errors import StorageError
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.commit.recovery import free
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats.maintenance import CompactedTable, compact
from target_spark_lake.table.changes import StagedFile, TableChange
from target_spark_lake.table.table_record import TableRecord

RUNS = 3


class CompactedTables(TwoTables):
    """Three runs, and what `compact` makes of them; the table that only grows has partitions."""

    def compact(
        self, storage: Storage | None = None, process: Process | None = None
    ) -> tuple[CompactedTable, ...]:
        settings = TargetSettings.from_config(
            {"bucket": str(self.folder), "pipeline": "test", "format": "delta"}
        )
        run = open_run(
            storage or self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process
        )
        return compact(run, settings)

    def record(self, table: str) -> TableRecord:
        plain = super().record(table)
        partitioned = replace(
            plain, columns={**plain.columns, "part": "string"}, partition_by=("part",)
        )
        return partitioned if table == GROWS else plain

    def change(
        self,
        run: PipelineRun,
        table: str,
        staged: tuple[StagedFile, ...],
        retire: tuple[str, ...] = (),
    ) -> TableChange:
        if table == GROWS:
            staged = tuple(replace(file, partition="part=a%20b") for file in staged)
        return super().change(run, table, staged, retire)

    def check_rows(self) -> None:
        """At any moment a reader finds each row once."""
        for table in (GROWS, CHANGES):
            assert self.rows(table) == rows_after(table, RUNS)

    def check_compacted(self) -> None:
        self.check_exact(RUNS)
        assert [len(self.table(table).file_uris()) for table in (GROWS, CHANGES)] == [1, 1]
        assert self.table(GROWS).partitions() == [{"part": "a b"}]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> CompactedTables:
    lake = CompactedTables(tmp_path_factory.mktemp("runs") / "first")
    for _ in range(RUNS):
        lake.sync()
    return lake


@pytest.fixture
def tables(first: CompactedTables, tmp_path: Path) -> Callable[[object], CompactedTables]:
    """Gives lakes of the same three runs."""
    return lambda name: first.copied(tmp_path / f"{name}")


@pytest.mark.slow
@in_turn
def test_fault_in_delta_compaction_leaves_one_version(
    tables: Callable[[object], CompactedTables], dead: Process, faults: tuple[str, ...], step: int
) -> None:
    """A fault at any storage call of a compaction of delta tables leaves one version each at
    most.
    """
    assert len(tables("probe").compact()) == 2

    def compact(lake: CompactedTables, wrap: Wrap) -> None:
        lake.compact(lake.storage(wrap), dead)

    for lake in fault_sweep(tables, compact, *faults, step=step):
        lake.check_rows()
        lake.compact()
        lake.check_compacted()


@pytest.mark.slow
def test_readers_during_compaction_see_each_row_once(
    tables: Callable[[object], CompactedTables],
) -> None:
    """A reader after every call of a compaction finds each row of a Delta table once."""
    lake = tables("watched")
    lake.compact(lake.storage(lambda files: Watched(files, lake.check_rows)))
    lake.check_compacted()


def test_delta_compaction_keeps_concurrent_writes(
    tables: Callable[[object], CompactedTables],
) -> None:
    """A compaction of Delta tables that meets other writers keeps their rows, each once."""
    lake = tables("optimized")
    lake.compact(lake.met_before_entry(CHANGES, lambda: lake.table(CHANGES).optimize.compact()))
    lake.check_compacted()
    lake = tables("appended")
    more = pa.table({"id": [100], "run": [100]})
    lake.compact(
        lake.met_before_entry(
            CHANGES, lambda: write_deltalake(lake.table(CHANGES), more, mode="append")
        )
    )
    assert lake.rows(CHANGES) == [*rows_after(CHANGES, RUNS), (100, 100)]
    lake = tables("slept")
    lake.compact(
        lake.met_before_entry(
            CHANGES, lambda: free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=True)
        )
    )
    lake.check_compacted()


def test_delta_compaction_with_changed_rows_waits(
    tables: Callable[[object], CompactedTables],
) -> None:
    """A compaction of Delta tables that meets changed rows needs a decision by hand."""
    lake = tables("changed")
    seen = lake.table(CHANGES).version()
    with pytest.raises(StorageError, match=rf"LAKE-085 .*TO VERSION AS OF.*{seen}"):
        lake.compact(lake.met_before_entry(CHANGES, lambda: lake.table(CHANGES).delete("id = 1")))
    lake.table(CHANGES).restore(seen)
    free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False)
    lake.check_compacted()
