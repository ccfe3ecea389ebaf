"""A person removes the lock of a run that is at work, so that the next one has the same number."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, state_of
from singer_spark.errors import LockedError
from singer_spark.state.run_log import run_ids
from target_spark_lake.commit.lock import newest_entry
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.table.changes import Commit


def test_only_one_run_commits_after_lock_removal(tmp_path: Path) -> None:
    """If a person removes the lock between two runs, only one of them commits."""
    lake = SmallLake(str(tmp_path), {})
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    shutil.rmtree(tmp_path / LAYOUT.locks)
    lake.sync()
    change = lake.appended(run, STEP)
    with pytest.raises(LockedError, match="LAKE-061"):
        run.commit(Commit((change,), state_of(STEP)))
    run.fail(RuntimeError("replaced"))
    assert lake.rows("grows") == list(range(STEP))
    lake.check_exact(lake.sync())


@pytest.mark.parametrize("released", [False, True])
def test_heartbeat_overwrites_no_other_run(tmp_path: Path, released: bool) -> None:
    lake = SmallLake(str(tmp_path), {})
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    shutil.rmtree(tmp_path / LAYOUT.locks)
    other = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    run._lock._write(released=released)
    newest = newest_entry(lake.storage(), LAYOUT)
    assert newest is not None
    assert (newest.run_id, newest.released) == (other.run_id, False)
    other.fail(RuntimeError("enough"))


def test_run_ids_grow_after_manual_lock_removal(tmp_path: Path) -> None:
    """Only the journal shows that the previous run's clock was far ahead."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    before = run_ids(lake.storage(), LAYOUT.runs)[0]
    ahead = f"2999{before[4:]}"
    (tmp_path / LAYOUT.journal(before)).rename(tmp_path / LAYOUT.journal(ahead))
    shutil.rmtree(tmp_path / LAYOUT.locks)
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    assert run.run_id > ahead
    run.fail(RuntimeError("only looked"))
