"""What `spark-lake init` makes of a Meltano project: what is there already stays."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.errors import ConfigurationError
from target.ops.init_command import SHOP
from target_spark_lake.ops.init import init
from target_spark_lake.ops.meltano_yml import MeltanoEntry
from target_spark_lake.ops.new_pipeline import NewPipeline

WRITTEN = """\
# Our project.
version: 1   # of Meltano's file
default_environment: dev
environments:
  - name: dev
  - name: prod   # the real one
plugins:
  # Where data comes from.
  extractors:
    - name: tap-github   # theirs
      config:
        repository: 'a/b'
    # - name: tap-off

  # Where it goes.
  loaders:
    - name: target-jsonl
jobs: []

# At night.
schedules:
  - name: nightly
    interval: '@daily'
    job: nightly
# The end.
"""


def test_meltano_yml_keeps_content_and_comments(tmp_path: Path) -> None:
    (tmp_path / "meltano.yml").write_text(WRITTEN)
    init(NewPipeline(**{**vars(SHOP), "cron": "@daily"}), tmp_path)
    text = (tmp_path / "meltano.yml").read_text()
    lines = iter(text.splitlines())
    lacking = [line for line in WRITTEN.splitlines() if line != "jobs: []" and line not in lines]
    assert lacking == [], text
    # What was before a key is still there.
    assert "\n\n  # Where it goes.\n  loaders:\n" in text
    assert "\n\n# At night.\nschedules:\n" in text
    assert text.endswith("# The end.\n")
    project = yaml.safe_load(text)
    assert [each["name"] for each in project["plugins"]["extractors"]] == [
        "tap-github",
        "tap-spark-jdbc",
        "tap-spark-jdbc--shop",
    ]
    assert project["jobs"] == [
        {"name": "shop", "tasks": ["tap-spark-jdbc--shop target-spark-lake--shop"]}
    ]
    assert project["schedules"][1] == {"name": "shop", "interval": "@daily", "job": "shop"}
    schema = json.loads((resources.files("meltano") / "schemas/meltano.schema.json").read_text())
    problems = jsonschema.validators.validator_for(schema)(schema).iter_errors(project)
    assert [(problem.json_path, problem.message) for problem in problems] == []


def test_init_adds_pipeline_and_force_rewrites_only_it(tmp_path: Path) -> None:
    """A second pipeline is added, and `--force` rewrites one pipeline and nothing else."""
    (tmp_path / "meltano.yml").write_text(WRITTEN)
    init(SHOP, tmp_path)
    first = (tmp_path / "meltano.yml").read_text()
    init(SHOP, tmp_path, force=True)
    assert (tmp_path / "meltano.yml").read_text() == first
    other = NewPipeline("books", "jdbc:sqlite:books.db", "./lake")
    init(other, tmp_path, tap_config="tap-books.json", config="target-books.json")
    both = (tmp_path / "meltano.yml").read_text()
    init(NewPipeline(**{**vars(SHOP), "load_method": "upsert"}), tmp_path, force=True)
    changed = (tmp_path / "meltano.yml").read_text()
    with pytest.raises(ConfigurationError, match=r"LAKE-090 .*shop"):
        init(NewPipeline(**{**vars(SHOP), "pipeline": "Shop."}), tmp_path, force=True)
    assert set(first.splitlines()) < set(both.splitlines())
    assert [line for line in changed.splitlines() if line not in both.splitlines()] == [
        "        load_method: upsert"
    ]
    pipelines = yaml.safe_load(changed)["state_backend"]["lake"]["pipelines"]
    assert list(pipelines.values()) == ["shop", "shop", "books", "books"]
    assert "dev:tap-spark-jdbc--shop-to-target-spark-lake--shop" in pipelines


@pytest.mark.parametrize(
    ("there", "content", "says"),
    [
        ("tap.json", "{}", r"LAKE-090 .*tap\.json"),
        ("target.json", "{}", r"LAKE-090 .*target\.json"),
        ("meltano.yml", "plugins: [1", "LAKE-093 .*line 1, column 1"),
        ("meltano.yml", "plugins:\n  extractors: 7\n", "LAKE-093 .*extractors"),
        ("meltano.yml", "- a\n", "LAKE-093 .*plugins"),
        ("meltano.yml", "jobs:\n- name: shop\n", "LAKE-090 .*shop in jobs"),
    ],
)
def test_init_overwrites_nothing_without_force(
    tmp_path: Path, there: str, content: str, says: str
) -> None:
    (tmp_path / there).write_text(content)
    with pytest.raises(ConfigurationError, match=says):
        init(SHOP, tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, content)]


def test_meltano_executables_have_no_paths(tmp_path: Path) -> None:
    """The project works on other machines too."""
    init(SHOP, tmp_path)
    plugins = yaml.safe_load((tmp_path / "meltano.yml").read_text())["plugins"]
    assert plugins["extractors"][0]["executable"] == "tap-spark-jdbc"
    assert plugins["loaders"][0]["executable"] == "target-spark-lake"


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1))
def test_any_text_is_read_back_from_yaml_as_it_was(text: str) -> None:
    config: dict[str, Any] = {"jdbc_url": text, "tables": [text, "x"]}
    programs = {"tap-spark-jdbc": text, "target-spark-lake": "t"}
    written, _ = MeltanoEntry("p", config, {"bucket": "b"}, programs).added_to(
        WRITTEN, replace=False, origin="f"
    )
    (_, program, extractor) = yaml.safe_load(written)["plugins"]["extractors"]
    assert program["executable"] == text
    if "$" not in text:
        assert extractor["config"] == config
