"""A target that fails or dies at any call of its storage while it loads batches: nothing lost,
nothing twice.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from faults.faulty import DIE_BEFORE
from faults.kills.test_load_kills import load_with
from faults.small_lake import Wrap
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.identity import Process
from target.batch_making import BatchRun
from target.loading import JSON, Lake, record, schema, state
from target_spark_lake.ops import spark_lake

pytestmark = pytest.mark.usefixtures("without_jvm")

INT = {"type": ["integer", "null"]}
GROWS = schema("grows", {"id": INT}, ("id",), **{"x-replication-method": "INCREMENTAL"})
WHOLE = schema(
    "whole", {"id": INT}, ("id",), **{"x-replication-method": "FULL_TABLE", "x-extent": "full"}
)


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def increment(tap: BatchRun) -> list[JSON]:
    """Rows 3 to 6 of `grows`, and all rows of `whole` again: files that are adopted, rewritten, or
    of lines.
    """
    return [
        GROWS,
        tap.parquet("grows", numbers(3)),
        state(grows=3),
        tap.parquet("grows", numbers(4), metadata=False),
        tap.lines("grows", [{"id": 5}]),
        state(grows=5),
        WHOLE,
        tap.parquet("whole", numbers(1, 2, 3), files=2),
        state(grows=5, whole=3),
        tap.parquet("grows", numbers(6)),
        state(grows=6),
    ]


def sent(lake: Lake, run: int) -> list[JSON]:
    """The lines of a tap, which writes files of what it sends alone."""
    tap = BatchRun(lake.folder, f"20261121T{run:012d}Z-00000000")
    lines = lake.announced(increment(tap))
    named = {url for line in lines for url in line.get("manifest", ())}
    for path in tap.files:
        if f"file://{path}" not in named:
            path.unlink()
    return lines


def lake_with_two_rows(folder: Path) -> Lake:
    lake = Lake(folder)
    base = [
        GROWS,
        WHOLE,
        *(record(stream, id=n) for n in (1, 2) for stream in ("grows", "whole")),
        state(grows=2),
    ]
    lake.load(*lake.announced(base))
    return lake


def assert_exact(lake: Lake) -> None:
    assert lake.rows("grows", "id") == [(n,) for n in range(1, 7)]
    assert lake.rows("whole", "id") == [(n,) for n in range(1, 4)]
    assert lake.state() == {"grows": 6}
    # What taps of dead runs had written, and no run took, goes after a day; nothing else is left.
    for path in (lake.folder / ".dataspoc/staging/batches").rglob("*"):
        os.utime(path, (0, 0))
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    spark_lake.command(["recover", "--config", str(config), "--json"])
    assert [path for path in lake.files() if not path.startswith("raw/")] == [
        ".dataspoc/state/test/state.json"
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("checkpoints_at_once")
@in_turn
def test_failed_batch_load_is_resumed_or_restarted(
    tmp_path: Path,
    dead: Process,
    monkeypatch: pytest.MonkeyPatch,
    faults: tuple[str, ...],
    step: int,
) -> None:
    """Before its commit point, while it publishes, while it tidies up: the next run brings each row
    once.
    """
    first = lake_with_two_rows(tmp_path / "first")

    def fresh(name: object) -> Lake:
        return Lake(shutil.copytree(first.folder, tmp_path / f"{name}"))

    def run(lake: Lake, wrap: Wrap) -> None:
        load_with(lake.load, sent(lake, 1), wrap, dead, monkeypatch)

    starts = set()
    calls = {"move", "create", "exchange", "delete"}
    for lake in fault_sweep(fresh, run, *faults, step=step, calls=calls, check=assert_exact):
        again = sent(lake, 2)
        is_committed = (again[0]["start"], again[0]["value"]) == ("saved", {"grows": 6})
        starts.add("committed" if is_committed else again[0]["start"])
        lake.load(*([] if is_committed else again))
        assert_exact(lake)
    assert (
        starts == {"committed", "resume", "saved"}
        if faults == (DIE_BEFORE,)
        else starts >= {"saved"}
    )
