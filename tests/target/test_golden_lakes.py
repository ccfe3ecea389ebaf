"""Lakes and states that each released version wrote: today's code reads them, and continues with
them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from singer_spark.store.storage import Storage
from target.delta_lake import DeltaLake
from target.loading import JSON, Lake
from target_spark_lake.ops import spark_lake

GOLDEN = Path(__file__).parents[1] / "golden"
COLUMNS = 'id, name, CAST("at" AS VARCHAR)'
VERSIONS = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "expected.json").exists())


def opened(version: str, bucket: str, tmp_path: Path) -> tuple[Lake, JSON]:
    """A copy of a version's bucket, and what is expected of it."""
    shutil.copytree(GOLDEN / version / bucket, tmp_path / "lake")
    expected = json.loads((GOLDEN / version / "expected.json").read_text())[bucket]
    kind = DeltaLake if expected["settings"].get("format") == "delta" else Lake
    return kind(tmp_path / "lake"), expected


def answer(lake: Lake, capsys: Any, *words: str) -> Any:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    capsys.readouterr()
    assert spark_lake.command([*words, "--config", str(config), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def found(lake: Lake, tables: JSON) -> JSON:
    return {table: [list(row) for row in lake.rows(table, COLUMNS)] for table in tables}


def go_on(lake: Lake, expected: JSON) -> None:
    lines = lake.announced(expected["next"])
    assert lines[0]["start"] == ("resume" if expected.get("resumes") else "saved")
    lake.load(*lines, **expected["settings"])
    assert found(lake, expected["rows_after"]) == expected["rows_after"]
    assert lake.state() == expected["next"][-1]["value"]
    assert Storage(str(lake.folder)).list(".dataspoc/staging") == []


@pytest.mark.parametrize("bucket", ["parquet", "delta"])
@pytest.mark.parametrize("version", VERSIONS)
def test_lakes_of_released_versions_are_continued(
    spark: Any, version: str, bucket: str, tmp_path: Path, capsys: Any
) -> None:
    """Tables, journals and states of every released version are read and continued."""
    lake, expected = opened(version, bucket, tmp_path)
    assert found(lake, expected["rows"]) == expected["rows"]
    assert answer(lake, capsys, "state", "show")["bookmarks"] == expected["state"]["bookmarks"]
    second, first = answer(lake, capsys, "runs")
    assert (second["outcome"], second["streams"]["events"]["rejected"]) == ("succeeded", 1)
    assert [saved["run_id"] for saved in answer(lake, capsys, "state", "history")] == [
        second["run_id"],
        first["run_id"],
    ]
    (status,) = answer(lake, capsys, "status")
    assert (status["last_success"], status["running"]) == (second["finished_at"], False)
    go_on(lake, expected)
    assert (
        answer(lake, capsys, "state", "restore", first["run_id"])["bookmarks"]
        != expected["state"]["bookmarks"]
    )
    assert answer(lake, capsys, "compact")["tables"]
    assert found(lake, expected["rows_after"]) == expected["rows_after"]


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("bucket", ["committed", "cut"])
@pytest.mark.parametrize("version", VERSIONS)
def test_unfinished_runs_of_releases_are_continued(
    version: str, bucket: str, tmp_path: Path
) -> None:
    """A run that a released version left unfinished is finished or resumed."""
    lake, expected = opened(version, bucket, tmp_path)
    assert (found(lake, expected["rows"]), lake.state()) == (expected["rows"], expected["state"])
    go_on(lake, expected)


def test_every_set_of_golden_lakes_is_whole() -> None:
    assert "0.1.0" in VERSIONS
    for version in VERSIONS:
        expected = json.loads((GOLDEN / version / "expected.json").read_text())
        assert sorted(expected) == ["committed", "cut", "delta", "parquet"]
