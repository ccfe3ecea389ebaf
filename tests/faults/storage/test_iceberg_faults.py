"""Iceberg tables while runs die, sleep, or meet others who write: each run is one snapshot of each table, or none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary

from faults import iceberg_writer
from faults.faulty import DIE_AFTER, DIE_BEFORE, FAIL_AFTER, FAULTS, Counting, Died, Faulty, Interrupted, Proxy
from faults.iceberg_tables import StoredTables, TwoIcebergTables, catalog_calls, watched
from faults.small_lake import NO_BEATS
from faults.storage.test_delta_faults import CHANGES, GROWS, LAYOUT, rows_after, store_of
from servers.s3 import S3
from singer_spark.errors import SingerSparkError, StorageError, UnpublishableError
from singer_spark.process.identity import Process
from singer_spark.state.run_log import last_committed
from singer_spark.storage.storage import Storage
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.commit.recovery import free
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.maintenance import conversion
from target_spark_lake.maintenance.compaction import compact
from target_spark_lake.maintenance.vacuum import vacuum
from target_spark_lake.table_logs.iceberg_log.producer import RunSnapshot

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
DEADLINE = 60


def kept(lake: TwoIcebergTables) -> Callable[[], None]:
    """What brings the lake back to what it is now, at its place: Iceberg's metadata say where they lie."""
    copy = lake.folder.with_name(f"{lake.folder.name} kept")
    if lake.folder.exists():
        shutil.copytree(lake.folder, copy)

    def again() -> None:
        shutil.rmtree(lake.folder)
        if copy.exists():
            shutil.copytree(copy, lake.folder)

    return again


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_of_the_catalog_leaves_each_table_at_one_snapshot_a_run(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    for first in (True, False):  # the run that makes the tables, and a later one
        lake, counting = TwoIcebergTables(tmp_path / f"{first}"), Counting(None)
        if not first:
            lake.sync()
        again = kept(lake)
        with catalog_calls(monkeypatch, counting):
            lake.sync()
        assert counting.calls.count("commit_table") == 2
        for nth in counting.places(fault):
            again()
            with catalog_calls(monkeypatch, Faulty(None, nth, fault)), suppress(SingerSparkError, Died):
                lake.sync(process=dead)
            lake.check_readers_see_whole_runs(at_least=0 if first else 1)
            lake.check_exact(lake.sync())


@pytest.mark.parametrize("fault", [FAIL_AFTER, DIE_BEFORE])
def test_a_fault_at_any_storage_call_of_a_run_leaves_each_table_at_one_snapshot_a_run(
    tmp_path: Path, dead: Process, fault: str
) -> None:
    lake, counting = TwoIcebergTables(tmp_path / "lake"), Counting()
    lake.sync()
    again = kept(lake)
    lake.sync(lake.storage(counting))
    for nth in counting.places(fault):
        again()
        broken = lake.storage(partial(Faulty, nth=nth, fault=fault))
        with suppress(SingerSparkError, Died):
            lake.sync(broken, dead)
        lake.check_readers_see_whole_runs(at_least=1)
        lake.check_exact(lake.sync())


# Only these change anything: dying after a request that reads is dying after the change before it.
CHANGING = frozenset({"write", "copy", "delete", "commit_table"})


def test_a_fault_at_every_fifth_change_on_s3_leaves_each_table_at_one_snapshot_a_run(
    s3: S3, tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, counting = StoredTables(tmp_path, s3), Counting(None)
    lake.sync()
    through(lake, counting, monkeypatch, lake.sync)
    changes = sum(name in CHANGING for name in counting.calls)
    assert changes > 12
    for nth, fault in zip(range(1, changes + 1, 5), cycle((DIE_AFTER, FAIL_AFTER)), strict=False):
        with suppress(SingerSparkError, Died):
            through(lake, Faulty(None, nth, fault, CHANGING), monkeypatch, lambda storage: lake.sync(storage, dead))
        lake.check_readers_see_whole_runs(at_least=1)
        lake.check_exact(lake.sync())


def through(lake: TwoIcebergTables, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], Any]) -> None:
    """Does something with calls to the storage, or requests to the store, and calls of the catalog by a proxy."""

    def around(inner: Any) -> Proxy:
        proxy.inner = inner
        return proxy

    with catalog_calls(monkeypatch, proxy):
        act(lake.storage(around))


class UpkeptTables(TwoIcebergTables):
    """What `compact` and `vacuum` make of them."""

    def compact(self, storage: Storage, process: Process | None = None) -> None:
        settings = TargetSettings.from_config({"bucket": str(self.folder), "pipeline": "test", "format": "iceberg"})
        compact(open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS, process=process), settings)

    def vacuum(self, storage: Storage, process: Process | None = None) -> None:
        run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS, process=process)
        vacuum(run, store_of(self), timedelta(0))

    def needed(self, table: str) -> list[str]:
        return [task.file.file_path.removeprefix("file://") for task in self.table(table).scan().plan_files()]


@pytest.mark.parametrize("upkeep", ["compact", "vacuum"])
def test_a_fault_at_any_change_of_a_compaction_or_a_vacuum_leaves_each_table_as_it_is_read(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, upkeep: str
) -> None:
    lake, counting = UpkeptTables(tmp_path / "lake"), Counting(None)
    for _ in range(3):
        lake.sync()
    again = kept(lake)
    act = getattr(lake, upkeep)
    through(lake, counting, monkeypatch, act)
    changes = sum(name in iceberg_writer.CHANGES for name in counting.calls)
    assert changes > 6
    for nth, fault in zip(range(1, changes + 1), cycle((FAIL_AFTER, DIE_AFTER)), strict=False):
        again()
        proxy = Faulty(None, nth, fault, iceberg_writer.CHANGES)
        with suppress(SingerSparkError, Died):
            through(lake, proxy, monkeypatch, lambda storage: act(storage, dead))
        assert [lake.rows(each) for each in (GROWS, CHANGES)] == [rows_after(each, 3) for each in (GROWS, CHANGES)]
        act(lake.storage())
        for table in (GROWS, CHANGES):
            assert lake.rows(table) == rows_after(table, 3)
            made = lake.table(table).metadata.snapshots
            if upkeep == "compact":
                assert len(lake.needed(table)) == 1
                assert len(made) == 4
            else:
                standing = sorted(map(str, (lake.folder / table).rglob("*.parquet")))
                assert [each.snapshot_id for each in made] == [lake.table(table).metadata.current_snapshot_id]
                assert standing == sorted(lake.needed(table))
    assert lake.sync() == 4
    assert lake.rows(GROWS) == rows_after(GROWS, 4)


def meanwhile(lake: TwoIcebergTables, table: str, act: Any) -> Interrupted:
    """Does something else right before the run's snapshot of a table is taken by the catalog."""

    def fits(name: str, args: tuple[Any, ...]) -> bool:
        return name == "commit_table" and args[0].name()[-1] == table[4:]

    return Interrupted(None, fits, act)


@pytest.mark.parametrize("table", [GROWS, CHANGES])
def test_a_publisher_that_slept_before_its_snapshot_makes_no_second_one(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    lake = TwoIcebergTables(tmp_path)
    lake.sync()
    with (
        catalog_calls(monkeypatch, meanwhile(lake, table, lambda: [lake.sync(), lake.sync()])),
        pytest.raises(StorageError),
    ):
        lake.sync(process=dead)
    lake.check_exact(4)


class Rewrite(RunSnapshot):
    """What rewrite_data_files of Spark does; PyIceberg itself makes no REPLACE."""

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        return Summary(Operation.REPLACE, **super()._summary().additional_properties)


def rewrite(table: Table) -> None:
    """All rows in one file."""
    rows, old = table.scan().to_arrow(), [task.file for task in table.scan().plan_files()]
    with table.transaction() as transaction:
        snapshot = Rewrite(Operation.OVERWRITE, transaction, table.io)
        for each in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
            snapshot.append_data_file(each)
        for each in old:
            snapshot.delete_data_file(each)
        snapshot.commit()


def test_files_that_someone_compacts_while_a_run_replaces_them_are_replaced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = TwoIcebergTables(tmp_path)
    for _ in range(3):
        lake.sync()
    for table in (GROWS, CHANGES):
        with catalog_calls(monkeypatch, meanwhile(lake, table, lambda table=table: rewrite(lake.table(table)))):
            number = lake.sync()
        assert [lake.rows(each) for each in (GROWS, CHANGES)] == [rows_after(each, number) for each in (GROWS, CHANGES)]
    # With nobody in between, compacted files are files like others.
    rewrite(lake.table(GROWS))
    number = lake.sync()
    assert lake.rows(GROWS) == rows_after(GROWS, number)


def test_rows_that_someone_appends_while_a_run_replaces_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = TwoIcebergTables(tmp_path)
    for _ in range(2):
        lake.sync()
    theirs = pa.table({"id": pa.array([99], pa.int64()), "run": pa.array([0], pa.int64())})
    with catalog_calls(monkeypatch, meanwhile(lake, CHANGES, lambda: lake.table(CHANGES).append(theirs))):
        lake.sync()
    assert lake.rows(CHANGES) == [*rows_after(CHANGES, 3), (99, 0)]


def test_rows_that_someone_changes_while_a_run_replaces_them_are_for_a_person_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = conflicting(tmp_path, monkeypatch)
    seen = lake.table(CHANGES).metadata.snapshots[-2].snapshot_id
    with pytest.raises(StorageError, match="rollback_to_snapshot"):
        lake.sync()
    lake.table(CHANGES).manage_snapshots().rollback_to_snapshot(seen).commit()
    done = free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False)
    assert done.finished is not None
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))
    number = lake.sync()
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, number), rows_after(CHANGES, number))


def conflicting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> TwoIcebergTables:
    """A run that has its snapshot in `grows`, while someone deletes a row of `changes` that it replaces."""
    lake = TwoIcebergTables(folder)
    for _ in range(3):
        lake.sync()
    deletes = meanwhile(lake, CHANGES, lambda: lake.table(CHANGES).delete("id = 5"))
    with (
        catalog_calls(monkeypatch, deletes),
        pytest.raises(UnpublishableError, match=r"rollback.*--give-up-publishing"),
    ):
        lake.sync()
    return lake


def give_up(lake: TwoIcebergTables) -> None:
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    run_id = entry.body.get("gives_up", entry.body)["run_id"]
    free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False, giving_up=run_id)


def test_a_conflict_is_given_up_and_the_snapshots_that_were_made_are_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = conflicting(tmp_path / "lake", monkeypatch)
    again = kept(lake)
    for nth, fault in zip(range(1, 9), cycle(FAULTS), strict=False):
        again()
        with catalog_calls(monkeypatch, Faulty(None, nth, fault)), suppress(SingerSparkError, Died):
            give_up(lake)
        free_of_the_dead(lake)
        give_up(lake)
        assert lake.rows(GROWS) == rows_after(GROWS, 3)
        assert lake.rows(CHANGES) == [row for row in rows_after(CHANGES, 3) if row[0] != 5]
    assert lake.sync() == 4
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))


def free_of_the_dead(lake: TwoIcebergTables) -> None:
    """This process lives on as if it were the one that died: its lock is taken away."""
    for file in lake.storage().list(LAYOUT.locks):
        lake.storage().delete(file.path)


def test_a_publisher_that_slept_while_its_run_was_given_up_makes_no_snapshot(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where a person has put the table back since, so that its files would fit again."""
    lake = TwoIcebergTables(tmp_path)
    for _ in range(3):
        lake.sync()
    seen = lake.table(CHANGES).metadata.current_snapshot_id
    assert seen is not None

    def others() -> None:
        lake.table(CHANGES).delete("id = 5")
        with pytest.raises(UnpublishableError):
            lake.sync()
        give_up(lake)
        lake.table(CHANGES).manage_snapshots().rollback_to_snapshot(seen).commit()

    with (
        catalog_calls(monkeypatch, meanwhile(lake, GROWS, others)),
        pytest.raises(StorageError, match="was taken for dead and replaced"),
    ):
        lake.sync(process=dead)
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 3), rows_after(CHANGES, 3))
    assert lake.sync() == 4
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_fault_at_any_call_of_the_catalog_of_a_conversion_leaves_tables_of_one_format(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def convert(lake: TwoIcebergTables, process: Process | None = None) -> list[str]:
        run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process, command="convert")
        return conversion.convert(run, "iceberg", None)

    lake = TwoIcebergTables(tmp_path / "lake", kind)
    lake.sync()
    lake.sync()
    again = kept(lake)
    # Each fault at each call, of one kind of table or the other.
    faults = (FAIL_AFTER, DIE_AFTER) if kind == "parquet" else (DIE_AFTER, FAIL_AFTER)
    for nth, fault in zip(range(1, 7), cycle(faults), strict=False):
        again()
        lake.kind = kind
        with catalog_calls(monkeypatch, Faulty(None, nth, fault)), suppress(SingerSparkError, Died):
            convert(lake, dead)
        convert(lake)
        lake.kind = "iceberg"
        assert [lake.rows(each) for each in (GROWS, CHANGES)] == [rows_after(each, 2) for each in (GROWS, CHANGES)]
        assert len(lake.runs(GROWS)) == 1
        assert lake.sync() == 3
        assert lake.rows(CHANGES) == rows_after(CHANGES, 3)


def test_kill_9_at_every_fifth_change_from_the_commit_on_loses_and_repeats_nothing_and_no_reader_sees_a_part(
    tmp_path: Path,
) -> None:
    """One lake with a reader in a loop, one process a step, until a process gets through all of its steps."""
    lake = TwoIcebergTables(tmp_path)
    lake.sync()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ["PYTHONPATH"]])}
    step, code = -1, -signal.SIGKILL
    with watched(lake) as numbers:
        while code == -signal.SIGKILL:
            step += 5
            command = [sys.executable, "-m", "faults.iceberg_writer", str(tmp_path), str(step)]
            code = subprocess.run(command, env=environment, timeout=DEADLINE, check=False).returncode
            lake.check_readers_see_whole_runs(at_least=1)
            lake.check_exact(lake.sync())
    assert code == 0
    assert step > 8
    assert len(set(numbers)) > 4, "the reader saw hardly a run"
