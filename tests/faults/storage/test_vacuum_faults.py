"""A vacuum dies, fails, or meets other writers: readers of kept versions and later runs never miss
a file.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from faults.faulty import Died, Interrupted, Watched
from faults.small_lake import NO_BEATS, Wrap
from faults.storage.test_delta_faults import CHANGES, GROWS, LAYOUT, TwoTables, rows_after, store_of
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.identity import Process
from singer_spark.errors import LockedError, SingerSparkError
from singer_spark.state.run_log import run_ids
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.commit.recovery import free
from target_spark_lake.formats.maintenance import Vacuumed, vacuum

RUNS = 4


class VacuumedTables(TwoTables):
    """Four runs: `changes` has a replaced file of each but the last."""

    def vacuum(self, storage: Storage | None = None, process: Process | None = None) -> Vacuumed:
        run = open_run(
            storage or self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process
        )
        return vacuum(run, store_of(self), timedelta(0))

    def replaced(self) -> list[str]:
        """Files that the newest versions of the tables have not."""
        present = {
            path.removeprefix("file://")
            for table in (GROWS, CHANGES)
            for path in self.table(table).file_uris()
        }
        found = (
            str(path)
            for path in (self.folder / "raw").rglob("*.parquet")
            if "_delta_log" not in str(path)
        )
        return [path for path in found if path not in present]

    def check_rows(self) -> None:
        for table in (GROWS, CHANGES):
            assert self.rows(table) == rows_after(table, RUNS)

    def check_vacuumed(self) -> None:
        self.check_rows()
        assert self.replaced() == []
        assert self.storage().list(".dataspoc/staging") == []
        assert len(self.storage().list(LAYOUT.locks)) == 1


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> VacuumedTables:
    lake = VacuumedTables(tmp_path_factory.mktemp("runs") / "first")
    for _ in range(RUNS):
        lake.sync()
    return lake


@pytest.fixture
def tables(first: VacuumedTables, tmp_path: Path) -> Callable[[object], VacuumedTables]:
    """Gives lakes of the same four runs."""
    return lambda name: first.copied(tmp_path / f"{name}")


@pytest.mark.slow
@in_turn
def test_fault_in_vacuum_removes_nothing_needed(
    tables: Callable[[object], VacuumedTables], dead: Process, faults: tuple[str, ...], step: int
) -> None:
    """A fault at any storage call of a vacuum removes nothing that is needed."""
    probe = tables("probe")
    found = probe.vacuum()
    assert ([each.table for each in found.tables], len(found.journals.files)) == (
        [CHANGES],
        RUNS - 1,
    )
    probe.check_vacuumed()

    def vacuum(lake: VacuumedTables, wrap: Wrap) -> None:
        lake.vacuum(lake.storage(wrap), dead)

    for lake in fault_sweep(tables, vacuum, *faults, step=step):
        lake.check_rows()
        lake.vacuum()
        lake.check_vacuumed()
    assert lake.sync() == RUNS + 1


@pytest.mark.slow
def test_reader_during_vacuum_finds_all_rows(
    tables: Callable[[object], VacuumedTables],
) -> None:
    """The table is read after every storage call of the vacuum."""
    lake = tables("watched")
    lake.vacuum(lake.storage(lambda files: Watched(files, lake.check_rows)))
    lake.check_vacuumed()


def test_restored_version_survives_unfinished_vacuum(
    tables: Callable[[object], VacuumedTables], dead: Process
) -> None:
    """A version that someone restored before the vacuum was finished stays."""
    lake = tables("restored")
    before = lake.table(CHANGES).version() - 1
    wanted = DeltaTable(str(lake.folder / CHANGES), version=before).to_pyarrow_table().num_rows

    def dies(name: str, args: tuple[object, ...]) -> bool:
        return name == "delete" and str(args[0]).startswith(CHANGES)

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        lake.vacuum(lake.storage(lambda files: Interrupted(files, dies, die)), dead)
    lake.table(CHANGES).restore(before)
    free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False)
    assert lake.table(CHANGES).to_pyarrow_table().num_rows == wanted
    lake.vacuum()
    assert lake.replaced() == []
    assert lake.table(CHANGES).to_pyarrow_table().num_rows == wanted


def test_taken_over_vacuum_removes_nothing(
    tables: Callable[[object], VacuumedTables],
) -> None:
    """A vacuum that sleeps before its commit and loses its lock removes no file."""
    lake = tables("slept")
    replaced = lake.replaced()

    def commits(name: str, args: tuple[object, ...]) -> bool:
        return name == "create" and str(args[0]).startswith(LAYOUT.runs)

    rival = lambda: free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=True)  # noqa: E731
    with pytest.raises(LockedError):
        lake.vacuum(lake.storage(lambda files: Interrupted(files, commits, rival)))
    assert lake.replaced() == replaced
    assert len(run_ids(lake.storage(), LAYOUT.runs)) == RUNS + 1


def test_stale_vacuum_removes_no_later_files(
    tables: Callable[[object], VacuumedTables],
) -> None:
    """A vacuum that slept after its commit removes no file of a later run."""
    lake = tables("slept")

    def removes(name: str, args: tuple[object, ...]) -> bool:
        return name == "delete" and str(args[0]).startswith(CHANGES)

    def rival() -> None:
        free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=True)
        assert lake.sync() == RUNS + 1

    with pytest.raises(SingerSparkError):
        lake.vacuum(lake.storage(lambda files: Interrupted(files, removes, rival)))
    for table in (GROWS, CHANGES):
        assert lake.rows(table) == rows_after(table, RUNS + 1)
    assert lake.sync() == RUNS + 2
