"""Iceberg tables while runs die or their storage and catalog fail: each run is one snapshot of each
table, or none.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from faults import iceberg_writer
from faults.faulty import DIE_AFTER, DIE_BEFORE, FAIL_AFTER, FAULTS, Died, Faulty, Proxy
from faults.iceberg_tables import StoredTables, TwoIcebergTables, catalog_calls, kept, watched
from faults.small_lake import NO_BEATS, Wrap
from faults.storage.test_delta_faults import CHANGES, GROWS, LAYOUT, rows_after, store_of
from faults.sweep import fault_sweep
from servers.s3 import S3
from singer_spark.core.identity import Process
from singer_spark.errors import SingerSparkError
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats import maintenance
from target_spark_lake.formats.maintenance import compact, vacuum

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
DEADLINE = 60


@pytest.mark.parametrize("fault", FAULTS)
def test_catalog_fault_leaves_one_snapshot_per_run(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A fault at any call of the catalog leaves each table at one snapshot per run."""
    for first in (True, False):  # the run that makes the tables, and a later one
        tables = TwoIcebergTables(tmp_path / f"{first}")
        if not first:
            tables.sync()

        def run(lake: TwoIcebergTables, wrap: Wrap) -> None:
            with catalog_calls(monkeypatch, wrap(None)):
                lake.sync(process=dead)

        for lake in fault_sweep(kept(tables), run, fault, calls=["commit_table"] * 2):
            lake.check_readers_see_whole_runs(at_least=0 if first else 1)
            lake.check_exact(lake.sync())


@pytest.mark.parametrize("fault", [FAIL_AFTER, DIE_BEFORE])
def test_storage_fault_leaves_one_snapshot_per_run(
    tmp_path: Path, dead: Process, fault: str
) -> None:
    """A fault at any storage call of a run leaves each table at one snapshot per run."""
    tables = TwoIcebergTables(tmp_path / "lake")
    tables.sync()

    def run(lake: TwoIcebergTables, wrap: Wrap) -> None:
        lake.sync(lake.storage(wrap), dead)

    for lake in fault_sweep(kept(tables), run, fault):
        lake.check_readers_see_whole_runs(at_least=1)
        lake.check_exact(lake.sync())


# Only these change anything: dying after a request that reads is dying after the change before it.
CHANGING = frozenset({"write", "copy", "delete", "commit_table"})


def test_s3_fault_leaves_one_snapshot_per_run(
    s3: S3, tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault at every fifth change on S3 leaves each table at one snapshot per run."""
    stored = StoredTables(tmp_path, s3)
    stored.sync()

    def run(lake: StoredTables, wrap: Wrap) -> None:
        through(lake, wrap(None), monkeypatch, lambda storage: lake.sync(storage, dead))

    swept = fault_sweep(
        lambda _: stored,
        run,
        DIE_AFTER,
        FAIL_AFTER,
        only=CHANGING,
        step=5,
        calls={"commit_table"},
        least=13,
    )
    for lake in swept:
        lake.check_readers_see_whole_runs(at_least=1)
        lake.check_exact(lake.sync())


def through(
    lake: TwoIcebergTables, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], Any]
) -> None:
    """Does something with calls to the storage, or requests to the store, and calls of the catalog
    by a proxy.
    """

    def around(inner: Any) -> Proxy:
        proxy.inner = inner
        return proxy

    with catalog_calls(monkeypatch, proxy):
        act(lake.storage(around))


class UpkeptTables(TwoIcebergTables):
    """What `compact` and `vacuum` make of them."""

    def compact(self, storage: Storage, process: Process | None = None) -> None:
        settings = TargetSettings.from_config(
            {"bucket": str(self.folder), "pipeline": "test", "format": "iceberg"}
        )
        compact(open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS, process=process), settings)

    def vacuum(self, storage: Storage, process: Process | None = None) -> None:
        run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS, process=process)
        vacuum(run, store_of(self), timedelta(0))

    def needed(self, table: str) -> list[str]:
        return [
            task.file.file_path.removeprefix("file://")
            for task in self.table(table).scan().plan_files()
        ]


@pytest.mark.parametrize("upkeep", ["compact", "vacuum"])
def test_fault_in_upkeep_leaves_rows_unchanged(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, upkeep: str
) -> None:
    """A fault at every other change of a compaction or vacuum leaves the rows of each table
    unchanged.
    """
    lake = UpkeptTables(tmp_path / "lake")
    for _ in range(3):
        lake.sync()
    act = getattr(lake, upkeep)

    def keep_up(lake: UpkeptTables, wrap: Wrap) -> None:
        through(lake, wrap(None), monkeypatch, lambda storage: act(storage, dead))

    changes = iceberg_writer.CHANGES
    faults = (FAIL_AFTER, DIE_AFTER)
    for _ in fault_sweep(kept(lake), keep_up, *faults, only=changes, step=2, least=7):
        assert [lake.rows(each) for each in (GROWS, CHANGES)] == [
            rows_after(each, 3) for each in (GROWS, CHANGES)
        ]
        act(lake.storage())
        for table in (GROWS, CHANGES):
            assert lake.rows(table) == rows_after(table, 3)
            made = lake.table(table).metadata.snapshots
            if upkeep == "compact":
                assert len(lake.needed(table)) == 1
                assert len(made) == 4
            else:
                standing = sorted(map(str, (lake.folder / table).rglob("*.parquet")))
                assert [each.snapshot_id for each in made] == [
                    lake.table(table).metadata.current_snapshot_id
                ]
                assert standing == sorted(lake.needed(table))
    assert lake.sync() == 4
    assert lake.rows(GROWS) == rows_after(GROWS, 4)


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_catalog_fault_in_conversion_leaves_one_format(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A fault at any catalog call of a conversion leaves all tables in one format."""

    def convert(lake: TwoIcebergTables, process: Process | None = None) -> list[str]:
        run = open_run(
            lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process, command="convert"
        )
        return maintenance.convert(run, "iceberg", None)

    lake = TwoIcebergTables(tmp_path / "lake", kind)
    lake.sync()
    lake.sync()
    again = kept(lake)
    # Each fault at each call, of one kind of table or the other.
    faults = (FAIL_AFTER, DIE_AFTER) if kind == "parquet" else (DIE_AFTER, FAIL_AFTER)
    for nth, fault in zip(range(1, 7), cycle(faults), strict=False):
        again(nth)
        lake.kind = kind
        with catalog_calls(monkeypatch, Faulty(None, nth, fault)), suppress(SingerSparkError, Died):
            convert(lake, dead)
        convert(lake)
        lake.kind = "iceberg"
        assert [lake.rows(each) for each in (GROWS, CHANGES)] == [
            rows_after(each, 2) for each in (GROWS, CHANGES)
        ]
        assert len(lake.runs(GROWS)) == 1
        assert lake.sync() == 3
        assert lake.rows(CHANGES) == rows_after(CHANGES, 3)


def test_kill_9_in_iceberg_commit_loses_nothing(
    tmp_path: Path,
) -> None:
    """`kill -9` at every fifth change repeats no row, and no reader sees a part."""
    lake = TwoIcebergTables(tmp_path)
    lake.sync()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ["PYTHONPATH"]]),
    }
    step, code = -1, -signal.SIGKILL
    with watched(lake) as numbers:
        while code == -signal.SIGKILL:
            step += 5
            command = [sys.executable, "-m", "faults.iceberg_writer", str(tmp_path), str(step)]
            code = subprocess.run(
                command, env=environment, timeout=DEADLINE, check=False
            ).returncode
            lake.check_readers_see_whole_runs(at_least=1)
            lake.check_exact(lake.sync())
    assert code == 0
    assert step > 8
    assert len(set(numbers)) > 4, "the reader saw hardly a run"
