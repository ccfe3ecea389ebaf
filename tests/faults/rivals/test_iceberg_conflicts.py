"""Iceberg tables while others write to them, or publishers wake up: rows are right, or someone must
decide.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pytest

from faults.faulty import FAULTS, Died, Faulty
from faults.iceberg_tables import TwoIcebergTables, catalog_calls, give_up, kept, meanwhile, rewrite
from faults.small_lake import NO_BEATS
from faults.storage.test_delta_faults import CHANGES, GROWS, LAYOUT, rows_after, store_of
from singer_spark.core.identity import Process
from singer_spark.errors import SingerSparkError, StorageError, UnpublishableError
from target_spark_lake.commit.recovery import free

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("table", [GROWS, CHANGES])
def test_stale_publisher_makes_no_second_snapshot(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """A publisher that slept before its snapshot does not make a second one."""
    lake = TwoIcebergTables(tmp_path)
    lake.sync()
    with (
        catalog_calls(monkeypatch, meanwhile(lake, table, lambda: [lake.sync(), lake.sync()])),
        pytest.raises(StorageError),
    ):
        lake.sync(process=dead)
    lake.check_exact(4)


def test_files_compacted_meanwhile_are_still_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that someone compacts while a run replaces them are still replaced."""
    lake = TwoIcebergTables(tmp_path)
    for _ in range(3):
        lake.sync()
    for table in (GROWS, CHANGES):
        with catalog_calls(
            monkeypatch, meanwhile(lake, table, lambda table=table: rewrite(lake.table(table)))
        ):
            number = lake.sync()
        assert [lake.rows(each) for each in (GROWS, CHANGES)] == [
            rows_after(each, number) for each in (GROWS, CHANGES)
        ]
    # With nobody in between, compacted files are files like others.
    rewrite(lake.table(GROWS))
    number = lake.sync()
    assert lake.rows(GROWS) == rows_after(GROWS, number)


def test_rows_appended_during_a_replacement_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that someone appends while a run replaces others stay."""
    lake = TwoIcebergTables(tmp_path)
    for _ in range(2):
        lake.sync()
    theirs = pa.table({"id": pa.array([99], pa.int64()), "run": pa.array([0], pa.int64())})
    with catalog_calls(
        monkeypatch, meanwhile(lake, CHANGES, lambda: lake.table(CHANGES).append(theirs))
    ):
        lake.sync()
    assert lake.rows(CHANGES) == [*rows_after(CHANGES, 3), (99, 0)]


def test_rows_changed_meanwhile_need_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that someone changes while a run replaces them are left for a person to resolve."""
    lake = conflicting(tmp_path, monkeypatch)
    seen = lake.table(CHANGES).metadata.snapshots[-2].snapshot_id
    with pytest.raises(StorageError, match=r"LAKE-085 .*rollback_to_snapshot"):
        lake.sync()
    lake.table(CHANGES).manage_snapshots().rollback_to_snapshot(seen).commit()
    done = free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False)
    assert done.finished is not None
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))
    number = lake.sync()
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (
        rows_after(GROWS, number),
        rows_after(CHANGES, number),
    )


def conflicting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> TwoIcebergTables:
    """A run that has its snapshot in `grows`, while someone deletes a row of `changes` that it
    replaces.
    """
    lake = TwoIcebergTables(folder)
    for _ in range(3):
        lake.sync()
    deletes = meanwhile(lake, CHANGES, lambda: lake.table(CHANGES).delete("id = 5"))
    with (
        catalog_calls(monkeypatch, deletes),
        pytest.raises(UnpublishableError, match=r"LAKE-08[57] .*rollback.*--give-up-publishing"),
    ):
        lake.sync()
    return lake


def test_abandoned_conflict_undoes_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Abandoning a run with a conflict undoes the snapshots that were made."""
    lake = conflicting(tmp_path / "lake", monkeypatch)
    again = kept(lake)
    for nth, fault in zip(range(1, 9), cycle(FAULTS), strict=False):
        again(nth)
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


def test_stale_publisher_of_abandoned_run_adds_nothing(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if the table was restored since, so that its files would fit again."""
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
        pytest.raises(StorageError, match=r"run \S+ \(process .*\) took over"),
    ):
        lake.sync(process=dead)
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 3), rows_after(CHANGES, 3))
    assert lake.sync() == 4
    assert (lake.rows(GROWS), lake.rows(CHANGES)) == (rows_after(GROWS, 4), rows_after(CHANGES, 4))
