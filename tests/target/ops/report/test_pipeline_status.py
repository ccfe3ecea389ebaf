"""`spark-lake status`: all pipelines of a bucket at a glance; and none of them touches another."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import DIE_AFTER, DIE_BEFORE
from faults.small_lake import LAYOUT, NO_BEATS, PIPELINE, STEP, SmallLake
from singer_spark.errors import ConfigurationError
from singer_spark.state.run_log import folder_name
from target.loading import Lake, record, schema, state
from target.ops.report.read_status import die, status
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.ops import spark_lake
from target_spark_lake.ops.pipeline_status import age_limits

PIPELINES = [f"p{number}" for number in range(44)] + [
    "a/b",
    "ä ö",
    ".x",
    "p0.orders",
    "p%20",
    "dev:x",
]
FAILING = "p7"
ID = {"id": {"type": ["integer", "null"]}}


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(f"{tmp_path}/lake", {})


def load(folder: str, number: int) -> str:
    """Two runs of a pipeline, each of its own rows, into a table of the same name as
    everybody's.
    """
    pipeline, lake = PIPELINES[number], Lake(Path(folder))
    for run in (1, 2):
        body = [
            schema("orders", ID, ("id",)),
            *(record("orders", id=number * 100 + run * 10 + n) for n in range(3)),
        ]
        end = [
            state(
                bookmarks={
                    "orders": {"replication_key": "id", "replication_key_value": number * 100 + run}
                }
            )
        ]
        fails = run == 2 and pipeline == FAILING
        with suppress(Exception):
            lake.load(
                *body, *([b"broken\n"] if fails else end), pipeline=pipeline, path=f"data/{number}"
            )
    return pipeline


@pytest.mark.slow
def test_fifty_pipelines_in_one_bucket_are_isolated(tmp_path: Path, capsys) -> None:
    """Fifty pipelines run concurrently in one bucket, and none affects another."""
    bucket = tmp_path / "lake"
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(load, [str(bucket)] * 50, range(50))) == PIPELINES
    reported, problems = status(bucket, capsys, exit_code=1)
    assert problems == f"spark-lake: pipeline {FAILING}: its last run failed\n"
    assert sorted(reported) == sorted(PIPELINES)
    for number, pipeline in enumerate(PIPELINES):
        good = 1 if pipeline == FAILING else 2
        rows = [number * 100 + run * 10 + n for run in range(1, good + 1) for n in range(3)]
        files = list((bucket / f"data/{number}/orders").glob("*.parquet"))
        assert len(files) == good
        assert sorted(row for (row,) in read(files)) == rows
        one = reported[pipeline]
        assert (one["outcome"], one["running"]) == (
            "failed" if pipeline == FAILING else "succeeded",
            False,
        )
        assert set(one) == {
            "pipeline",
            "last_success",
            "age_seconds",
            "outcome",
            "running",
            "streams",
        }
        assert one["streams"]["orders"]["records"] == 3
        assert one["streams"]["orders"]["replication_key_value"] == number * 100 + good
        for kind in ("runs", "state", "locks"):
            assert len(list((bucket / ".dataspoc" / kind / folder_name(pipeline)).iterdir())) == (
                2 if kind == "runs" else 1
            )
    assert not [path for path in (bucket / ".dataspoc/staging").rglob("*") if path.is_file()]


def read(files: list[Path]) -> list[tuple[Any, ...]]:
    import duckdb

    return duckdb.sql(f"SELECT id FROM read_parquet({[str(file) for file in files]})").fetchall()


def test_bucket_without_runs_has_no_pipelines(tmp_path: Path, capsys) -> None:
    assert status(tmp_path / "lake", capsys, exit_code=1) == ({}, "")
    with pytest.raises(ConfigurationError, match=r"LAKE-055 .*orders"):
        status(tmp_path / "lake", capsys, "--pipeline", "orders")


def aged(lake: SmallLake, seconds: int) -> None:
    """Makes the last run as old as that."""
    storage = lake.storage()
    newest = max(file.path for file in storage.list(LAYOUT.runs))
    body = json.loads(storage.read(newest) or b"")
    ended = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    storage.replace(newest, json.dumps({**body, "finished_at": ended}).encode())


def test_status_exits_1_if_last_success_is_too_old(lake: SmallLake, capsys) -> None:
    """The exit code is 1 if the last success is older than allowed."""
    lake.sync()
    aged(lake, 7 * 3600)
    for limit, exit_code in (
        ("8h", 0),
        ("6h", 1),
        ("numbers=8h", 0),
        ("num*=6h", 1),
        ("other=1s", 0),
        ("1d", 0),
    ):
        reported, problems = status(lake.url, capsys, "--max-age", limit, exit_code=exit_code)
        assert reported[PIPELINE]["age_seconds"] // 3600 == 7
        assert ("its last success is 7 h ago; the limit is 6 h" in problems) == (exit_code == 1)
    status(lake.url, capsys, "--max-age", "1s", "--max-age", "numbers=8h", exit_code=0)
    for wrong in ("6 parsecs", "", "x="):
        with pytest.raises(ConfigurationError, match="RUN-007"):
            age_limits([wrong])


def test_commands_do_not_count_as_pipeline_success(lake: SmallLake, capsys) -> None:
    """A spark-lake command counts neither as a success nor as a failure of the pipeline."""
    lake.sync()
    before, _ = status(lake.url, capsys)
    open_run(lake.storage(), LAYOUT, command="compact").fail(RuntimeError("no room"))
    config = Path(lake.url).parent / "target.json"
    words = ["--stream", "grows", "--value", "1", "--config", str(config), "--pipeline", PIPELINE]
    assert spark_lake.command(["state", "set", *words]) == 0
    after, _ = status(lake.url, capsys)
    assert (after[PIPELINE]["last_success"], after[PIPELINE]["outcome"]) == (
        before[PIPELINE]["last_success"],
        "succeeded",
    )
    assert after[PIPELINE]["streams"]["grows"]["replication_key_value"] == 1


def test_running_status_follows_lock_liveness(lake: SmallLake, capsys) -> None:
    """A live lock means running, and a dead holder has failed."""
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    reported, _ = status(lake.url, capsys, "--max-age", "1h")
    assert (reported[PIPELINE]["outcome"], reported[PIPELINE]["running"]) == ("running", True)
    run.fail(RuntimeError("x"))
    reported, problems = status(lake.url, capsys, "--max-age", "1h", exit_code=1)
    assert (reported[PIPELINE]["outcome"], reported[PIPELINE]["running"]) == ("failed", False)
    assert "its last run failed" in problems
    assert "it never succeeded; the limit is 1 h" in problems
    lake.sync()
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    reported, _ = status(lake.url, capsys)
    assert (reported[PIPELINE]["outcome"], reported[PIPELINE]["running"]) == ("succeeded", True)
    run.leave()
    die(lake, DIE_BEFORE)
    reported, _ = status(lake.url, capsys, exit_code=1)
    assert (reported[PIPELINE]["outcome"], reported[PIPELINE]["running"]) == ("failed", False)
    lake.sync()
    die(lake, DIE_AFTER)
    reported, problems = status(lake.url, capsys, exit_code=1)
    assert (reported[PIPELINE]["outcome"], reported[PIPELINE]["running"]) == ("committed", False)
    assert "committed, but not published yet" in problems
    assert reported[PIPELINE]["streams"]["grows"] == {
        "records": STEP,
        "rejected": 0,
        "replication_key_value": 3 * STEP,
        "watermark_age_seconds": None,
        "no_new_rows_seconds": None,
    }


def test_watermark_age_is_shown_for_time_keys(lake: SmallLake, capsys) -> None:
    """The watermark's age is shown where the key is a timestamp."""
    storage, now = lake.storage(), datetime.now(UTC)
    for pipeline, value, age in (
        ("naive", (now - timedelta(hours=3)).replace(tzinfo=None).isoformat(), 3 * 3600),
        ("aware", (now - timedelta(hours=3)).isoformat().replace("+00:00", "Z"), 3 * 3600),
        ("finer", (now - timedelta(hours=3)).replace(tzinfo=None).isoformat() + "123", 3 * 3600),
        ("day", "2026-13-45", None),
        ("text", "2026", None),
    ):
        bookmark = {"replication_key": "at", "replication_key_value": value}
        storage.replace(Layout(pipeline).state, json.dumps({"bookmarks": {"s": bookmark}}).encode())
        reported, _ = status(lake.url, capsys)
        found = reported[pipeline]["streams"]["s"]["watermark_age_seconds"]
        assert found is None if age is None else age <= found < age + 600


def test_status_lists_one_line_per_pipeline(lake: SmallLake, capsys) -> None:
    config = Path(lake.url).parent / "target.json"
    config.write_text(json.dumps({"bucket": lake.url}))
    assert spark_lake.command(["status", "--config", str(config)]) == 1
    assert f"No pipeline has run in {lake.url}." in capsys.readouterr().out
    lake.sync()
    lake.storage().replace(Layout("idle").state, b"{}")
    assert spark_lake.command(["status", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    (line,) = (line.split() for line in out.splitlines() if PIPELINE in line)
    assert line[:2] == [PIPELINE, "succeeded"]
    assert str(2 * STEP) in line
    assert [line.split()[:3] for line in out.splitlines() if "idle" in line] == [
        ["idle", "none", "never"]
    ]
