"""Two runs of one pipeline, on one machine or two, awake or waking up too late."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import Interrupted, Proxy
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, state_of
from servers.s3 import S3
from singer_spark.core.identity import Process
from singer_spark.errors import LockedError, SingerSparkError, StorageError
from singer_spark.state.run_log import encode
from target_spark_lake.commit.lock import newest_entry
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.table.changes import Commit

ELSEWHERE = Process("far-away", "another machine", 4711, "")


def rival_syncs(
    lake: SmallLake, barrier: threading.Barrier, won: list[int], lost: list[SingerSparkError]
) -> None:
    barrier.wait()
    try:
        won.append(lake.sync())
    except LockedError as error:
        lost.append(error)


def race(lake: SmallLake, rounds: int) -> None:
    """Starts two runs at once, again and again; a loser may also come after the winner's end, and
    then both win.
    """
    state, losers = 0, 0
    for _ in range(rounds):
        won: list[int] = []
        lost: list[SingerSparkError] = []
        barrier = threading.Barrier(2)
        rivals = [
            threading.Thread(target=rival_syncs, args=(lake, barrier, won, lost)) for _ in range(2)
        ]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
        assert len(won) + len(lost) == 2
        assert won
        assert all("is held by process" in str(error) for error in lost)
        losers += len(lost)
        assert lake.published_bound() == state + STEP * len(won)
        state = lake.published_bound()
    assert losers > 0
    lake.check_exact(state)


def test_one_of_two_concurrent_runs_wins(tmp_path: Path) -> None:
    """Of two concurrent runs one wins, and the other names the lock holder."""
    race(SmallLake(str(tmp_path), {}), 50)


def test_one_of_two_concurrent_runs_on_s3_wins(s3: S3) -> None:
    """Of two concurrent runs on S3 one wins, and the other names the lock holder."""
    race(SmallLake(s3.new_bucket(), s3.storage_options), 5)


def test_two_runs_in_one_second_keep_each_row_once(tmp_path: Path) -> None:
    """File names must not restart, or they would overwrite those of the first run."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    lake.sync()
    lake.check_exact(2 * STEP)


def expire(lake: SmallLake) -> None:
    """Makes the holder look as if it had been silent for long, on another machine."""
    entry = newest_entry(lake.storage(), LAYOUT)
    assert entry is not None
    silent = {**entry.to_body(), "beat": (datetime.now(UTC) - timedelta(days=30)).isoformat()}
    lake.storage().replace(f"{LAYOUT.locks}/{entry.generation:012d}.json", encode(silent))


def paused_sync(
    lake: SmallLake, fits: Callable[[str, tuple[object, ...]], bool], rival: Callable[[], object]
) -> None:
    """A run on another machine sleeps past its expiry before a certain call, while a rival
    works.
    """

    def meanwhile() -> None:
        expire(lake)
        rival()

    lake.sync(lake.faulty_files(lambda files: Interrupted(files, fits, meanwhile)), ELSEWHERE)


def journal_create(name: str, args: tuple[object, ...]) -> bool:
    return name == "create" and str(args[0]).startswith(LAYOUT.runs)


def test_expired_lock_holder_cannot_commit(tmp_path: Path) -> None:
    """It wakes between its last lock check and its commit, and the journal refuses it."""
    lake = SmallLake(str(tmp_path), {})
    with pytest.raises(LockedError, match="LAKE-061"):
        paused_sync(lake, journal_create, lake.sync)
    lake.check_exact(STEP)


@pytest.mark.parametrize("call", ["move", "flush", "list", "delete", "exchange", "replace"])
def test_stale_publisher_neither_undoes_nor_repeats(tmp_path: Path, call: str) -> None:
    """Its rival finished its run and made two more.

    The state must not go back, no file may come back.
    """
    lake = SmallLake(str(tmp_path), {})
    committed: list[bool] = []

    def after_the_commit(name: str, args: tuple[object, ...]) -> bool:
        committed.append(journal_create(name, args))
        return any(committed[:-1]) and name == call

    def rival() -> None:
        lake.sync()
        lake.sync()

    lake.sync()
    try:
        paused_sync(lake, after_the_commit, rival)
    except StorageError as error:
        assert "is committed" in str(error)
    lake.check_readers_see_committed_rows()
    lake.check_exact(lake.sync())


def test_live_holder_forced_out_cannot_commit(tmp_path: Path) -> None:
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    change = lake.appended(run, 2 * STEP)
    open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, force=True).fail(
        RuntimeError("enough")
    )
    with pytest.raises(SingerSparkError) as refused:
        run.commit(Commit((change,), state_of(2 * STEP)))
    run.fail(refused.value)
    lake.check_exact(lake.sync())


def test_stale_retirement_does_not_undo_a_reset(
    tmp_path: Path,
) -> None:
    """The user wrote back the very bytes that the sleeper had seen; only the lock shows that time
    has passed.
    """
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    before = lake.storage().read(LAYOUT.state)
    assert before is not None

    def rival() -> None:
        open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS).fail(
            RuntimeError("only finished it")
        )
        lake.storage().replace(LAYOUT.state, before)

    def retires_a_file(name: str, args: tuple[object, ...]) -> bool:
        return name == "delete" and str(args[0]).startswith(LAYOUT.table("whole"))

    with pytest.raises(StorageError, match="LAKE-065"):
        paused_sync(lake, retires_a_file, rival)
    assert lake.storage().read(LAYOUT.state) == before


def test_commit_published_by_successor_is_kept(tmp_path: Path, dead: Process) -> None:
    """A commit whose answer was lost but a successor published is not reported as undone."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()

    class Lost(Proxy):
        done = False

        def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            result = call()
            if not self.done and name == "create" and args[0].startswith(LAYOUT.runs):
                self.done = True
                lake.sync()
                raise OSError(errno.EIO, "the answer got lost")
            return result

    with pytest.raises(StorageError, match="LAKE-065"):
        lake.sync(lake.faulty_files(Lost), dead)
    lake.check_exact(3 * STEP)
