"""A target that dies while it loads a tap that announces itself, at each change of the bucket, with
real batches.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from faults.faulty import DIE_AFTER, DIE_BEFORE
from faults.small_lake import NO_BEATS, Wrap
from faults.sweep import fault_sweep
from singer_spark.core.identity import Process
from singer_spark.errors import SingerSparkError
from singer_spark.store.storage import Storage
from target.increment import assert_exact, increment, lake_with_two_rows
from target.loading import JSON, Lake, staging_ended
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run

CHANGES = frozenset({"create", "replace", "exchange", "move", "delete", "delete_all", "sweep"})
LINES_OF_A_DEAD_TAP = 9

pytestmark = [pytest.mark.usefixtures("without_jvm"), pytest.mark.slow]


def load_with(
    load: Callable[..., None],
    lines: list[JSON],
    wrap: object,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loads through a storage with a proxy; what still runs when the run is over is completed."""

    def opened(storage: Storage, layout: object, **_: object) -> PipelineRun:
        faulty = Storage(storage.url, files=wrap(storage.files))
        return open_run(faulty, layout, lock_ttl_seconds=NO_BEATS, process=process)

    with monkeypatch.context() as patched:
        patched.setattr("target_spark_lake.target.open_run", opened)
        with staging_ended():
            load(*lines)


@pytest.mark.usefixtures("checkpoints_at_once")
@pytest.mark.parametrize(
    ("fault", "tap_dies"), [(DIE_BEFORE, False), (DIE_BEFORE, True), (DIE_AFTER, True)]
)
def test_killed_target_is_resumed_or_restarted(
    tmp_path: Path, dead: Process, monkeypatch: pytest.MonkeyPatch, fault: str, tap_dies: bool
) -> None:
    """Lines from a living tap come slowly, so that checkpoints are written; otherwise what is
    salvaged is the first one.

    Staging continues meanwhile, so which call is the n-th may differ from round to round, but none
    is left out for long.
    """
    end = LINES_OF_A_DEAD_TAP if tap_dies else None

    def run(lake: Lake, wrap: Wrap) -> None:
        load = lake.load if tap_dies else lake.load_slowly
        # A dead tap's end is an error of the target, too.
        with suppress(SingerSparkError):
            load_with(load, lake.announced(increment())[:end], wrap, dead, monkeypatch)

    resumed = 0
    for lake in fault_sweep(
        lambda name: lake_with_two_rows(tmp_path / f"{name}"), run, fault, only=CHANGES, least=6
    ):
        lines = lake.announced(increment())
        resumed += lines[0]["start"] == "resume"
        is_committed = (lines[0]["start"], lines[0]["value"]) == ("saved", {"grows": 7})
        lake.load(*([] if is_committed else lines))
        assert_exact(lake)
    assert resumed > 1
