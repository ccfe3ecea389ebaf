"""A target without a line of input: the tap did not start, and its run has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from singer_spark.errors import LockedError
from singer_spark.store.storage import Storage
from target.loading import Lake, record, schema, state
from target.ops.report.read_status import status
from target_spark_lake import target
from target_spark_lake.commit import run_reports
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.table.changes import Commit

ID = {"id": {"type": ["integer", "null"]}}


def test_unstarted_tap_is_a_failed_run(
    tmp_path: Path, capsys, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tap that does not start is a failed run, although the target exits normally."""

    def start(*_: object) -> None:
        raise AssertionError("no Spark for this")

    monkeypatch.setattr(target, "start_session", start)
    lake = Lake(tmp_path / "lake")
    lake.load()  # also where the pipeline never ran before
    assert (
        status(lake.folder, capsys, exit_code=1)[1]
        == "spark-lake: pipeline test: its last run failed\n"
    )
    lake.load(
        schema("orders", ID, ("id",)), record("orders", id=1), state(bookmarks={"orders": {"v": 1}})
    )
    before = lake.files(), lake.state(), status(lake.folder, capsys)[0]["test"]["last_success"]

    caplog.clear()
    for nothing in (b"", b"\n \n"):
        lake.load(nothing)
        found, said = status(lake.folder, capsys, exit_code=1)
        assert said == "spark-lake: pipeline test: its last run failed\n"
        assert (found["test"]["outcome"], found["test"]["running"]) == ("failed", False)
        assert (lake.files(), lake.state(), found["test"]["last_success"]) == before
    assert caplog.text.count("the tap did not start") == 2
    newest = run_reports.runs(Storage(str(lake.folder)), Layout("test"))[0]
    assert newest["error"].startswith("LAKE-006 ")

    lake.load(
        schema("orders", ID, ("id",)), record("orders", id=2), state(bookmarks={"orders": {"v": 2}})
    )
    status(lake.folder, capsys)


def test_empty_input_beside_a_live_run_leaves_no_trace(tmp_path: Path, capsys) -> None:
    """An empty input leaves no trace while another run holds the pipeline."""
    lake = Lake(tmp_path / "lake")
    held = open_run(Storage(str(lake.folder)), Layout("test"))
    with pytest.raises(LockedError, match="LAKE-060"):
        lake.load()
    held.commit(Commit((), {"bookmarks": {}}))
    assert [each["outcome"] for each in run_reports.runs(held.storage, held.layout)] == [
        "succeeded"
    ]
