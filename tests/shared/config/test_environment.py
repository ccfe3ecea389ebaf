"""`${NAME}` in a config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from singer_spark.config.environment import expand
from singer_spark.errors import MASK, ConfigurationError, redact
from tap_spark_jdbc.command_line import command
from tap_spark_jdbc.config.settings import TapSettings
from target_spark_lake.cli import spark_lake
from target_spark_lake.settings import TargetSettings
from target_spark_lake.target import TargetSparkLake


def test_variables_are_put_in_at_any_depth_and_a_plain_one_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "1")
    monkeypatch.setenv("B_2", "two ${A} $$")
    config = {"x": "a${A}b${B_2}", "y": [{"z": ["${A}", 1, None, True]}], "w": "$${A} $A ${env:A} ${} $${ ${a-b}"}
    assert expand(config) == {
        "x": "a1btwo ${A} $$",
        "y": [{"z": ["1", 1, None, True]}],
        "w": "${A} $A ${env:A} ${} ${ ${a-b}",
    }
    assert config["x"] == "a${A}b${B_2}"


def test_a_variable_that_is_not_set_names_itself_and_its_setting_and_all_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        expand({"a": "${MISSING_1}", "b": {"c": ["x", "${MISSING_2}"]}})
    assert "a: the environment has no variable MISSING_1" in str(raised.value)
    assert "b.c[1]: the environment has no variable MISSING_2" in str(raised.value)


def test_a_setting_that_is_no_text_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"N": "7", "FLAG": "false", "LIST": '["s.a", "s.b"]', "OPTIONS": '{"key": "k"}'}.items():
        monkeypatch.setenv(name, value)
    tap = TapSettings.from_config(
        {"jdbc_url": "jdbc:sqlite:x", "n_jobs": "${N}", "tables": "${LIST}", "add_record_metadata": "${FLAG}"}
    )
    assert (tap.n_jobs, tap.tables, tap.add_record_metadata) == (7, ("s.a", "s.b"), False)
    target = TargetSettings.from_config(
        {
            "bucket": "b",
            "pipeline": "${N}",
            "target_file_mb": "${N}",
            "resume": "${FLAG}",
            "storage_options": "${OPTIONS}",
        }
    )
    assert (target.pipeline, target.target_file_mb, target.resume) == ("7", 7, False)
    assert target.storage_options == {"key": "k"}


def test_a_variable_whose_name_tells_a_secret_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "s3cr3t-value")
    monkeypatch.setenv("PLAIN_FOLDER", "some-folder")
    expand({"a": "${LAKE_SECRET}/${PLAIN_FOLDER}"})
    assert redact("s3cr3t-value some-folder") == f"{MASK} some-folder"


def test_each_program_expands_once_and_tells_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKE", f"{tmp_path}/lake-${{LAKE}}")
    config = {"bucket": "${LAKE}", "pipeline": "$${LAKE}", "flattening_separator": "${LAKE}"}
    target = TargetSparkLake(config=config)
    assert (target.settings.bucket, target.settings.pipeline) == (f"{tmp_path}/lake-${{LAKE}}", "${LAKE}")
    assert target.config["flattening_separator"] == f"{tmp_path}/lake-${{LAKE}}"
    file = tmp_path / "target.json"
    file.write_text(json.dumps(config))
    assert spark_lake.command(["state", "show", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pipeline"] == "${LAKE}"
    told = tap_error(tmp_path, {"jdbc_url": "jdbc:sqlite:x", "password": "${NOT_SET}"})
    assert "password: the environment has no variable NOT_SET" in told
    file.write_text(json.dumps({"bucket": "${NOT_SET}", "pipeline": "p"}))
    told = tap_error(tmp_path, {"jdbc_url": "jdbc:sqlite:x"}, "--state-from", str(file))
    assert "bucket: the environment has no variable NOT_SET" in told


def tap_error(folder: Path, config: dict[str, Any], *words: str) -> str:
    (folder / "tap.json").write_text(json.dumps(config))
    done = CliRunner().invoke(command, ["--config", str(folder / "tap.json"), *words])
    return str(done.exception)
