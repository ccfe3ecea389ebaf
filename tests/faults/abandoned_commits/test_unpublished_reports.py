"""What status, runs and report say of a committed run that is not published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faults.abandoned_run import committed_and_dead, lose
from faults.faulty import Interrupted
from faults.small_lake import STEP, SmallLake
from singer_spark.core.identity import Process
from singer_spark.errors import UnpublishableError
from target_spark_lake.ops import spark_lake


@pytest.fixture
def unpublished(tmp_path: Path, dead: Process) -> tuple[SmallLake, str]:
    """A lake after a run, and the next one, which died once it had committed."""
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    return lake, committed_and_dead(lake, dead)


def words(
    lake: SmallLake, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, Any, str]:
    """What `spark-lake` says to programs."""
    config = Path(lake.url).parent / "target.json"
    config.write_text(json.dumps({"bucket": lake.url, "pipeline": "numbers"}))
    capsys.readouterr()
    code = spark_lake.command([*arguments, "--config", str(config), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_unpublished_commit_is_reported_with_a_reason(
    unpublished: tuple[SmallLake, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status, runs and report say that a committed run is not published, and why."""
    lake, run_id = unpublished
    code, (pipeline,), problems = words(lake, capsys, "status")
    assert (code, pipeline["outcome"], pipeline["running"]) == (1, "committed", False)
    assert (
        f"run {run_id}: committed, but not published yet: the next run, or `spark-lake recover`"
        in problems
    )
    assert pipeline["streams"]["grows"]["records"] == STEP
    lose(lake, run_id, "grows/part-0.zstd.parquet")
    with pytest.raises(UnpublishableError):
        words(lake, capsys, "recover")
    code, (pipeline,), problems = words(lake, capsys, "status")
    assert (code, pipeline["outcome"], "are gone" in problems) == (1, "committed", True)
    _, (reported, _), _ = words(lake, capsys, "runs")
    assert (reported["outcome"], reported["finished_at"], "are gone" in reported["error"]) == (
        "committed",
        None,
        True,
    )
    page = tmp_path / "report.html"
    words(lake, capsys, "report", "--output", str(page))
    assert '<span class="outcome bad">committed</span>' in page.read_text()
    assert "--give-up-publishing" in page.read_text()
    code, done, _ = words(lake, capsys, "recover", "--give-up-publishing", run_id)
    assert (code, done["given_up"]["run_id"], done["finished"]) == (0, run_id, None)
    code, (pipeline,), _ = words(lake, capsys, "status")
    assert (code, pipeline["outcome"]) == (1, "rolled_back")
    lake.sync()
    code, (pipeline,), _ = words(lake, capsys, "status")
    assert (code, pipeline["outcome"]) == (0, "succeeded")


def test_publishing_run_counts_as_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that is publishing right now is reported as running, not as waiting."""
    lake, seen = SmallLake(f"{tmp_path}/lake", {}), []
    lake.sync()

    def look() -> None:
        seen.append((words(lake, capsys, "status"), words(lake, capsys, "runs")[1][0]["outcome"]))

    lake.sync(
        lake.faulty_files(lambda files: Interrupted(files, lambda name, _: name == "move", look))
    )
    ((code, (pipeline,), _), outcome), *_ = seen
    assert (code, pipeline["outcome"], pipeline["running"], outcome) == (
        0,
        "succeeded",
        True,
        "running",
    )


def test_abandoned_run_is_reported_without_journal(
    unpublished: tuple[SmallLake, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was abandoned is reported again even if the journal that says what was lost is
    gone.
    """
    lake, run_id = unpublished
    lose(lake, run_id, "grows/part-0.zstd.parquet")

    def reported() -> str:
        assert spark_lake.command([*again, "--config", str(tmp_path / "target.json")]) == 0
        return capsys.readouterr().out

    again = ["recover", "--give-up-publishing", run_id]
    _, first, _ = words(lake, capsys, *again)
    assert words(lake, capsys, *again)[1] == first
    assert "The next run starts from the state before" in reported()
    lake.sync()
    assert words(lake, capsys, *again)[1]["given_up"] == first["given_up"]
    said = reported()
    assert "was abandoned by run" in said
    assert "others have followed" in said
    assert "The next run starts" not in said
    assert words(lake, capsys, "vacuum", "--older-than", "0s")[1]["journals"]["files"] == 2
    _, last, _ = words(lake, capsys, *again)
    assert last["given_up"] == {**first["given_up"], "streams": None}
    assert "What was lost is no longer known" in reported()
