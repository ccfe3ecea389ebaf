"""Storage that fails, or a process that dies, while a checkpoint is written, taken over, continued
or discarded.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from faults.faulty import (
    DIE_AFTER,
    DIE_BEFORE,
    FAIL_AFTER,
    FAIL_BEFORE,
    FAULTS,
    Counting,
    Died,
    Faulty,
    Proxy,
)
from faults.resuming_lake import PARTS, ResumingLake
from faults.small_lake import LAYOUT, STEP, SmallLake, Wrap
from faults.sweep import fault_sweep, in_turn
from servers.s3 import S3
from singer_spark.core.identity import Process
from singer_spark.errors import SingerSparkError

pytestmark = pytest.mark.slow


def run(lake: SmallLake, wrap: Wrap, process: Process | None = None) -> None:
    lake.sync(lake.faulty_files(wrap), process)


def broken_sync(
    lake: SmallLake, nth: int, fault: str, dead: Process, only: frozenset[str] | None = None
) -> None:
    """A run with one fault, in the name of a process that is dead afterwards."""
    with suppress(SingerSparkError, Died):
        lake.sync(lake.faulty_files(lambda files: Faulty(files, nth, fault, only)), dead)


def die_with_a_checkpoint(lake: SmallLake, dead: Process) -> None:
    """A run that dies right after its first part was offered; its second one is staged."""
    only = frozenset({"exchange"})
    with pytest.raises(Died):
        lake.sync(lake.faulty_files(lambda files: Faulty(files, 2, DIE_BEFORE, only)), dead)
    assert len(lake.staged_paths()) == 2 * PARTS


def small_and_resuming(url: str) -> tuple[ResumingLake, SmallLake]:
    """One lake, fed by runs that resume, and by runs that don't."""
    return ResumingLake(url, {}), SmallLake(url, {})


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_checkpointed_run_loses_nothing(
    tmp_path: Path, dead: Process, fault: str
) -> None:
    """A fault at any storage call of a run with checkpoints loses and repeats nothing."""
    first = ResumingLake(f"{tmp_path}/first", {})
    first.sync()
    resumed = 0
    # Behind looks and behind all changes, too: few of them leave a checkpoint.
    at = {FAIL_AFTER: FAIL_BEFORE, DIE_AFTER: DIE_BEFORE}.get(fault, fault)
    for lake in fault_sweep(first.copied, partial(run, process=dead), fault, at=at, least=26):
        lake.check_readers_see_committed_rows()
        assert lake.committed_bound() >= STEP
        lake.check_exact(lake.sync())
        resumed += lake.taken_over() > 0
    assert resumed > 2


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_a_resumed_run_loses_nothing(tmp_path: Path, dead: Process, fault: str) -> None:
    """A fault at any storage call of a resumed run loses and repeats nothing."""
    died = ResumingLake(f"{tmp_path}/died", {})
    died.sync()
    die_with_a_checkpoint(died, dead)

    def check(lake: ResumingLake) -> None:
        assert lake.taken_over() == 2

    for lake in fault_sweep(died.copied, partial(run, process=dead), fault, check=check):
        lake.check_readers_see_committed_rows()
        began_with = lake.committed_bound()
        lake.check_exact(lake.sync())
        if began_with == STEP:
            assert lake.taken_over() >= 2


@in_turn
def test_fault_while_discarding_a_checkpoint(
    tmp_path: Path, dead: Process, faults: tuple[str, ...], step: int
) -> None:
    """And whatever was discarded by half is never taken over."""
    died = ResumingLake(f"{tmp_path}/died", {})
    die_with_a_checkpoint(died, dead)

    def fresh(name: object) -> SmallLake:
        return SmallLake(died.copied(name).url, {})

    for retried in fault_sweep(fresh, partial(run, process=dead), *faults, step=step):
        resuming = ResumingLake(retried.url, {})
        retried.check_readers_see_committed_rows()
        with suppress(
            SingerSparkError
        ):  # once the tap may have found what the target then finds to be gone
            resuming.sync()
        resuming.check_exact(resuming.sync())


@pytest.mark.parametrize("fault", [DIE_BEFORE, DIE_AFTER])
def test_checkpoint_never_regresses_across_deaths(
    tmp_path: Path, dead: Process, fault: str
) -> None:
    """Each run dies a little later, and the checkpoint is never an older one."""
    lake = ResumingLake(str(tmp_path), {})
    lake.sync()
    reached = [0]
    for nth in range(1, 100):
        broken_sync(lake, nth, fault, dead, frozenset({"exchange"}))
        lake.check_readers_see_committed_rows()
        if lake.committed_bound() > STEP:
            break
        checkpoint = lake.checkpoint()
        reached.append(checkpoint.resume["parts"] if checkpoint else 0)
    assert lake.committed_bound() == 2 * STEP
    assert reached == sorted(reached)
    assert reached[-1] > 0
    lake.check_exact(lake.sync())


class NoCheckpoints(Proxy):
    """A storage that fails at some of the calls that have to do with the checkpoint."""

    def __init__(self, inner: object, fault: str, failing: range) -> None:
        super().__init__(inner)
        self.fault = fault
        self.failing = failing
        self.count = 0

    def around(self, name, args, call):
        if name == "exchange" and args[0] == LAYOUT.checkpoint:
            self.count += 1
            if self.count in self.failing:
                if self.fault == FAIL_AFTER:
                    call()
                raise OSError("injected")
        return call()


@pytest.mark.parametrize(
    "failing", [range(1, 2), range(2, 3), range(1, 100)], ids=["first", "second", "all"]
)
@pytest.mark.parametrize("fault", [FAIL_BEFORE, FAIL_AFTER])
def test_unwritable_checkpoint_does_not_stop_the_run(
    tmp_path: Path, fault: str, failing: range, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint that can't be written does not stop the run."""
    lake = ResumingLake(str(tmp_path), {})
    lake.check_exact(
        lake.sync(lake.faulty_files(lambda files: NoCheckpoints(files, fault, failing)))
    )
    reported = [
        each.message for each in caplog.records if "checkpoint could not be written" in each.message
    ]
    assert len(reported) == len(set(failing) & set(range(1, PARTS + 1)))
    assert not any("Another process" in each.message for each in caplog.records)


def test_write_continues_after_an_unknown_outcome(tmp_path: Path, dead: Process) -> None:
    """The answer to the first write got lost.

    The second one finds its bytes there and writes over them.
    """
    lake = ResumingLake(str(tmp_path), {})
    faulty = lake.faulty_files(lambda files: NoCheckpoints(files, FAIL_AFTER, range(1, 2)))
    commits = frozenset({"create"})  # the lock, a claim for each table, the journal
    faulty.files = Faulty(faulty.files, 4, DIE_BEFORE, commits)
    with pytest.raises(Died):
        lake.sync(faulty, dead)
    checkpoint = lake.checkpoint()
    assert checkpoint is not None
    assert checkpoint.resume == {"parts": PARTS}
    lake.check_exact(lake.sync())
    assert lake.taken_over() == 2 * PARTS


# Only these change the bucket: dying after a request that reads is dying after the change before
# it.
CHANGES = frozenset({"write", "copy", "delete"})


def test_s3_fault_in_a_resumed_run_loses_nothing(s3: S3, dead: Process) -> None:
    """A fault at every third change of a resumed run on S3 loses and repeats nothing."""
    lake = ResumingLake(s3.new_bucket(), s3.storage_options)
    lake.sync()
    counting = Counting()
    lake.sync(lake.faulty_requests(counting))
    changes = sum(name in CHANGES for name in counting.calls)
    faults = cycle((FAIL_AFTER, DIE_AFTER, DIE_AFTER))
    for turn, (nth, fault) in enumerate(zip(range(1, changes + 3, 3), faults, strict=False)):
        with suppress(SingerSparkError, Died):
            lake.sync(
                lake.faulty_requests(partial(Faulty, nth=nth, fault=fault, only=CHANGES)), dead
            )
        lake.check_readers_see_committed_rows()
        if turn % 3 == 2:  # else the next fault meets a run that resumes
            lake.check_exact(lake.sync())
    lake.check_exact(lake.sync())
