"""A committed run whose files are gone is reverted, and all of it comes again."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from faults.abandoned_run import (
    DELETES,
    check_before,
    committed_and_dead,
    dies_after,
    give_up,
    lose,
)
from faults.backed_lake import BackedLake
from faults.faulty import DIE_AFTER, DIE_BEFORE, FAIL_AFTER, FAULTS, Died, Faulty, Watched
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, Wrap
from faults.sweep import SWEEPS, fault_sweep
from servers.s3 import S3
from singer_spark.core.identity import Process
from singer_spark.errors import (
    LockedError,
    SingerSparkError,
    StateError,
    StorageError,
    UnpublishableError,
)
from singer_spark.state.backend import StateBackend
from singer_spark.state.run_log import last_committed
from target_spark_lake.commit.lock import take_lock
from target_spark_lake.commit.run_reports import runs, state_history


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> SmallLake:
    if request.param == "s3":
        s3: S3 = request.getfixturevalue("s3")
        return SmallLake(s3.new_bucket(), s3.storage_options)
    if request.param == "disk":
        return SmallLake(f"{tmp_path}/lake", {})
    backend = StateBackend.of({"uri": f"sqlite:///{tmp_path}/states.db", "table_name": None}, {})
    return BackedLake(f"{tmp_path}/lake", {}, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lake", "runs_before", "moves"),
    [
        *(("disk", runs_before, moves) for runs_before in (0, 2) for moves in (0, 2)),
        ("s3", 2, 2),
        ("state in SQLite", 0, 0),
        ("state in SQLite", 2, 2),
    ],
    indirect=["lake"],
)
def test_commit_with_missing_file_is_abandoned(
    lake: SmallLake, dead: Process, runs_before: int, moves: int
) -> None:
    """A committed run with a missing file is abandoned, and all its rows arrive again once."""
    for _ in range(runs_before):
        lake.sync()
    bound = runs_before * STEP
    run_id = committed_and_dead(lake, dead, moves)
    lose(lake, run_id, "grows/part-1.zstd.parquet")
    wedged = (
        rf"run {run_id} is committed, and 1 of its 3 file.s. are gone, .*recover "
        rf"--give-up-publishing {run_id}"
    )
    for _ in range(2):
        with pytest.raises(UnpublishableError, match=wedged):
            lake.sync()
    (reported, *_) = [run for run in runs(lake.storage(), LAYOUT) if run["run_id"] == run_id]
    assert (
        reported["outcome"],
        reported["streams"],
        "1 of its 3 file(s) are gone" in reported["error"],
    ) == (
        "committed",
        {},
        True,
    )
    done = give_up(lake, run_id)
    assert done.abandoned is not None
    assert done.abandoned["streams"] == {
        "grows": {"lost_files": 1, "lost_rows": 3, "taken_back_files": 1, "taken_back_rows": 1},
        "whole": {
            "lost_files": 0,
            "lost_rows": 0,
            "taken_back_files": 1,
            "taken_back_rows": bound + STEP,
        },
    }
    check_before(lake, bound)
    assert give_up(lake, run_id).abandoned == done.abandoned
    reported = {run["run_id"]: run for run in runs(lake.storage(), LAYOUT)}
    assert (reported[run_id]["outcome"], reported[done.abandoned["by"]]["outcome"]) == (
        "rolled_back",
        "succeeded",
    )
    assert "abandoned by run" in reported[run_id]["error"]
    assert run_id not in [saved["run_id"] for saved in state_history(lake.storage(), LAYOUT)]
    lake.check_exact(lake.sync())
    assert lake.published_bound() == bound + STEP
    lake.check_exact(lake.sync())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "step", "moves"),
    [*((*each, 0) for each in SWEEPS), ((FAIL_AFTER, DIE_BEFORE), 1, 3)],
)
def test_fault_while_abandoning_loses_nothing(
    tmp_path: Path, dead: Process, faults: tuple[str, ...], step: int, moves: int
) -> None:
    """The run is waiting as before, or is abandoned; nothing in between ever stays."""

    waits = SmallLake(f"{tmp_path}/waits", {})
    waits.sync()
    run_id = committed_and_dead(waits, dead, moves)
    lose(waits, run_id, "grows/part-1.zstd.parquet")
    ends = set()

    def given_up(lake: SmallLake, wrap: Wrap) -> None:
        give_up(lake, run_id, lake.faulty_files(wrap), dead)

    for lake in fault_sweep(
        waits.copied, given_up, *faults, step=step, check=lambda lake: check_before(lake, STEP)
    ):
        rows = lake.rows("grows")
        assert set(range(lake.published_bound())) <= set(rows) <= set(range(2 * STEP))
        assert len(set(rows)) == len(rows)
        entry = last_committed(lake.storage(), LAYOUT.runs)
        assert entry is not None
        is_waiting = entry.run_id == run_id
        ends.add(is_waiting)
        if is_waiting:
            with pytest.raises(UnpublishableError):
                lake.sync()
            give_up(lake, run_id)
            check_before(lake, STEP)
        lake.check_exact(lake.sync())
        assert lake.published_bound() == 2 * STEP
    assert ends == {True, False}


def test_s3_fault_while_abandoning_loses_nothing(s3: S3, dead: Process) -> None:
    """A fault at every third change on S3 while a run is abandoned loses and repeats nothing."""
    changes = frozenset({"write", "copy", "delete"})
    lake = SmallLake(s3.new_bucket(), s3.storage_options)
    bound = lake.sync()
    # By three, so that each half of a move, a copy and a delete, meets either fault.
    faults = cycle((FAIL_AFTER, DIE_AFTER, DIE_AFTER))
    for nth, fault in zip(range(1, 30, 3), faults, strict=False):
        run_id = committed_and_dead(lake, dead, 2)
        lose(lake, run_id, "grows/part-1.zstd.parquet")
        faulty: list[Faulty] = []

        def broken(
            requests: Any, nth: int = nth, fault: str = fault, faulty: list[Faulty] = faulty
        ) -> Faulty:
            faulty.append(Faulty(requests, nth, fault, changes))
            return faulty[0]

        with suppress(SingerSparkError, Died):
            give_up(lake, run_id, lake.faulty_requests(broken), dead)
        give_up(lake, run_id)
        check_before(lake, bound)
        if faulty[0].count < nth:
            break
    assert nth > 8
    lake.check_exact(lake.sync())


def test_table_with_retired_files_is_not_reverted(tmp_path: Path, dead: Process) -> None:
    """It keeps what it has until the next run, which adds each row once."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    run_id = dies_after(lake, dead, 2, DELETES)  # an older lock, then the old file of `whole`
    lose(lake, run_id, "grows/part-1.zstd.parquet")
    give_up(lake, run_id)
    assert (lake.rows("grows"), lake.published_bound()) == (list(range(STEP)), STEP)
    assert lake.rows("whole") == list(range(2 * STEP))
    lake.check_exact(lake.sync())


def test_only_unpublishable_commits_are_abandoned(tmp_path: Path, dead: Process) -> None:
    """Only a committed run that can't be published can be abandoned."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    good = last_committed(lake.storage(), LAYOUT.runs)
    assert good is not None
    with pytest.raises(StateError, match=r"LAKE-067 .*state restore"):
        give_up(lake, good.run_id)
    with pytest.raises(StateError, match="LAKE-055"):
        give_up(lake, "nonsense")
    run_id = committed_and_dead(lake, dead)
    with pytest.raises(StateError, match="LAKE-067"):
        give_up(lake, good.run_id)
    done = give_up(lake, run_id)
    assert (done.finished, done.abandoned) == (run_id, None)
    lake.check_exact(2 * STEP)
    run_id = committed_and_dead(lake, dead)
    lose(lake, run_id, "whole/part-0.zstd.parquet")
    living = take_lock(lake.storage(), LAYOUT, NO_BEATS)
    with pytest.raises(LockedError, match="LAKE-060"):
        give_up(lake, run_id)
    living.release()
    by = (give_up(lake, run_id).abandoned or {})["by"]
    with pytest.raises(StateError, match=rf"LAKE-067 .*{run_id}"):
        give_up(lake, by)
    failed = next(
        run["run_id"] for run in runs(lake.storage(), LAYOUT) if run["outcome"] == "rolled_back"
    )
    assert (give_up(lake, failed).abandoned or {})["by"] == by
    lake.check_exact(lake.sync())


def test_storage_error_does_not_abandon_commit(tmp_path: Path, dead: Process) -> None:
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    run_id = committed_and_dead(lake, dead)
    broken = lake.faulty_files(lambda files: Faulty(files, 1, FAULTS[0], frozenset({"move"})))
    with pytest.raises(StorageError, match="RUN-052"):
        give_up(lake, run_id, broken)
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert (entry.run_id, "injected" in entry.body["error"]) == (run_id, True)
    lake.check_exact(lake.sync())
    assert all(
        run["error"] is None
        for run in runs(lake.storage(), LAYOUT)
        if run["outcome"] == "succeeded"
    )


def test_state_is_reverted_before_rows(tmp_path: Path, dead: Process) -> None:
    """The state is reverted before the rows, to the empty one if there was none."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    with pytest.raises(
        Died
    ):  # `state.json` is the run's first exchange with nothing before it but its own lock's
        lake.sync(
            lake.faulty_files(
                lambda files: Faulty(
                    files, 1, "the process dies before the call", frozenset({"replace"})
                )
            ),
            dead,
        )
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert lake.published_bound() == STEP
    lose(lake, entry.run_id, "grows/part-0.zstd.parquet")

    def look() -> None:
        """The state goes back before the rows do."""
        assert lake.rows("whole") or b"replication_key_value" not in (
            lake.storage().read(LAYOUT.state) or b""
        )

    give_up(lake, entry.run_id, lake.faulty_files(lambda files: Watched(files, look)))
    assert json.loads(lake.storage().read(LAYOUT.state) or b"") == {"bookmarks": {}}
    assert (lake.rows("grows"), lake.rows("whole")) == ([], [])
