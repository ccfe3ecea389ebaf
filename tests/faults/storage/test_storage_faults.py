"""A storage call that fails, or a process that dies, at any point of a run: nothing lost, nothing
twice.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from faults.faulty import DIE_AFTER, FAIL_AFTER, FAULTS, Counting, Died, Faulty
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, Wrap
from faults.sweep import fault_sweep
from servers.s3 import S3
from singer_spark.core.identity import Process
from singer_spark.errors import ConfigurationError
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout

pytestmark = pytest.mark.slow


def calls_of_a_sync(lake: SmallLake) -> Counting:
    counting = Counting()
    lake.sync(lake.faulty_files(counting))
    return counting


def run(lake: SmallLake, wrap: Wrap, process: Process | None = None) -> None:
    """A run in the name of this process, or of one that is dead afterwards."""
    lake.sync(lake.faulty_files(wrap), process)


@pytest.mark.parametrize("runs_before", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_any_storage_fault_loses_and_repeats_nothing(
    tmp_path: Path, dead: Process, fault: str, runs_before: int
) -> None:
    first = SmallLake(f"{tmp_path}/first", {})
    Path(first.url).mkdir()
    for _ in range(runs_before):
        first.sync()
    for lake in fault_sweep(first.copied, partial(run, process=dead), fault, least=21):
        lake.check_readers_see_committed_rows()
        committed = lake.committed_bound()
        assert committed >= runs_before * STEP
        lake.check_exact(lake.sync())
        assert lake.published_bound() > committed


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_recovery_loses_nothing(tmp_path: Path, dead: Process, fault: str) -> None:
    """The run dies right after its commit point, then the run that has to finish it has a fault as
    well.
    """
    before = SmallLake(f"{tmp_path}/before", {})
    first = before.sync()
    names = calls_of_a_sync(before.copied("probe")).calls
    commit_point = max(index for index, name in enumerate(names, 1) if name == "create")
    with pytest.raises(Died):
        run(before, partial(Faulty, nth=commit_point, fault=DIE_AFTER), dead)
    assert before.published_bound() == first
    committed = before.committed_bound()
    assert committed > first
    for lake in fault_sweep(before.copied, partial(run, process=dead), fault):
        lake.check_readers_see_committed_rows()
        assert lake.committed_bound() >= committed
        lake.check_exact(lake.sync())


def test_claims_of_a_dead_run_are_released(tmp_path: Path, dead: Process) -> None:
    """Tables that a dead run claimed are free again after its recovery."""
    lake = SmallLake(str(tmp_path), {})
    claims = frozenset({"create"})  # the lock, then a claim for each table, then the journal
    with pytest.raises(Died):
        lake.sync(lake.faulty_files(lambda files: Faulty(files, 3, DIE_AFTER, claims)), dead)
    other = open_run(lake.storage(), Layout("another"), lock_ttl_seconds=NO_BEATS)
    with pytest.raises(ConfigurationError, match=r"LAKE-050 .*numbers"):
        other.table_record("grows", "raw/grows")
    open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS).fail(RuntimeError("only recovered"))
    assert other.table_record("grows", "raw/grows") is None
    other.fail(RuntimeError("only looked"))


def test_lost_commit_response_still_succeeds(tmp_path: Path) -> None:
    """The journal was created but the response was lost: a retry finds the same bytes."""
    probe = SmallLake(f"{tmp_path}/probe", {})
    counting = Counting()
    probe.sync(probe.faulty_files(counting))
    commit_point = max(index for index, name in enumerate(counting.calls, 1) if name == "create")
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync(lake.faulty_files(lambda files: Faulty(files, commit_point, FAIL_AFTER)))
    lake.check_exact(4)


# Only these change the bucket: dying after a request that reads is dying after the change before
# it.
CHANGES = frozenset({"write", "copy", "delete"})


def test_any_s3_fault_loses_and_repeats_nothing(s3: S3, dead: Process) -> None:
    """Faults also hit between the copy and the delete of a move, failing or dying.

    By three: so either of the two requests meets each fault.
    """
    lake = SmallLake(s3.new_bucket(), s3.storage_options)
    lake.sync()

    def run(lake: SmallLake, wrap: Wrap) -> None:
        lake.sync(lake.faulty_requests(wrap), dead)

    faults = (FAIL_AFTER, DIE_AFTER, DIE_AFTER)
    swept = fault_sweep(lambda _: lake, run, *faults, only=CHANGES, step=3, calls=CHANGES, least=13)
    for _ in swept:
        lake.check_readers_see_committed_rows()
        lake.check_exact(lake.sync())
