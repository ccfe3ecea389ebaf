"""The documentation, the help and the completion of `spark-lake` say what it does."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from singer_spark.errors import ConfigurationError
from target.loading import Lake, record, schema, state
from target_spark_lake.ops import spark_lake
from target_spark_lake.ops.spark_lake import COMMANDS, SHELLS

PAGE = Path(__file__).parents[3] / "docs/spark-lake.md"
A_RUN = "20251121T040000000000Z-0a1b2c3d"
NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two runs of `public-orders`, and the config that the page calls target.json, in the working
    folder.
    """
    monkeypatch.chdir(tmp_path)
    made = Lake(tmp_path / "lake")
    Path("target.json").write_text(json.dumps({"bucket": "lake", "pipeline": "test"}))
    described = schema("public-orders", {"id": {"type": "integer"}, "updated_at": NAIVE}, ("id",))
    for day in ("2025-01-18T00:00:00", "2025-01-19T00:00:00"):
        bookmark = {"replication_key": "updated_at", "replication_key_value": f"{day}.000000"}
        row = record("public-orders", id=1, updated_at=day)
        made.load(
            {**described, "bookmark_properties": ["updated_at"]},
            row,
            state(bookmarks={"public-orders": bookmark}),
        )
    return made


def runs(capsys: Any) -> list[Any]:
    capsys.readouterr()
    spark_lake.command(["runs", "--json", "--config", "target.json"])
    return list(json.loads(capsys.readouterr().out))


def words_of(line: str, capsys: Any) -> list[str]:
    """The words behind `spark-lake`; the page's run is the first one."""
    words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    return [runs(capsys)[-1]["run_id"] if word == A_RUN else word for word in words]


def commands(group: click.Group = COMMANDS, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Every command, by all of its words."""
    for name, each in group.commands.items():
        if isinstance(each, click.Group):
            yield from commands(each, *words, name)
        else:
            yield " ".join((*words, name)), each


def test_documented_commands_work(lake: Lake, capsys: Any) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [
        line for block in blocks for line in block.splitlines() if line.startswith("spark-lake ")
    ]
    assert len(lines) > 15
    # A healthy pipeline has no run to abandon, and there is no database here to read; these have
    # their own tests.
    for line in (
        each
        for each in lines
        if "--give-up-publishing" not in each and each.split()[1] not in ("run", "check")
    ):
        words = words_of(line, capsys)
        capsys.readouterr()
        assert spark_lake.command(words) == 0, line
        reported = capsys.readouterr()
        assert reported.out.strip(), line
        assert "nothing was changed" not in reported.err, line
    assert lake.rows("public-orders", "id") == [(1,), (1,)]
    assert (lake.folder / "raw/public-orders/_delta_log").exists()


@pytest.mark.parametrize(
    "leading", [["--config", "target.json", "--json"], ["--json", "--config=target.json"]]
)
def test_flags_may_precede_command(lake: Lake, leading: list[str], capsys: Any) -> None:
    expected = runs(capsys)
    assert spark_lake.command([*leading, "runs"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    assert spark_lake.command([*leading, "rns"]) == 2
    assert "No such command 'rns'" in capsys.readouterr().err


def test_every_command_has_valid_examples_and_help(lake: Lake, capsys: Any) -> None:
    """Every command shows a valid example, and every flag has a help text."""
    page, found = PAGE.read_text(encoding="utf-8"), dict(commands())
    assert len(found) > 15
    for name, each in found.items():
        assert spark_lake.command([*name.split(), "--help"]) == 0
        reported = capsys.readouterr().out
        *_, examples = reported.partition("examples:\n")
        assert f"  spark-lake {name}" in examples
        for example in examples.splitlines():
            words = words_of(example, capsys)
            assert callable(COMMANDS.main(words, standalone_mode=False)), example
        for flag in each.params:
            if isinstance(flag, click.Option):
                assert flag.help or flag.hidden, (name, flag.name)
            else:
                is_choice = isinstance(flag.type, click.Choice)
                assert is_choice or f"{str(flag.name).upper()} is the " in reported
        assert re.search(rf"spark-lake {name}\b", page)


def test_wrong_command_line_exits_with_2(capsys: Any) -> None:
    for words in (
        ["frobnicate"],
        ["runs", "x"],
        ["state"],
        ["state", "set", "--config", "x"],
        ["completion", "tcsh"],
        ["report", "--output", "page.html", "--runs", "many"],
        ["init", "public.orders"],
        ["run", "--every", "5m", "--at", "@daily"],
        ["run", "--full", "--replace", "--append-again"],
    ):
        assert spark_lake.command(words) == 2, words
        reported = capsys.readouterr()
        assert reported.out == ""
        assert "Usage: spark-lake" in reported.err or "is not allowed with" in reported.err


def test_program_lists_commands_and_version(capsys: Any) -> None:
    assert spark_lake.command([]) == 0
    listed = capsys.readouterr().out
    assert [name for name in COMMANDS.commands if f"\n  {name} " not in listed] == []
    assert spark_lake.command(["-h"]) == 0
    assert capsys.readouterr().out == listed
    assert spark_lake.command(["--version"]) == 0
    assert capsys.readouterr().out == f"spark-lake v{version('target-spark-lake')}\n"


def test_config_defaults_to_target_json(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"RUN-001 .*--config.*target\.json.*--config"):
        spark_lake.command(["runs"])
    Path("target.json").write_text(json.dumps({"bucket": "lake", "pipeline": "shop"}))
    assert spark_lake.command(["runs"]) == 1
    assert capsys.readouterr().out == f"No run of pipeline shop in {tmp_path}/lake.\n"
    assert spark_lake.command(["view"]) == 0


def test_unknown_pipeline_gets_a_suggestion(lake: Lake, capsys: Any) -> None:
    """A pipeline that never ran is refused with the nearest name and leaves nothing."""
    standing = sorted(lake.folder.rglob("*"))
    words = {
        "state set": [
            "--stream",
            "s",
            "--value",
            "1",
            "--replication-key",
            "id",
            "--type",
            "integer",
        ],
        "state restore": [A_RUN],
        "convert": ["--format", "delta"],
        "report": ["--output", "page.html"],
    }
    others = ("init", "check", "run", "completion", "verify", "log drop")
    named = [name for name, _ in commands() if name not in others]
    for name in named:
        with pytest.raises(ConfigurationError, match=r"LAKE-055 .*tset.*test"):
            spark_lake.command([*name.split(), *words.get(name, ()), "--pipeline", "tset"])
    # As where the config's own has not run yet, and the command needs one that has.
    Path("target.json").write_text(json.dumps({"bucket": "lake", "pipeline": "tset"}))
    for name in ("compact", "convert", "state reset", "state restore"):
        with pytest.raises(ConfigurationError, match=r"LAKE-055 .*tset"):
            spark_lake.command([*name.split(), *words.get(name, ())])
    assert sorted(lake.folder.rglob("*")) == standing
    # A tap may have left batches where no run of a target ever began.
    assert spark_lake.command(["recover"]) == spark_lake.command(["vacuum"]) == 0
    assert spark_lake.command(["state", "set", *words["state set"]]) == 0


def test_output_hides_login_of_bucket_url(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "target.json"
    file.write_text(json.dumps({"bucket": "memory://us:s3cr3tpw@h/x", "pipeline": "shop"}))
    for name in ("runs", "status"):
        assert spark_lake.command([name, "--config", str(file)]) == 1
        assert capsys.readouterr().out.endswith(" in memory://h/x.\n")


def test_shells_complete_commands_and_flags(tmp_path: Path, capsys: Any) -> None:
    programs = Path(sys.executable).parent
    for shell in SHELLS:
        assert spark_lake.command(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "spark-lake" in script
        assert f"_SPARK_LAKE_COMPLETE={shell}_complete" in script
        (tmp_path / shell).write_text(script)
    ask = f"""
source {tmp_path}/bash
function=$(complete -p spark-lake | sed 's/.* -F //; s/ .*//')
spark() {{
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  "$function" "$1"; echo "${{COMPREPLY[@]}}"
}}
spark spark-lake st
spark spark-lake state re
spark spark-lake state restore --be
"""
    variables = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", ask],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=variables,
    )
    assert done.stdout.split("\n")[:3] == ["status state", "reset restore", "--before"], done.stderr
    # What the scripts of the others ask the program.
    for shell in ("zsh", "fish"):
        asked = {"_SPARK_LAKE_COMPLETE": f"{shell}_complete", "COMP_WORDS": "spark-lake state re"}
        done = subprocess.run(
            [programs / "spark-lake"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**variables, **asked, "COMP_CWORD": "re" if shell == "fish" else "2"},
        )
        assert "reset" in done.stdout and "restore" in done.stdout, (shell, done.stderr)
        assert "show" not in done.stdout


def test_tables_flag_takes_several_words(capsys: Any) -> None:
    words = ["init", "--tables", "a", "!b", "--cron", "@daily", "--tables", "c"]
    chosen: Any = COMMANDS.main(words, standalone_mode=False)
    assert (chosen.keywords["tables"], chosen.keywords["cron"]) == (("a", "!b", "c"), "@daily")


def test_value_may_be_negative_number(lake: Lake, capsys: Any) -> None:
    words = ["--stream", "s", "--value", "-5", "--replication-key", "id", "--type", "integer"]
    assert spark_lake.command(["state", "set", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bookmarks"]["s"]["replication_key_value"] == -5
