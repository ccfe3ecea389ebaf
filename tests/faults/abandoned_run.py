"""A small lake whose run is committed and can't be published, and the giving up of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from faults.faulty import DIE_AFTER, Died, Faulty, Interrupted
from faults.small_lake import LAYOUT, NO_BEATS, SmallLake
from singer_spark.core.identity import Process
from singer_spark.state.run_log import last_committed
from singer_spark.state.store import BucketState
from singer_spark.store.storage import Storage
from target_spark_lake.commit.lock import take_lock
from target_spark_lake.commit.recovery import Recovery, free

CREATES = frozenset({"create"})
DELETES = frozenset({"delete"})


def give_up(
    lake: SmallLake, run_id: str, storage: Storage | None = None, process: Process | None = None
) -> Recovery:
    place = storage or lake.storage()
    store = lake.store() or BucketState(place, LAYOUT.state)
    with pytest.MonkeyPatch.context() as patch:
        if process is not None:  # in the name of one that is dead afterwards
            patch.setattr(
                "target_spark_lake.commit.recovery.take_lock", partial(take_lock, process=process)
            )
        return free(place, LAYOUT, store, NO_BEATS, force=False, abandoning=run_id)


def dies_after(lake: SmallLake, dead: Process, nth: int, only: frozenset[str]) -> str:
    """A run that dies after its n-th such call, and was committed by then."""
    with pytest.raises(Died):
        lake.sync(lake.faulty_files(lambda files: Faulty(files, nth, DIE_AFTER, only)), dead)
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert entry.phase == "committed"
    return entry.run_id


def committed_and_dead(lake: SmallLake, dead: Process, moves: int = 0) -> str:
    """A run that died right after its commit, or after so many of its moves."""
    if moves:
        return dies_after(lake, dead, moves, frozenset({"move"}))
    return dies_after(lake, dead, 2 if lake.committed_bound() else 4, CREATES)


def lose(lake: SmallLake, run_id: str, name: str) -> None:
    """A file of the run is gone, wherever it is by now."""
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    assert entry.run_id == run_id
    (file,) = [file for file in entry.body["publish"] if file["staged"].endswith(name)]
    lake.storage().delete(file["staged"])
    lake.storage().delete(file["final"])


def check_before(lake: SmallLake, bound: int) -> None:
    """Readers see, and the next run finds, what was there before the run that was abandoned."""
    assert lake.published_bound() == bound
    assert (lake.rows("grows"), lake.rows("whole")) == (list(range(bound)), list(range(bound)))
    assert lake.staged_paths() == []


def sleeping(lake: SmallLake, fits: Callable[[str, tuple[Any, ...]], bool]) -> Storage:
    """The bucket of a publisher that sleeps before such a call while its run is abandoned."""

    def meanwhile() -> None:
        entry = last_committed(lake.storage(), LAYOUT.runs)
        assert entry is not None
        lose(lake, entry.run_id, "grows/part-1.zstd.parquet")
        give_up(lake, entry.run_id)

    return lake.faulty_files(lambda files: Interrupted(files, fits, meanwhile))
