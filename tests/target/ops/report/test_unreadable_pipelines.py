"""What can't be read of one pipeline is reported by name, and stops no command of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults.faulty import DIE_BEFORE
from faults.small_lake import LAYOUT, PIPELINE, STEP, SmallLake
from singer_spark.errors import StateError
from singer_spark.state.run_log import FORMAT_VERSION
from target.ops.report.read_status import die, status
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.ops import spark_lake


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(f"{tmp_path}/lake", {})


@pytest.mark.slow
def test_unreadable_pipeline_is_reported_alone(lake: SmallLake, capsys) -> None:
    """A pipeline that cannot be read is reported and hides no other."""
    lake.sync()
    storage = lake.storage()
    storage.replace(Layout("edited").state, b'{"bookmarks": nope}')
    newer = json.dumps({"format_version": FORMAT_VERSION + 1}).encode()
    storage.replace(Layout("newer").journal("20260101T000000000000Z-x"), newer)
    reported, problems = status(lake.url, capsys, exit_code=1)
    assert sorted(reported) == ["edited", PIPELINE]
    assert (reported["edited"]["outcome"], reported["edited"]["streams"]) == (None, {})
    assert "pipeline edited: " in problems
    assert "state.json, line 1, column 15: " in problems
    assert "pipeline newer: " in problems
    assert "upgrade this program" in problems
    reported, problems = status(lake.url, capsys, "--pipeline", PIPELINE)
    assert (list(reported), problems) == ([PIPELINE], "")
    storage.replace(Layout("other").table_record("raw/other"), b"{")
    reported, problems = status(lake.url, capsys, "--pipeline", PIPELINE, exit_code=1)
    assert list(reported) == [PIPELINE]
    assert "raw/other.json is damaged" in problems
    # It stops no command of a pipeline that has other tables, nor the undoing of a dead run.
    config = Path(lake.url).parent / "target.json"
    die(lake, DIE_BEFORE)
    for command in (
        ["vacuum"],
        ["compact"],
        ["recover"],
        ["state", "set", "--stream", "grows", "--value", "1"],
    ):
        assert (
            spark_lake.command([*command, "--config", str(config), "--pipeline", PIPELINE]) == 0
        ), command
    # Nor does the page of all, nor a source that is down.
    config, page = Path(lake.url).parent / "target.json", Path(lake.url).parent / "report.html"
    words = [
        "report",
        "--all",
        "--pipeline",
        PIPELINE,
        "--config",
        str(config),
        "--output",
        str(page),
    ]
    assert spark_lake.command(words) == 1
    assert f"<bdi>{PIPELINE}</bdi>" in page.read_text()
    tap = config.with_name("tap.json")
    tap.write_text('{"jdbc_url": "jdbc:sqlite:/nowhere/at/all.db"}')
    reported, problems = status(
        lake.url, capsys, "--pipeline", PIPELINE, "--tap-config", str(tap), exit_code=1
    )
    assert list(reported) == [PIPELINE]
    assert "the tap can't say what there is to read" in problems


def test_journal_without_report_fields_is_tolerated(lake: SmallLake, capsys) -> None:
    """A journal that lacks its report fields stops no command."""
    lake.sync()
    with pytest.raises(RuntimeError), open_run(lake.storage(), LAYOUT).failing():
        raise RuntimeError("x")
    storage, needed = (
        lake.storage(),
        ("format_version", "phase", "last_committed", "state", "publish", "retire"),
    )
    for file in storage.list(LAYOUT.runs):
        body = json.loads(storage.read(file.path) or b"")
        kept = {name: body[name] for name in (*needed, "tables") if name in body}
        storage.replace(file.path, json.dumps(kept).encode())
    reported, problems = status(lake.url, capsys, exit_code=1)
    assert reported[PIPELINE]["outcome"] == "rolled_back"
    assert 0 <= reported[PIPELINE]["age_seconds"] < 600
    assert problems == f"spark-lake: pipeline {PIPELINE}: its last run rolled back\n"
    config, page = Path(lake.url).parent / "target.json", Path(lake.url).parent / "report.html"
    words = ["--config", str(config), "--pipeline", PIPELINE]
    for command in (
        ["runs"],
        ["state", "show"],
        ["state", "history"],
        ["report", "--output", str(page)],
    ):
        assert spark_lake.command([*command, *words]) == 0, command
    assert spark_lake.command(["state", "set", "--stream", "grows", "--value", "1", *words]) == 0
    assert lake.sync() == 1 + STEP


def test_state_of_another_lake_is_reported(tmp_path: Path, capsys) -> None:
    """Every command reports a state that another lake's runs save."""
    backend = {"uri": f"sqlite:///{tmp_path}/states.db", "table_name": "states"}

    def command(lake: str, *words: str) -> int:
        config = tmp_path / "target.json"
        bucket = {"bucket": f"{tmp_path}/{lake}", "pipeline": PIPELINE, "state_backend": backend}
        config.write_text(json.dumps(bucket))
        return spark_lake.command([*words, "--config", str(config)])

    key = ("--stream", "grows", "--value", "1", "--replication-key", "id", "--type", "integer")
    SmallLake(f"{tmp_path}/second", {}).sync()
    assert command("first", "state", "set", *key) == 0
    capsys.readouterr()
    # No run of the second lake gets as far as to leave a journal.
    assert command("second", "status") == 1
    assert "of the lake" in capsys.readouterr().err
    with pytest.raises(StateError, match="RUN-035"):
        command("second", "state", "show")
