"""A publisher that slept while its run was abandoned brings nothing back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.abandoned_run import check_before, committed_and_dead, give_up, lose, sleeping
from faults.small_lake import LAYOUT, STEP, SmallLake
from singer_spark.core.identity import Process
from singer_spark.errors import StorageError
from singer_spark.store.storage import Storage


def test_stale_publisher_restores_nothing(tmp_path: Path, dead: Process) -> None:
    """A publisher that slept while its run was abandoned restores nothing."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()

    with pytest.raises(StorageError):
        lake.sync(sleeping(lake, lambda name, _: name == "move"), dead)
    check_before(lake, STEP)
    lake.check_exact(lake.sync())


@pytest.mark.parametrize("runs_before", [0, 2])
def test_stale_publisher_does_not_write_its_state(
    tmp_path: Path, dead: Process, runs_before: int
) -> None:
    """The state before is the same value, but never the very text that the sleeper saw."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    for _ in range(runs_before):
        lake.sync()
    with pytest.raises(StorageError, match="LAKE-062"):
        lake.sync(
            sleeping(lake, lambda name, args: name == "exchange" and args[0] == LAYOUT.state), dead
        )
    assert lake.published_bound() == runs_before * STEP
    assert lake.rows("grows") == list(range(runs_before * STEP))
    lake.check_exact(lake.sync())


def test_stale_publisher_checks_before_retiring(tmp_path: Path, dead: Process) -> None:
    """After a restore the files that it would retire belong to the table again."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    moved: list[str] = []

    def before_it_retires(name: str, args: tuple[Any, ...]) -> bool:
        moved.extend(name for _ in "x" if name == "move")
        looks = name == "read" and args[0].startswith(LAYOUT.runs)
        return bool(moved) and (
            looks or (name == "delete" and args[0].startswith(LAYOUT.table("whole")))
        )

    with pytest.raises(StorageError, match="LAKE-061"):
        lake.sync(sleeping(lake, before_it_retires), dead)
    check_before(lake, STEP)
    lake.check_exact(lake.sync())


def test_unmoved_files_are_removed_before_moved_ones(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a bucket, where many requests travel at once."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    run_id = committed_and_dead(lake, dead, 2)
    lose(lake, run_id, "grows/part-1.zstd.parquet")
    at_once: list[set[str]] = []

    def each(storage: Storage, action: Callable[[Any], Any], items: Any) -> list[Any]:
        items = list(items)
        if action == storage.delete:
            at_once.append({path.partition("/")[0] for path in items})
        return [action(item) for item in items]

    monkeypatch.setattr("target_spark_lake.commit.publish.each", each)
    give_up(lake, run_id)
    assert at_once == [{".dataspoc"}, {"raw"}]
