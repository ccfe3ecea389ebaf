"""`${NAME}` and `${file:PATH}` in a config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from singer_spark.core.config_file import expand
from singer_spark.errors import MASK, ConfigurationError, redact
from tap_spark_jdbc.command_line import command
from tap_spark_jdbc.config.settings import TapSettings
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.ops import spark_lake
from target_spark_lake.target import TargetSparkLake


def test_variables_are_expanded_at_any_depth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Variables are expanded at any depth, and a literal one can be written."""
    monkeypatch.setenv("A", "1")
    monkeypatch.setenv("B_2", "two ${A} $$")
    config = {
        "x": "a${A}b${B_2}",
        "y": [{"z": ["${A}", 1, None, True]}],
        "w": "$${A} $A ${env:A} ${} $${ ${a-b}",
    }
    assert expand(config) == {
        "x": "a1btwo ${A} $$",
        "y": [{"z": ["1", 1, None, True]}],
        "w": "${A} $A ${env:A} ${} ${ ${a-b}",
    }
    assert config["x"] == "a${A}b${B_2}"


def test_missing_variables_are_all_named_at_once() -> None:
    """All variables that are not set are named at once, each with its setting."""
    with pytest.raises(ConfigurationError) as raised:
        expand({"a": "${MISSING_1}", "b": {"c": ["x", "${MISSING_2}"]}})
    assert "a: the environment has no variable MISSING_1" in str(raised.value)
    assert "b.c[1]: the environment has no variable MISSING_2" in str(raised.value)


def test_non_string_setting_is_read_from_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "N": "7",
        "FLAG": "false",
        "LIST": '["s.a", "s.b"]',
        "OPTIONS": '{"key": "k"}',
    }.items():
        monkeypatch.setenv(name, value)
    tap = TapSettings.from_config(
        {
            "jdbc_url": "jdbc:sqlite:x",
            "n_jobs": "${N}",
            "tables": "${LIST}",
            "add_record_metadata": "${FLAG}",
        }
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


def test_variable_with_secret_name_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "s3cr3t-value")
    monkeypatch.setenv("PLAIN_FOLDER", "some-folder")
    expand({"a": "${LAKE_SECRET}/${PLAIN_FOLDER}"})
    assert redact("s3cr3t-value some-folder") == f"{MASK} some-folder"


def test_programs_expand_variables_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each program names the variables that are missing."""
    monkeypatch.setenv("LAKE", f"{tmp_path}/lake-${{LAKE}}")
    config = {"bucket": "${LAKE}", "pipeline": "$${LAKE}", "flattening_separator": "${LAKE}"}
    target = TargetSparkLake(config=config)
    assert (target.settings.bucket, target.settings.pipeline) == (
        f"{tmp_path}/lake-${{LAKE}}",
        "${LAKE}",
    )
    assert target.config["flattening_separator"] == f"{tmp_path}/lake-${{LAKE}}"
    file = tmp_path / "target.json"
    file.write_text(json.dumps(config))
    assert spark_lake.command(["state", "show", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pipeline"] == "${LAKE}"
    reported = tap_error(tmp_path, {"jdbc_url": "jdbc:sqlite:x", "password": "${NOT_SET}"})
    assert "password: the environment has no variable NOT_SET" in reported
    file.write_text(json.dumps({"bucket": "${NOT_SET}", "pipeline": "p"}))
    reported = tap_error(tmp_path, {"jdbc_url": "jdbc:sqlite:x"}, "--state-from", str(file))
    assert "bucket: the environment has no variable NOT_SET" in reported


def test_file_contents_are_inserted_at_any_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File contents are inserted at any depth, without one line break at the end."""
    held = {
        "plain": "one",
        "lf": "two\n",
        "crlf": "three\r\n",
        "two lines": "a\nb\n\n",
        "nothing": "",
        "cr": "x\r",
    }
    for name, text in held.items():
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "reference").write_text("${HOME} ${file:plain} ü\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FOLDER", "folder")
    config = {
        "x": f"a${{file:{tmp_path}/plain}}b${{file:lf}}c${{FOLDER}}",
        "y": [{"z": ["${file:crlf}", 1, None, "${file:~/two lines}"]}, "[${file:nothing}]"],
        "w": ["${file:reference}", "${file:cr}"],
    }
    assert expand(config) == {
        "x": "aonebtwocfolder",
        "y": [{"z": ["three", 1, None, "a\nb\n"]}, "[]"],
        "w": ["${HOME} ${file:plain} ü", "x\r"],
    }
    assert expand({"--state": "jdbc:x://u:${file:lf}@h"}) == {"--state": "jdbc:x://u:two@h"}


def test_file_reference_lookalike_stays_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("held")
    monkeypatch.chdir(tmp_path)
    texts = [
        "$${file:x}",
        "${file:}",
        "${file}x",
        "${FILE:x}",
        "${ file:x}",
        "$file:x",
        "${file/x}",
        "{file:x}",
        "${file:x",
    ]
    monkeypatch.setenv("file", "a variable: ")
    plain = ["${file:x}", "${file:}", "a variable: x", *texts[3:]]
    assert expand({"a": texts}) == {"a": plain}
    assert expand({"a": "$$${file:x}"}) == {"a": "$${file:x}"}


def test_unreadable_files_are_named_without_content(
    tmp_path: Path,
) -> None:
    """Each unreadable file is named with its setting, and nothing it holds is shown."""
    (tmp_path / "bytes").write_bytes(b"hunter2\xff")
    (tmp_path / "good").write_text("hunter3")
    config = {
        "a": f"${{file:{tmp_path}/none}}",
        "b": {"c": ["x", f"${{file:{tmp_path}}}"], "d": f"${{file:{tmp_path}/good}}"},
        "e": f"${{file:{tmp_path}/bytes}}",
        "f": "${MISSING_1}${file:nu\0l}",
    }
    with pytest.raises(ConfigurationError) as raised:
        expand(config)
    assert raised.value.message.removeprefix("config: ").split("; ")[:-1] == [
        f"a: can't read {tmp_path}/none: No such file or directory",
        f"b.c[1]: can't read {tmp_path}: Is a directory",
        f"e: {tmp_path}/bytes is not UTF-8 text",
        "f: the environment has no variable MISSING_1",
        "f: can't read nu\0l: embedded null byte",
    ]
    assert "hunter" not in str(raised.value)


def test_non_string_setting_is_read_from_file(tmp_path: Path) -> None:
    for name, text in {
        "jobs": "7\n",
        "flag": "false\n",
        "list": '["s.a", "s.b"]',
        "options": '{"key": "k-of-file"}\n',
    }.items():
        (tmp_path / name).write_text(text)
    file = f"${{file:{tmp_path}/%s}}"
    tap = TapSettings.from_config(
        {
            "jdbc_url": "jdbc:sqlite:x",
            "n_jobs": file % "jobs",
            "tables": file % "list",
            "add_record_metadata": file % "flag",
        }
    )
    assert (tap.n_jobs, tap.tables, tap.add_record_metadata) == (7, ("s.a", "s.b"), False)
    target = TargetSettings.from_config(
        {"bucket": "b", "pipeline": file % "jobs", "storage_options": file % "options"}
    )
    assert (target.pipeline, target.storage_options) == ("7", {"key": "k-of-file"})
    assert redact("k-of-file is false, not true") == f"{MASK} is false, not true"


def test_members_of_an_object_from_a_file_are_masked(tmp_path: Path) -> None:
    """The members of an object that came from a file are masked too."""
    (tmp_path / "spark").write_text(
        '{"conf": {"spark.executorEnv.DB": "member-of-a-file", "spark.x": "yes"}}'
    )
    (tmp_path / "tables").write_text('["public.orders-of-a-file"]')
    text = {"type": "object"}, {"type": "array"}
    files = {"spark": f"${{file:{tmp_path}/spark}}", "tables": f"${{file:{tmp_path}/tables}}"}
    expand(files, dict(zip(files, text, strict=True)))
    reported = "yes, member-of-a-file and public.orders-of-a-file"
    assert redact(reported) == f"yes, {MASK} and public.orders-of-a-file"


def test_file_content_is_always_masked(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("from-the-file/ü\n")
    expand({"user": f"${{file:{tmp_path}/x}}"})
    assert (
        redact("no from-the-file/ü, from-the-file%2F%C3%BC at from-the")
        == f"no {MASK}, {MASK} at from-the"
    )


def test_programs_take_secrets_from_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each program takes secrets from files and reports which one is missing."""
    (tmp_path / "place").write_text(f"{tmp_path}/lake\n")
    missing = f"${{file:{tmp_path}/none}}"
    config = {
        "bucket": f"${{file:{tmp_path}/place}}",
        "pipeline": "p",
        "flattening_separator": f"${{file:{tmp_path}/place}}",
    }
    target = TargetSparkLake(config=config)
    assert target.settings.bucket == target.config["flattening_separator"] == f"{tmp_path}/lake"
    file = tmp_path / "target.json"
    file.write_text(json.dumps(config))
    assert spark_lake.command(["state", "show", "--config", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pipeline"] == "p"
    reported = tap_error(tmp_path, {"jdbc_url": "jdbc:sqlite:x", "password": missing})
    assert f"password: can't read {tmp_path}/none: No such file or directory" in reported
    file.write_text(json.dumps({"bucket": missing, "pipeline": "p"}))
    reported = tap_error(tmp_path, {"jdbc_url": "jdbc:sqlite:x"}, "--state-from", str(file))
    assert f"bucket: can't read {tmp_path}/none" in reported
    reported = tap_error(tmp_path, {"jdbc_url": "jdbc:sqlite:x"}, "--state", missing)
    assert f"--state: can't read {tmp_path}/none" in reported


def tap_error(folder: Path, config: dict[str, Any], *words: str) -> str:
    (folder / "tap.json").write_text(json.dumps(config))
    done = CliRunner().invoke(command, ["--config", str(folder / "tap.json"), *words])
    return str(done.exception)
