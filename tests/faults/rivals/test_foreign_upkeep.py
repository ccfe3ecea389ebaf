"""Others tidy up a table while a run is committed and not published: nothing is lost, nothing comes
twice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from faults.faulty import DIE_AFTER, Died, Faulty, Proxy
from faults.iceberg_tables import TwoIcebergTables, catalog_calls, give_up, meanwhile, rewrite
from faults.small_lake import NO_BEATS
from faults.storage.test_delta_faults import CHANGES, GROWS, LAYOUT, TwoTables, rows_after, store_of
from singer_spark.core.identity import Process
from singer_spark.errors import UnpublishableError
from singer_spark.state.run_log import RunEntry, last_committed
from target_spark_lake.commit.recovery import free
from target_spark_lake.iceberg_log.history import forget, unreferenced

SNAPSHOTS, CREATES = frozenset({"commit_table"}), frozenset({"create"})


class AskedTwice(Proxy):
    """The answer to a commit that landed is lost, and the transport asks once more."""

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        result = call()
        return call() if name == "commit_table" else result


def iceberg_dead_before_its_mark(
    folder: Path, dead: Process, runs: int = 1, made: int = 2
) -> TwoIcebergTables:
    """A lake with so many runs, and one that died after so many of its snapshots."""
    lake = TwoIcebergTables(folder)
    for _ in range(runs):
        lake.sync()
    with (
        pytest.MonkeyPatch.context() as patch,
        catalog_calls(patch, Faulty(None, made, DIE_AFTER, SNAPSHOTS)),
    ):
        with pytest.raises(Died):
            lake.sync(process=dead)
    return lake


def delta_dead_before_its_mark(folder: Path, dead: Process) -> TwoTables:
    """A lake with a run, and one that died after its entries."""
    lake = TwoTables(folder)
    lake.sync()
    with pytest.raises(Died):  # lock, journal, two logs
        lake.sync(lake.storage(lambda files: Faulty(files, 4, DIE_AFTER, CREATES)), dead)
    return lake


def waiting(lake: TwoTables) -> RunEntry:
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert entry.phase == "committed"
    return entry


def expire(lake: TwoIcebergTables, table: str, *, files: bool = True) -> None:
    """All snapshots but the current one, with the files that only they had."""
    found, current = lake.table(table), lake.table(table).metadata.current_snapshot_id
    old = [each.snapshot_id for each in found.metadata.snapshots if each.snapshot_id != current]
    found.maintenance.expire_snapshots().by_ids(old).commit()
    kept = {
        task.file.file_path.rpartition("/")[2] for task in lake.table(table).scan().plan_files()
    }
    for each in (lake.folder / table).glob("*.parquet") if files else ():
        if each.name not in kept:
            each.unlink()


def check(lake: TwoTables, number: int) -> None:
    assert [lake.rows(each) for each in (GROWS, CHANGES)] == [
        rows_after(each, number) for each in (GROWS, CHANGES)
    ]
    assert json.loads((lake.folder / LAYOUT.state).read_text()) == {"run": number}


def test_commit_retried_by_transport_keeps_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time it is refused, though it landed: what it has written is the table's."""
    lake = TwoIcebergTables(tmp_path)
    for number in (1, 2):
        with catalog_calls(monkeypatch, AskedTwice(None)):
            lake.sync()
        lake.check_exact(number)


def test_compacted_files_do_not_block_publishing(tmp_path: Path, dead: Process) -> None:
    """A run is published even if its files were compacted and removed before its mark."""
    lake = iceberg_dead_before_its_mark(tmp_path, dead)
    rewrite(lake.table(GROWS))
    expire(lake, GROWS)
    assert not list((tmp_path / GROWS).glob(f"{waiting(lake).run_id}*"))
    assert free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False).finished
    check(lake, 2)
    check(lake, lake.sync())


def test_optimized_delta_tables_are_published(tmp_path: Path, dead: Process) -> None:
    """A run is published even if its Delta files were optimized and vacuumed before its mark."""
    lake = delta_dead_before_its_mark(tmp_path, dead)
    lake.table(GROWS).optimize.compact()
    lake.table(GROWS).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not list((tmp_path / GROWS).glob(f"{waiting(lake).run_id}*"))
    assert free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False).finished
    check(lake, 2)
    check(lake, lake.sync())


def lose_of_changes(lake: TwoTables) -> None:
    """A file of the waiting run, in the table whose log it has not changed yet."""
    (file, *_) = [
        each for each in waiting(lake).body["publish"] if each["final"].startswith(CHANGES)
    ]
    lake.storage().delete(file["final"])
    lake.storage().delete(file["staged"])


def half_published(folder: Path, dead: Process, runs: int = 2) -> TwoIcebergTables:
    """A run that can't be published: its snapshot of `grows` is made, and a file of `changes` is
    gone.
    """
    lake = iceberg_dead_before_its_mark(folder, dead, runs, made=1)
    lose_of_changes(lake)
    assert lake.rows(GROWS) == rows_after(GROWS, runs + 1)
    return lake


def test_abandoning_works_with_expired_snapshots(tmp_path: Path, dead: Process) -> None:
    """A run is reverted exactly even where the snapshots before it were expired."""
    lake = half_published(tmp_path, dead)
    expire(lake, GROWS, files=False)
    give_up(lake)
    check(lake, 2)
    check(lake, lake.sync())


def test_expired_own_snapshot_is_not_taken_as_unmade(tmp_path: Path, dead: Process) -> None:
    """A run whose own snapshot was expired is not mistaken for one that never made it."""
    lake = half_published(tmp_path, dead)
    rewrite(lake.table(GROWS))
    expire(lake, GROWS, files=False)
    with pytest.raises(UnpublishableError, match="LAKE-087"):
        give_up(lake)
    assert waiting(lake).state == {"run": 3}


def test_vacuum_keeps_a_snapshot_rolled_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vacuum does not expire a snapshot that someone has rolled back to."""
    lake = TwoIcebergTables(tmp_path)
    for _ in range(3):
        lake.sync()
    first, second, _ = (each.snapshot_id for each in lake.table(GROWS).metadata.snapshots)
    found = unreferenced(lake.storage(), LAYOUT.catalog, GROWS, datetime.now(UTC))
    assert found.details["snapshots"] == [first, second]
    back = meanwhile(
        lake,
        GROWS,
        lambda: lake.table(GROWS).manage_snapshots().rollback_to_snapshot(second).commit(),
    )
    with catalog_calls(monkeypatch, back):
        forget(lake.storage(), LAYOUT.catalog, found)
    assert lake.rows(GROWS) == rows_after(GROWS, 2)
    assert first not in [each.snapshot_id for each in lake.table(GROWS).metadata.snapshots]


@pytest.mark.parametrize("given_up", [False, True])
def test_entry_is_found_despite_short_retention(
    tmp_path: Path, dead: Process, given_up: bool
) -> None:
    """A log entry is found again even if the table forgets transactions early."""
    lake = TwoTables(tmp_path)
    lake.sync()
    for table in (GROWS, CHANGES):
        lake.table(table).alter.set_table_properties(
            {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
        )
    with pytest.raises(Died):  # lock, journal, the log of `grows`
        lake.sync(lake.storage(lambda files: Faulty(files, 3, DIE_AFTER, CREATES)), dead)
    assert lake.table(GROWS).transaction_version("spark-lake/test") is None
    if given_up:
        lose_of_changes(lake)
        give_up(lake)
        check(lake, 1)
    else:
        assert free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False).finished
        check(lake, 2)


def test_forgotten_transaction_is_never_guessed(tmp_path: Path, dead: Process) -> None:
    """Where the log has forgotten a transaction, nothing is guessed."""
    lake = delta_dead_before_its_mark(tmp_path, dead)
    lake.table(GROWS).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    )
    lake.table(GROWS).create_checkpoint()
    (tmp_path / GROWS / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(UnpublishableError, match="LAKE-086"):
        free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False)
    with pytest.raises(UnpublishableError, match="LAKE-086"):
        give_up(lake)
    assert lake.rows(GROWS) == rows_after(GROWS, 2)


def test_recreated_delta_table_is_refused(tmp_path: Path, dead: Process) -> None:
    """A Delta table that someone recreated is not mistaken for the one seen before."""
    lake = TwoTables(tmp_path)
    lake.sync()
    with pytest.raises(Died):  # lock, journal
        lake.sync(lake.storage(lambda files: Faulty(files, 2, DIE_AFTER, CREATES)), dead)
    shutil.copytree(tmp_path / GROWS, tmp_path / "before")
    shutil.rmtree(tmp_path / GROWS / "_delta_log")
    write_deltalake(
        tmp_path / GROWS,
        pa.table({"id": pa.array([77], pa.int64()), "run": pa.array([0], pa.int64())}),
    )
    with pytest.raises(UnpublishableError, match=r"LAKE-085 .*raw/grows"):
        lake.sync()
    assert lake.rows(GROWS) == [(77, 0)]
    shutil.rmtree(tmp_path / GROWS / "_delta_log")
    shutil.copytree(tmp_path / "before" / "_delta_log", tmp_path / GROWS / "_delta_log")
    check(lake, lake.sync())


def test_shortened_delta_log_needs_a_person(tmp_path: Path, dead: Process) -> None:
    """A Delta log that is shorter than the one seen before is left for a person."""
    lake = TwoTables(tmp_path)
    for _ in range(2):
        lake.sync()
    with pytest.raises(Died):
        lake.sync(lake.storage(lambda files: Faulty(files, 2, DIE_AFTER, CREATES)), dead)
    newest = tmp_path / GROWS / "_delta_log" / f"{1:020d}.json"
    kept = newest.read_bytes()
    newest.unlink()
    with pytest.raises(UnpublishableError, match=r"LAKE-085 .*raw/grows"):
        lake.sync()
    newest.write_bytes(kept)
    check(lake, lake.sync())


def test_run_on_expired_delta_log_is_abandoned(tmp_path: Path, dead: Process) -> None:
    """A Delta log that has forgotten what a run was planned on needs manual action, and the run is
    abandoned.
    """
    lake = TwoTables(tmp_path)
    lake.sync()
    with pytest.raises(Died):  # lock, journal
        lake.sync(lake.storage(lambda files: Faulty(files, 2, DIE_AFTER, CREATES)), dead)
    lake.table(GROWS).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    lake.table(GROWS).create_checkpoint()
    (tmp_path / GROWS / "_delta_log" / f"{0:020d}.json").unlink()
    gone = r"the log of Delta table raw/grows has forgotten version 0.*abandon the run"
    with pytest.raises(UnpublishableError, match=gone):
        lake.sync()
    give_up(lake)
    check(lake, 1)
    check(lake, lake.sync())
