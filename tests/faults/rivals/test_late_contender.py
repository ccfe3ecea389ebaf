"""A contender that saw the pipeline free long ago creates a number again that others used and
cleaned up.

It finds a higher one and steps back. But if it dies before, its generation stays, with a run id by
its clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from faults.faulty import DIE_AFTER, Died, Faulty, Interrupted
from faults.rivals.test_rivals import ELSEWHERE, expire
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, dead_process, state_of
from singer_spark.errors import LockedError
from singer_spark.state.run_log import encode
from target_spark_lake.commit.lock import LockEntry, entry_path, take_lock
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.table.changes import Commit

MOVES = frozenset({"move"})
AHEAD = "29990101T000000000000Z-00000000"


def leave_late_generation(lake: SmallLake) -> None:
    """What the contender left that died: a number that was used before, a run id far ahead."""
    now = datetime.now(UTC)
    entry = LockEntry(1, AHEAD, dead_process(), now, now, NO_BEATS, LAYOUT.pipeline)
    assert lake.storage().create(entry_path(LAYOUT, 1), encode(entry.to_body()))


def test_contender_with_fast_clock_hides_no_commit(tmp_path: Path) -> None:
    """Its rolled-back journal must not sort after a later commit and leave it unfinished."""
    lake = SmallLake(str(tmp_path), {})
    for _ in range(2):
        lake.sync()
    leave_late_generation(lake)
    with pytest.raises(Died):
        lake.sync(
            lake.faulty_files(partial(Faulty, nth=1, fault=DIE_AFTER, only=MOVES)), dead_process()
        )
    lake.check_exact(lake.sync())


def test_greater_run_id_makes_run_release_lock(
    tmp_path: Path,
) -> None:
    """A run that meets a greater run id only after taking the lock releases it at once."""
    lake = SmallLake(str(tmp_path), {})
    for _ in range(2):
        lake.sync()
    storage = lake.faulty_files(
        lambda files: Interrupted(
            files, lambda name, _: name == "create", lambda: leave_late_generation(lake)
        )
    )
    with pytest.raises(LockedError, match="LAKE-060"):
        take_lock(storage, LAYOUT, NO_BEATS)
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    assert run.run_id > AHEAD
    run.fail(RuntimeError("only looked"))
    lake.check_exact(lake.sync())


def test_commit_during_contender_rollback_is_visible(
    tmp_path: Path,
) -> None:
    """The dead are decided in the order of their run ids: the aborted one's journal then knows of
    every commit.
    """
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=ELSEWHERE)
    changes = (lake.appended(run, 2 * STEP), lake.overwritten(run, 2 * STEP))
    leave_late_generation(lake)
    expire(lake)
    decided: list[str] = []

    def second_decision(name: str, args: tuple[object, ...]) -> bool:
        if name == "create" and str(args[0]).startswith(LAYOUT.runs):
            decided.append(str(args[0]))
        return len(decided) == 2

    def wake_up() -> None:
        with pytest.raises(LockedError):
            run._lock.ensure_held = lambda: None  # it had looked before it slept
            run.commit(Commit(changes, state_of(2 * STEP)))

    lake.sync(lake.faulty_files(lambda files: Interrupted(files, second_decision, wake_up)))
    assert AHEAD in decided[1]
    run._lock.stop()
    lake.check_exact(lake.sync())
