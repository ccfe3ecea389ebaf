"""`spark-lake` as users or programs meet it: one real process for each command."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import DIE_AFTER, DIE_BEFORE, Died, Faulty
from faults.resuming_lake import ResumingLake
from faults.small_lake import LAYOUT, NO_BEATS, PIPELINE, STEP, SmallLake, dead_process
from target_spark_lake.commit.lock import newest_entry
from target_spark_lake.commit.pipeline_run import open_run


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    (tmp_path / "target.json").write_text(
        json.dumps({"bucket": f"{tmp_path}/lake", "pipeline": PIPELINE})
    )
    return SmallLake(f"{tmp_path}/lake", {})


def spark_lake(lake: SmallLake, *words: str) -> subprocess.CompletedProcess[str]:
    config = Path(lake.url).parent / "target.json"
    code = "from target_spark_lake.ops.spark_lake import main; main()"
    command = [sys.executable, "-c", code, *words, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def answer(lake: SmallLake, *words: str) -> Any:
    done = spark_lake(lake, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def die(lake: SmallLake, method: str, fault: str) -> None:
    """A run whose process dies at its last call of that kind that belongs to the commit."""
    only = frozenset({"create"}) if method == "commit" else frozenset({method})
    nth = 2 if method == "commit" else 1
    with suppress(Died):
        lake.sync(lake.faulty_files(lambda files: Faulty(files, nth, fault, only)), dead_process())


@pytest.mark.slow
def test_runs_and_state_show_history(lake: SmallLake) -> None:
    lake.sync()
    lake.sync()
    with pytest.raises(RuntimeError), open_and_fail(lake):
        raise RuntimeError("the source is gone")
    failed, second, first = answer(lake, "runs")
    assert (failed["outcome"], second["outcome"], first["outcome"]) == (
        "failed",
        "succeeded",
        "succeeded",
    )
    assert "the source is gone" in failed["error"]
    assert set(second) == {
        "run_id",
        "started_at",
        "finished_at",
        "kind",
        "outcome",
        "streams",
        "error",
    }
    assert {run["kind"] for run in (failed, second, first)} == {"sync"}
    assert set(second["streams"]["grows"]) == {"records", "files", "bytes", "rejected", "deleted"}
    assert second["streams"]["grows"]["records"] == STEP
    assert second["streams"]["whole"]["records"] == 2 * STEP
    assert first["started_at"] < first["finished_at"] < second["started_at"]
    state = answer(lake, "state", "show")
    assert state["pipeline"] == PIPELINE
    assert state["run_id"] == second["run_id"]
    assert state["bookmarks"]["grows"]["replication_key_value"] == 2 * STEP
    assert [saved["run_id"] for saved in answer(lake, "state", "history")] == [
        second["run_id"],
        first["run_id"],
    ]


class open_and_fail:
    """A run that fails with whatever is raised inside."""

    def __init__(self, lake: SmallLake) -> None:
        self.run = open_run(lake.storage(), LAYOUT)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert error is not None
        self.run.fail(error)


@pytest.mark.slow
def test_unlock_refuses_a_running_load_without_force(
    lake: SmallLake,
) -> None:
    """A living run is shown as running, and unlock needs `--force`."""
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
    assert answer(lake, "runs")[0]["outcome"] == "running"
    for command in ("unlock", "recover"):
        refused = spark_lake(lake, command)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"spark-lake: LAKE-060 pipeline {PIPELINE} ")
        assert refused.stderr.count("\n") == 1
    assert answer(lake, "unlock", "--force")["rolled_back"] == [run.run_id]
    entry = newest_entry(lake.storage(), LAYOUT)
    assert entry is not None
    assert not entry.is_held()
    run.fail(RuntimeError("forced out"))
    assert answer(lake, "runs")[0]["outcome"] == "rolled_back"
    lake.check_exact(lake.sync())


@pytest.mark.slow
def test_recover_finishes_committed_run(lake: SmallLake) -> None:
    lake.sync()
    die(lake, "commit", DIE_AFTER)
    assert lake.published_bound() == STEP
    committed = answer(lake, "state", "show")
    assert committed["bookmarks"]["grows"]["replication_key_value"] == 2 * STEP
    recovered = answer(lake, "recover")
    assert recovered == {"pipeline": PIPELINE, "finished": committed["run_id"], "rolled_back": []}
    lake.check_exact(2 * STEP)
    assert answer(lake, "recover")["finished"] is None


@pytest.mark.slow
def test_recover_keeps_resumable_data(lake: SmallLake) -> None:
    """Its answer names the run from which the next one continues."""
    resuming = ResumingLake(lake.url, {})
    resuming.sync()
    die(resuming, "commit", DIE_BEFORE)
    staged = lake.staged_paths()
    (dead, _) = answer(lake, "runs")
    recovered = answer(lake, "recover")
    assert recovered == {
        "pipeline": PIPELINE,
        "finished": None,
        "rolled_back": [dead["run_id"]],
    } | {"can_continue": dead["run_id"]}
    reported = " ".join(spark_lake(lake, "recover").stdout.split())
    assert f"The next run continues from what run {dead['run_id']} staged." in reported
    assert lake.staged_paths() == staged
    resuming.check_exact(resuming.sync())
    assert resuming.taken_over() == len(staged)
    (resumed, *_) = answer(lake, "runs")
    assert (resumed["outcome"], resumed["streams"]["grows"]["records"]) == ("succeeded", STEP)


def test_unlock_rolls_back_uncommitted_run(lake: SmallLake) -> None:
    lake.sync()
    die(lake, "commit", DIE_BEFORE)
    dead = answer(lake, "runs")[0]
    assert dead["outcome"] == "failed"
    assert "died" in dead["error"]
    assert answer(lake, "unlock")["rolled_back"] == [dead["run_id"]]
    assert answer(lake, "runs")[0]["outcome"] == "rolled_back"
    lake.check_exact(STEP)


@pytest.mark.slow
def test_people_get_tables_with_whole_run_ids(lake: SmallLake) -> None:
    lake.sync()
    (run,) = answer(lake, "runs")
    for words in (("runs",), ("state", "history")):
        assert run["run_id"] in spark_lake(lake, *words).stdout
    for words in (("runs",), ("state", "show"), ("state", "history"), ("recover",)):
        done = spark_lake(lake, *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        assert not done.stdout.startswith("{")


@pytest.mark.slow
def test_no_command_needs_spark(lake: SmallLake) -> None:
    config = Path(lake.url).parent / "target.json"
    code = (
        "import sys; from target_spark_lake.ops.spark_lake import command; "
        f"command(['runs', '--config', '{config}']); assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_missing_config_is_one_clear_line(tmp_path: Path) -> None:
    code = "from target_spark_lake.ops.spark_lake import main; main()"
    command = [sys.executable, "-c", code, "runs", "--config", f"{tmp_path}/none.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"spark-lake: RUN-001 --config {tmp_path}/none.json: No such file or directory; name it "
        "by --config, or let `spark-lake init` write one\n"
    )
