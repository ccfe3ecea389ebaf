"""A target that fails or dies at any storage call while it leaves out rows that came before: each
is there once.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faults.kills.test_load_kills import load_with
from faults.small_lake import Wrap
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.identity import Process
from target.formats.merging.keyed_items import item, items
from target.loading import JSON, Lake, state

pytestmark = pytest.mark.usefixtures("without_jvm")


def increment() -> list[JSON]:
    """One row that the table has, another version of one, and a new one."""
    again = items("append-only", **{"x-sent-since": 5})
    return [
        again,
        item(2, 5, "b"),
        state(clock=5),
        item(2, 6, "c"),
        item(4, 8, "new"),
        state(clock=8),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("checkpoints_at_once")
@in_turn
def test_repeated_rows_stay_out_after_any_fault(
    tmp_path: Path,
    dead: Process,
    monkeypatch: pytest.MonkeyPatch,
    faults: tuple[str, ...],
    step: int,
) -> None:
    """After a fault at any step, the next run leaves each version exactly once."""
    first = Lake(tmp_path / "first")
    first.load(
        *first.announced([items("append-only"), item(1, 1, "a"), item(2, 5, "b"), state(clock=5)])
    )

    def fresh(name: object) -> Lake:
        return Lake(shutil.copytree(first.folder, tmp_path / f"{name}"))

    def run(lake: Lake, wrap: Wrap) -> None:
        load_with(lake.load, lake.announced(increment()), wrap, dead, monkeypatch)

    for lake in fault_sweep(fresh, run, *faults, step=step, check=assert_exact):
        again = lake.announced(increment())
        is_committed = (again[0]["start"], again[0]["value"]) == ("saved", {"clock": 8})
        lake.load(*([] if is_committed else again))
        assert_exact(lake)


def assert_exact(lake: Lake) -> None:
    assert sorted(lake.rows("s", "id, clock, name")) == [
        (1, 1, "a"),
        (2, 5, "b"),
        (2, 6, "c"),
        (4, 8, "new"),
    ]
    assert lake.state() == {"clock": 8}
