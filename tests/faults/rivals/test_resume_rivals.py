"""A dead run's checkpoint, and more than one process that has to do with it: rivals, and sleepers
that wake up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.faulty import DIE_BEFORE, Died, Faulty, Interrupted
from faults.resuming_lake import PARTS, ResumingLake, begun, change, offer
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, dead_process, state_of
from singer_spark.errors import LockedError, SingerSparkError, StateError, StorageError
from singer_spark.state.store import Checkpoint
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.table.changes import Commit, StagedFile

Staged = dict[str, tuple[StagedFile, ...]]


@pytest.fixture
def lake(tmp_path: Path) -> ResumingLake:
    lake = ResumingLake(str(tmp_path), {})
    lake.sync()
    return lake


def die_with_a_checkpoint(lake: ResumingLake) -> Checkpoint:
    """A run that dies before its commit; all parts are offered."""
    claims = frozenset({"create"})  # the lock, then a claim for each table, then the journal
    with pytest.raises(Died):
        lake.sync(
            lake.faulty_files(lambda files: Faulty(files, 2, DIE_BEFORE, claims)), dead_process()
        )
    checkpoint = lake.checkpoint()
    assert checkpoint is not None
    assert checkpoint.resume == {"parts": PARTS}
    return checkpoint


def die_before_moving(lake: ResumingLake, runs: SmallLake, nth: int = 1) -> None:
    """A run of one or the other kind that dies after its commit, before it moves its first file, or
    a later one.
    """
    moves = frozenset({"move"})
    with pytest.raises(Died):
        runs.sync(
            lake.faulty_files(lambda files: Faulty(files, nth, DIE_BEFORE, moves)), dead_process()
        )


def opened(lake: ResumingLake, *, force: bool = False) -> PipelineRun:
    return open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, force=force)


def with_one_part(lake: ResumingLake, *, offered: bool) -> tuple[PipelineRun, Staged]:
    """A living run that has staged its first part."""
    run = opened(lake)
    staged = begun(run, None)
    lake.stage_part(run, staged, 2 * STEP, 0)
    if offered:
        assert offer(run, staged, 2 * STEP)
    return run, staged


def commit(lake: ResumingLake, run: PipelineRun, staged: Staged) -> None:
    for part in range(len(staged["grows"]), PARTS):
        lake.stage_part(run, staged, 2 * STEP, part)
    changes = (change(run, "grows", staged), change(run, "whole", staged))
    run.commit(Commit(changes, state_of(2 * STEP)))


def rival_syncs(
    lake: ResumingLake, barrier: threading.Barrier, won: list[int], lost: list[SingerSparkError]
) -> None:
    barrier.wait()
    try:
        won.append(lake.sync())
    except (LockedError, StateError) as error:
        lost.append(error)


@pytest.mark.slow
def test_only_one_of_two_runs_resumes(
    lake: ResumingLake,
) -> None:
    """The loser finds the checkpoint gone, even if it read it before the winner ended."""
    resumed = 0
    for _ in range(20):
        die_with_a_checkpoint(lake)
        before = lake.published_bound()
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
        reported = ("is held by process", "Run tap and target again")
        assert all(any(words in str(error) for words in reported) for error in lost)
        assert won
        assert len(won) + len(lost) == 2
        lake.check_exact(before + STEP * len(won))
        resumed += lake.taken_over() > 0
    assert resumed > 0


def test_stale_checkpoint_does_not_overwrite_successor(lake: ResumingLake) -> None:
    """A run that was forced out while alive continues to stage parts that nobody takes over."""
    sleeper, staged = with_one_part(lake, offered=True)
    checkpoint = lake.checkpoint()
    successor = opened(lake, force=True)
    taken = begun(successor, checkpoint)
    lake.stage_part(sleeper, staged, 2 * STEP, 1)
    assert not offer(sleeper, staged, 2 * STEP)
    assert lake.checkpoint().resume == {"parts": 1}
    lake.stage_part(successor, taken, 2 * STEP, 1)
    assert offer(successor, taken, 2 * STEP)
    sleeper.fail(RuntimeError("forced out"))
    commit(lake, successor, taken)
    lake.check_exact(2 * STEP)
    assert lake.taken_over() == 2


def test_late_first_checkpoint_does_no_harm(lake: ResumingLake) -> None:
    """There was nothing to sign for its successor, whose own checkpoints are refused from then
    on.
    """
    sleeper, staged = with_one_part(lake, offered=False)
    successor = opened(lake, force=True)
    own = begun(successor, lake.checkpoint())
    assert offer(sleeper, staged, 2 * STEP)
    lake.stage_part(successor, own, 2 * STEP, 0)
    assert not offer(successor, own, 2 * STEP)
    sleeper.fail(RuntimeError("forced out"))
    commit(lake, successor, own)
    lake.check_exact(2 * STEP)


def test_missing_checkpoint_files_are_not_taken_over(lake: ResumingLake) -> None:
    """The successor had removed the sleeper's files already; then it dies as well."""
    sleeper, staged = with_one_part(lake, offered=False)
    opened(lake, force=True).leave()
    assert offer(sleeper, staged, 2 * STEP)
    assert lake.checkpoint() is not None
    with pytest.raises(StateError, match="LAKE-064"):
        lake.sync()
    lake.check_exact(lake.sync())
    assert lake.taken_over() == 0
    sleeper._lock.stop()


def test_files_being_removed_cannot_be_offered(lake: ResumingLake) -> None:
    """The run was forced out long ago, no lock mentions it any more, and it continues to stage."""
    living, staged = with_one_part(lake, offered=False)
    opened(lake, force=True).leave()
    lake.stage_part(living, staged, 2 * STEP, 1)
    offered: list[bool] = []

    def removes(name: str, args: tuple[object, ...]) -> bool:
        return name == "delete_all" and args[0] == LAYOUT.staging(living.run_id)

    storage = lake.faulty_files(
        lambda files: Interrupted(
            files, removes, lambda: offered.append(offer(living, staged, 2 * STEP))
        )
    )
    run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS)
    assert offered == [False]
    living.fail(RuntimeError("forced out"))
    commit(lake, run, begun(run, None))
    lake.check_exact(2 * STEP)


def test_failing_stale_run_keeps_successors_files(
    lake: ResumingLake,
) -> None:
    """A stale run that fails leaves the files that its successor took over."""
    sleeper, staged = with_one_part(lake, offered=True)
    lake.stage_part(sleeper, staged, 2 * STEP, 1)
    checkpoint = lake.checkpoint()
    successor = opened(lake, force=True)
    taken = begun(successor, checkpoint)
    sleeper.fail(RuntimeError("woke up"))
    commit(lake, successor, taken)
    lake.check_exact(2 * STEP)


def test_failed_run_keeps_only_its_checkpoint_files(lake: ResumingLake) -> None:
    """A run that fails keeps the files of its checkpoint and nothing else."""
    run, staged = with_one_part(lake, offered=True)
    lake.stage_part(run, staged, 2 * STEP, 1)
    run.fail(RuntimeError("the disk is full"))
    assert lake.staged_paths() == sorted(
        file.path for files in staged.values() for file in files[:1]
    )
    lake.check_exact(lake.sync())
    assert lake.taken_over() == 2


def test_files_outside_the_checkpoint_are_removed(lake: ResumingLake) -> None:
    """Files outside the checkpoint are removed by the next lock holder."""
    die_with_a_checkpoint(lake)
    names = lake.staged_paths()
    lake.storage().replace(f"{Path(names[0]).parent}/late.parquet", b"PAR1")
    lake.storage().replace(
        f"{LAYOUT.pipeline_staging}/20200101T000000000000Z-0/s/part.parquet", b"PAR1"
    )
    run = opened(lake)
    assert lake.staged_paths() == names
    run.leave()
    lake.check_exact(lake.sync())


def sleep_in_the_middle(
    lake: ResumingLake,
    fits: Callable[[str, tuple[object, ...]], bool],
    meanwhile: Callable[[], object],
) -> None:
    """A run that does not resume falls asleep before a call and is replaced meanwhile."""

    def replaced() -> None:
        opened(lake, force=True).leave()
        meanwhile()

    plain = SmallLake(lake.url, {})
    storage = lake.faulty_files(lambda files: Interrupted(files, fits, replaced))
    run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS)
    try:
        run.checkpoint.discard()
        run.commit(
            Commit(
                (plain.appended(run, 2 * STEP), plain.overwritten(run, 2 * STEP)),
                state_of(2 * STEP),
            )
        )
    except SingerSparkError as error:
        run.fail(error)
        raise


def voids(name: str, args: tuple[object, ...]) -> bool:
    """The exchange by which a checkpoint is discarded."""
    return name == "exchange" and args[0] == LAYOUT.checkpoint and b'"void"' in bytes(args[2])


def test_stale_discard_keeps_successors_checkpoint(
    lake: ResumingLake,
) -> None:
    """The successor dies in the middle of its commit, right before it moves the files: they must
    still be there.
    """
    die_with_a_checkpoint(lake)

    def successor() -> None:
        die_before_moving(lake, lake)

    with pytest.raises(SingerSparkError):
        sleep_in_the_middle(lake, voids, successor)
    assert lake.committed_bound() == 2 * STEP
    lake.check_exact(lake.sync())


def test_stale_removal_keeps_files_of_a_later_run(
    lake: ResumingLake,
) -> None:
    """The checkpoint is void when it falls asleep, so its successor starts over, and what that
    stages is its own.
    """
    die_with_a_checkpoint(lake)

    def removes(name: str, args: tuple[object, ...]) -> bool:
        return name == "delete_all" and str(args[0]).startswith(LAYOUT.pipeline_staging)

    with pytest.raises(SingerSparkError):
        sleep_in_the_middle(lake, removes, lambda: die_with_a_checkpoint(lake))
    lake.check_exact(lake.sync())


def test_stale_recovery_keeps_successors_files(
    lake: ResumingLake,
) -> None:
    """It cleans up after its successor has committed but not yet moved its files."""
    run, staged = with_one_part(lake, offered=True)
    lake.stage_part(run, staged, 2 * STEP, 1)  # is not offered, so there is something to clean
    run._lock.stop()

    def successor() -> None:
        opened(lake, force=True).leave()
        die_before_moving(lake, lake)

    def cleans(name: str, args: tuple[object, ...]) -> bool:
        return name == "delete" and str(args[0]).startswith(LAYOUT.pipeline_staging)

    storage = lake.faulty_files(lambda files: Interrupted(files, cleans, successor))
    with pytest.raises(SingerSparkError):
        run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS, force=True)
        commit(lake, run, begun(run, None))
    assert lake.committed_bound() == 2 * STEP
    lake.check_exact(lake.sync())


def test_stale_staging_check_keeps_later_files(
    lake: ResumingLake,
) -> None:
    """There is no checkpoint that could show it that a later run came."""
    plain = SmallLake(lake.url, {})

    def looks(name: str, args: tuple[object, ...]) -> bool:
        return name == "list" and args[0] == LAYOUT.pipeline_staging

    def successor() -> None:
        opened(lake, force=True).leave()
        die_before_moving(lake, plain)

    run = open_run(lake.faulty_files(lambda files: Interrupted(files, looks, successor)), LAYOUT)
    with pytest.raises(SingerSparkError):
        commit(lake, run, begun(run, None))
    assert lake.committed_bound() == 2 * STEP
    run._lock.stop()
    lake.check_exact(lake.sync())


def test_stale_committer_removes_no_later_files(lake: ResumingLake) -> None:
    """It wakes up and removes a checkpoint that is not its own; the next run starts over, and is
    right.
    """

    def removes(name: str, args: tuple[object, ...]) -> bool:
        return name == "delete" and args[0] == LAYOUT.checkpoint

    sleep_in_the_middle(lake, removes, lambda: die_with_a_checkpoint(lake))
    assert lake.checkpoint() is None
    assert lake.committed_bound() == 2 * STEP
    lake.check_exact(lake.sync())


def test_void_checkpoint_is_never_offered_to_tap(lake: ResumingLake) -> None:
    """The process died between making it void and removing its files."""
    checkpoint = die_with_a_checkpoint(lake)
    run = opened(lake)
    storage = lake.faulty_files(
        lambda files: Faulty(files, 1, DIE_BEFORE, frozenset({"delete_all"}))
    )
    run.checkpoint._storage = storage
    with pytest.raises(Died):
        run.checkpoint.discard()
    run._lock.release()
    assert lake.checkpoint() is None
    successor = opened(lake)
    with pytest.raises(StateError, match="LAKE-064"):
        begun(successor, checkpoint)
    assert lake.staged_paths() == []
    successor.fail(RuntimeError("refused"))
    lake.check_exact(lake.sync())


def test_vanished_checkpoint_files_stop_before_commit(
    lake: ResumingLake,
) -> None:
    """Files of a checkpoint that vanish during a run stop it before its commit."""
    checkpoint = die_with_a_checkpoint(lake)
    run = opened(lake)
    staged = begun(run, checkpoint)
    lake.storage().delete(staged["grows"][0].path)
    with pytest.raises(StorageError, match="LAKE-070") as stopped:
        commit(lake, run, staged)
    run.fail(stopped.value)
    with pytest.raises(StateError):
        lake.sync()
    lake.check_exact(lake.sync())


def test_files_of_a_dead_run_are_found_at_publishing(
    lake: ResumingLake,
) -> None:
    """A commit published by a later run finds the dead run's files in their place."""
    die_with_a_checkpoint(lake)
    die_before_moving(lake, lake, 2)
    assert lake.published_bound() == STEP
    opened(lake).leave()
    lake.check_exact(2 * STEP)
    assert lake.taken_over() == 2 * PARTS
