"""What a run does with the saved state: Meltano's flags say whether it takes its place, joins it or
leaves it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from target.loading import Lake, record, schema, state
from target_spark_lake.commit.saved_state import Saving, saving_under_meltano, state_to_save

RUN = {"MELTANO_LOADER_NAME": "target-spark-lake"}


@pytest.mark.parametrize(
    ("environ", "arguments", "saving"),
    [
        ({}, ["x", "--no-state-update"], Saving.REPLACE),
        (RUN, ["meltano", "run"], Saving.REPLACE),
        (RUN, ["meltano", "run", "--full-refresh"], Saving.MERGE),
        ({**RUN, "MELTANO_RUN_FULL_REFRESH": "1"}, [], Saving.MERGE),
        ({**RUN, "MELTANO_RUN_FULL_REFRESH": "false"}, [], Saving.REPLACE),
        (RUN, ["meltano", "run", "--full-refresh", "--state-strategy=overwrite"], Saving.REPLACE),
        (RUN, ["meltano", "run", "--state-strategy", "merge"], Saving.MERGE),
        ({**RUN, "MELTANO_RUN_STATE_STRATEGY": "merge"}, [], Saving.MERGE),
        (RUN, ["meltano", "el", "--merge-state"], Saving.MERGE),
        (RUN, ["meltano", "run", "--no-state-update", "--full-refresh"], Saving.KEEP),
        ({**RUN, "MELTANO_RUN_NO_STATE_UPDATE": "true"}, [], Saving.KEEP),
    ],
)
def test_meltano_flags_select_saving_mode(
    environ: dict[str, str], arguments: list[str], saving: Saving
) -> None:
    assert saving_under_meltano(environ, arguments) is saving


def test_merged_state_keeps_unsent_bookmarks() -> None:
    """A merging run keeps the bookmarks of streams that it did not send."""
    saved = {"bookmarks": {"sent": {"v": 1}, "dropped": {"v": 1}, "other": {"v": 1}}, "odd": 1}
    value = {"bookmarks": {"sent": {"v": 2}}}
    merged = {"bookmarks": {"sent": {"v": 2}, "other": {"v": 1}}, "odd": 1}
    assert state_to_save(Saving.MERGE, value, saved, ["sent", "dropped"]) == merged
    assert state_to_save(Saving.MERGE, value, None, ["sent"]) == value
    assert state_to_save(Saving.REPLACE, value, saved, ["sent"]) == value
    assert state_to_save(Saving.KEEP, value, saved, ["sent"]) is None


def test_meltano_flags_keep_or_merge_saved_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Meltano's flags make a run keep the saved state or merge its bookmarks into it."""
    lake, columns = Lake(tmp_path / "lake"), {"id": {"type": "integer"}}
    before = {"a": {"v": 1}, "b": {"v": 1}}
    lake.load(
        schema("a", columns), record("a", id=1), schema("b", columns), state(bookmarks=before)
    )
    capfd.readouterr()
    monkeypatch.setenv("MELTANO_LOADER_NAME", "target-spark-lake")
    monkeypatch.setenv("MELTANO_RUN_NO_STATE_UPDATE", "1")
    lake.load(schema("a", columns), record("a", id=2), state(bookmarks={"a": {"v": 2}}))
    assert (lake.rows("a", "id"), lake.state()) == ([(1,), (2,)], {"bookmarks": before})
    assert "bookmarks" not in capfd.readouterr().out

    monkeypatch.delenv("MELTANO_RUN_NO_STATE_UPDATE")
    monkeypatch.setenv("MELTANO_RUN_FULL_REFRESH", "1")
    lake.load(schema("a", columns), record("a", id=3), state(bookmarks={"a": {"v": 3}}))
    merged = {"bookmarks": {"a": {"v": 3}, "b": {"v": 1}}}
    assert lake.state() == merged
    assert json.loads(capfd.readouterr().out.splitlines()[-1]) == merged
