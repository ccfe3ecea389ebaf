"""Journals of former runs: few are kept, the last commit among them, and a pile of them makes no
run slow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.faulty import Counting
from faults.small_lake import LAYOUT, NO_BEATS, SmallLake
from singer_spark.state.run_log import last_committed, run_ids
from target.commit.opened_runs import lake
from target_spark_lake.commit import journal
from target_spark_lake.commit.journal import KEPT_RUNS, PRUNED_AT_ONCE
from target_spark_lake.commit.pipeline_run import open_run

__all__ = ["lake"]


def test_bounded_history_keeps_last_commit(lake: SmallLake) -> None:
    lake.sync()
    storage = lake.storage()
    committed = last_committed(storage, LAYOUT.runs)
    assert committed is not None
    facts = '{"format_version":1,"phase":"aborted","state":null,'
    facts += f'"last_committed":"{committed.run_id}"}}'
    for number in range(KEPT_RUNS + 3):
        path = Path(lake.url) / LAYOUT.runs / f"{committed.run_id[:-8]}z{number:07d}.json"
        path.write_text(facts)
    lake.check_exact(lake.sync())
    assert len(storage.list(LAYOUT.runs)) <= KEPT_RUNS + 2
    assert storage.exists(LAYOUT.journal(committed.run_id))


def failed_runs(
    lake: SmallLake, number: int, after: str = "20200101T000000000000Z-00000000"
) -> None:
    """Journals of failed runs, as an older version has left them."""
    body = f'{{"format_version":1,"phase":"aborted","last_committed":"{after}","state":null}}'
    folder = Path(lake.url) / LAYOUT.runs
    folder.mkdir(parents=True, exist_ok=True)
    for each in range(number):
        (folder / f"{after[:-8]}z{each:07d}.json").write_text(body)


def journals(lake: SmallLake) -> list[str]:
    return run_ids(lake.storage(), LAYOUT.runs)


def test_failed_runs_do_not_accumulate_journals(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journals of successful runs are kept until the next success, for restoring a state."""
    monkeypatch.setattr(journal, "KEPT_RUNS", 3)
    good = [lake.sync() and journals(lake)[0] for _ in range(3)]
    failed = []
    for _ in range(8):
        run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
        run.fail(RuntimeError("as ever"))
        failed.append(run.run_id)
    assert journals(lake) == [*reversed(failed[-4:]), *reversed(good)]
    lake.check_exact(lake.sync())
    assert len(journals(lake)) <= 3 + 2
    assert good[-1] in journals(lake)


@pytest.mark.slow
@pytest.mark.parametrize("ends_well", [True, False])
def test_many_journals_are_pruned_gradually(lake: SmallLake, ends_well: bool) -> None:
    """A large backlog of journals slows no run and is pruned within a few runs."""
    lake.sync()
    failed_runs(lake, 3 * KEPT_RUNS, journals(lake)[0])
    counting: list[Counting] = []

    def run() -> int:
        storage = lake.faulty_files(lambda files: counting.append(Counting(files)) or counting[-1])
        if ends_well:
            lake.sync(storage)
        else:
            open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS).fail(RuntimeError("as ever"))
        return counting[-1].calls.count("delete")

    assert run() <= PRUNED_AT_ONCE + 10
    assert len(journals(lake)) == 2 * KEPT_RUNS + KEPT_RUNS + 2 - PRUNED_AT_ONCE
    for _ in range(2 * KEPT_RUNS // PRUNED_AT_ONCE):
        run()
    assert len(journals(lake)) <= KEPT_RUNS + 2
