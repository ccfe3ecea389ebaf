"""The project's own meltano.yml, run by the real Meltano on the demo's shop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 300
STATE_ID = "dev:tap-spark-jdbc-to-target-spark-lake"
PIPELINE = "dev.tap-spark-jdbc-to-target-spark-lake"
PLUGINS = ("tap-spark-jdbc", "target-spark-lake")
KINDS = {
    "integer": {"integer"},
    "number": {"integer"},
    "boolean": {"boolean"},
    "array": {"array"},
    "object": {"object"},
    "string": {None, "password", "options"},
}


@dataclass(frozen=True)
class Project:
    """A copy of the Meltano project with a lake and a shop of its own."""

    root: Path

    def meltano(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MELTANO_", "TAP_", "TARGET_"))}
        return subprocess.run(
            [BIN / "meltano", *arguments],
            cwd=self.root,
            env={**clean, "NO_COLOR": "1", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def run(self, *arguments: str, **variables: str) -> str:
        """Runs Meltano, which must succeed; what it said."""
        done = self.meltano(*arguments, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def shop(self, *flags: str) -> None:
        subprocess.run(
            [sys.executable, ROOT / "demo/make_database.py", self.root / ".demo/shop.db", *flags], check=True
        )

    def lake_state(self, pipeline: str = PIPELINE, bucket: str = ".meltano/lake") -> Any:
        return json.loads((self.root / bucket / ".dataspoc/state" / pipeline / "state.json").read_text())

    def meltano_state(self) -> Any:
        return json.loads(self.meltano("state", "get", STATE_ID).stdout)["singer_state"]

    def query(self, sql: str, bucket: str = ".meltano/lake") -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            for stream in ("orders", "customers"):
                files = self.root / bucket / "raw" / stream / "**/*.parquet"
                connection.execute(f"create view {stream} as from read_parquet('{files}')")
            return connection.sql(sql).fetchall()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "meltano.yml").write_text((ROOT / "meltano.yml").read_text())
    (tmp_path / ".venv").symlink_to(BIN.parent)
    project = Project(tmp_path)
    project.shop()
    return project


def test_runs_jobs_schedules_and_full_refreshes_continue_one_state(project: Project) -> None:
    project.run("install")
    assert not list(project.root.rglob("*.parquet"))

    project.run("run", *PLUGINS)
    assert project.query("select count(*), count(distinct id), max(id) from orders") == [(340, 340, 340)]
    assert project.query("select count(*) from customers") == [(50,)]
    first = project.lake_state()
    assert first == project.meltano_state()

    project.shop("--change")
    project.run("run", "shop")
    assert project.query("select count(*), count(distinct id), max(id) from orders") == [(344, 343, 343)]
    assert project.query("select state from orders where id = 1 order by updated_at") == [("paid",), ("shipped",)]
    assert project.query("select count(*) from customers") == [(50,)]
    second = project.lake_state()
    assert first != second == project.meltano_state()

    project.run("schedule", "run", "shop-daily")
    assert project.query("select count(*) from orders") == [(344,)]
    assert project.lake_state()["bookmarks"]["orders"] == second["bookmarks"]["orders"]

    project.run("run", "--full-refresh", *PLUGINS)
    assert project.query("select count(*), count(distinct id) from orders") == [(344 + 343, 343)]
    assert project.query("select count(*) from customers") == [(50,)]
    assert project.lake_state()["bookmarks"]["orders"] == second["bookmarks"]["orders"]


def test_a_selection_and_a_state_id_suffix_are_honoured(project: Project) -> None:
    said = project.run(
        "run",
        "--state-id-suffix=eu",
        *PLUGINS,
        TAP_SPARK_JDBC__SELECT='["orders.id", "orders.updated_at", "customers.*"]',
        TARGET_SPARK_LAKE_BUCKET="eu-lake",
        TARGET_SPARK_LAKE_SPARK='{"conf": {"spark.sql.shuffle.partitions": 2}}',
    )
    assert f"{STATE_ID}:eu" in said
    columns = {name for name, *_ in project.query("describe orders", "eu-lake") if not name.startswith("_sdc_")}
    assert columns == {"id", "updated_at"}
    assert project.query("select count(*) from orders", "eu-lake") == [(340,)]
    assert "orders" in project.lake_state(f"{PIPELINE}.eu", "eu-lake")["bookmarks"]


def test_a_tap_that_fails_fails_the_run_and_leaves_lake_and_state_alone(project: Project) -> None:
    failed = project.meltano("run", *PLUGINS, TAP_SPARK_JDBC_INCREMENTAL_TABLES='["nowhere:id:integer"]')
    assert failed.returncode != 0
    assert "nowhere" in failed.stdout + failed.stderr
    assert not list(project.root.rglob("*.parquet"))
    assert not list(project.root.rglob(".dataspoc/state"))
    assert STATE_ID not in project.meltano("state", "list").stdout


def test_meltano_yml_is_valid_by_the_schema_of_meltano_itself() -> None:
    schema = json.loads((resources.files("meltano") / "schemas/meltano.schema.json").read_text())
    written = yaml.safe_load((ROOT / "meltano.yml").read_text())
    problems = jsonschema.validators.validator_for(schema)(schema).iter_errors(written)
    assert [(problem.json_path, problem.message) for problem in problems] == []


@pytest.mark.parametrize(("kind", "program"), [("extractors", "tap-spark-jdbc"), ("loaders", "target-spark-lake")])
def test_meltano_yml_has_every_setting_that_the_program_has(kind: str, program: str) -> None:
    (plugin,) = yaml.safe_load((ROOT / "meltano.yml").read_text())["plugins"][kind]
    about = subprocess.run([BIN / program, "--about", "--format", "json"], capture_output=True, text=True, check=True)
    described = json.loads(about.stdout)
    properties = described["settings"]["properties"]
    written: dict[str, Mapping[str, Any]] = {setting["name"]: setting for setting in plugin["settings"]}
    assert set(written) == set(properties)
    # The SDK's `validate-records` is a name that Meltano's own schema does not have.
    assert set(plugin["capabilities"]) == set(described["capabilities"]) - {"validate-records"}
    for name, setting in written.items():
        schema = properties[name]
        (json_type,) = {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"]) - {"null"}
        assert setting.get("kind") in KINDS[json_type], name
        default = schema.get("default")
        assert setting.get("value") == (None if default in ([], {}) else default), name
        assert not schema.get("secret") or setting.get("sensitive"), name
        if setting.get("kind") == "options":
            assert [option["value"] for option in setting["options"]] == [v for v in schema["enum"] if v], name
