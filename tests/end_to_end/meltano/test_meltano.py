"""The project's own meltano.yml, run by the real Meltano on the demo's shop."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from end_to_end.here import load_here, run_here
from end_to_end.meltano_project import (
    BIN,
    PIPELINE,
    PLUGINS,
    ROOT,
    STATE_ID,
    TIMEOUT_SECONDS,
    TRADE,
    Project,
    new_project,
    new_shop,
)
from end_to_end.pipe import Pipe
from servers.postgresql import PostgreSQL
from singer_spark.errors import ProtocolError
from singer_spark.store.storage import Storage
from tap.in_process import send, tap_of
from tap_spark_jdbc.extract.run_state import OpeningState
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout

KINDS = {
    "integer": {"integer"},
    "number": {"integer"},
    "boolean": {"boolean"},
    "array": {"array"},
    "object": {"object"},
    "string": {None, "password", "options"},
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = new_project(tmp_path)
    project.shop()
    return project


def bookmark(lake: Project) -> dict[str, Any]:
    """Where the orders are, without the transactions that the database had begun by then."""
    found = lake.lake_state(bucket="shared")["bookmarks"]["public-orders"]
    return {name: value for name, value in found.items() if name != "snapshot"}


@pytest.mark.timeout(1200)
def test_pipes_and_meltano_runs_share_a_pipeline(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """Pipes, runs, schedules and full refreshes of two machines take turns on one pipeline."""
    shared, shop = tmp_path / "shared", new_shop(postgresql.new_database())
    places = {
        **shop.variables(),
        "TARGET_SPARK_LAKE_BUCKET": str(shared),
        "MELTANO_STATE_BACKEND_URI": f"lake+file://{shared}",
    }
    here, there = (
        new_project(tmp_path / "here", **places),
        new_project(tmp_path / "there", **places),
    )
    lake = Project(tmp_path)
    pipe = Pipe(
        tmp_path / "pipe",
        {**shop.tap, "slice_rows": 100},
        {"bucket": str(shared), "pipeline": PIPELINE},
    )
    here.run("install")
    assert not list(tmp_path.rglob("*.parquet"))

    # A pipe dies on the way; Meltano on this machine finds no state, and continues after what was
    # sent.
    sent = send(tap_of(pipe.tap, OpeningState({}, "first"))).succeeded().output.splitlines(True)
    last = next(
        n
        for n, line in enumerate(sent)
        if b"STATE" in line and b"".join(sent[:n]).count(b"RECORD") > 200
    )
    with pytest.raises(ProtocolError, match="the tap died"):
        load_here(pipe.target, b"".join(sent[: last + 1]))
    said = here.run("schedule", "run", "shop-daily")
    assert "continuing run" in said
    assert not re.search("Warning|METRIC|Skipping parse", said)
    assert lake.query("select count(*), count(distinct id), max(id) from orders", "shared") == [
        (340, 340, 340)
    ]
    assert lake.query("select count(*) from customers", "shared") == [(50,)]

    # The next rows come by a pipe; all of them again by the other machine.
    shop.do(TRADE)
    run_here(pipe)
    assert lake.query("select count(*), count(distinct id), max(id) from orders", "shared") == [
        (344, 343, 343)
    ]
    moved = bookmark(lake)

    there.run("run", "--full-refresh", *PLUGINS)
    # An append-only table is replaced, not doubled.
    assert lake.query("select count(*), count(distinct id) from orders", "shared") == [(343, 343)]
    assert lake.query("select count(*) from customers", "shared") == [(50,)]
    assert bookmark(lake) == moved
    # What Meltano keeps after a run is what the target has saved: no run but these.
    assert len(list(shared.glob(f".dataspoc/runs/{PIPELINE}/*.json"))) == 4


def test_overlapping_cron_run_names_the_other_run(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A cron run that meets another run ends at once and names it."""
    project = new_project(tmp_path)
    # As cron knows no variables; from PostgreSQL the tap reads without a session of Spark.
    variables = new_shop(postgresql.new_database()).variables()
    (tmp_path / ".env").write_text(
        "".join(f"{name}='{value}'\n" for name, value in variables.items())
    )
    page = (ROOT / "docs/scheduling.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^(?:\S+ ){5}(cd /srv/shop && \S+/meltano .*)$", page, re.MULTILINE)
    assert re.findall(r"^ExecStart=/srv/shop/(.*)$", page, re.MULTILINE) == [
        line.partition("&& ")[2].split(" >>")[0]
    ]
    bucket = project.root / ".meltano/lake"
    run = open_run(Storage(str(bucket)), Layout(PIPELINE))
    try:
        by_cron = subprocess.run(
            ["/bin/sh", "-c", line.replace("/srv/shop", str(project.root)).replace("\\%", "%")],
            env={"HOME": os.environ["HOME"], "PATH": "/usr/bin:/bin"},
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        logged = "".join(path.read_text() for path in project.root.glob("*.log"))
        assert by_cron.returncode != 0
        assert by_cron.stdout + by_cron.stderr == b""
        assert PIPELINE in logged
        assert str(os.getpid()) in logged
        edited = project.meltano(
            "state", "set", "--force", STATE_ID, '{"singer_state": {"bookmarks": {}}}'
        )
        assert edited.returncode != 0
        assert str(os.getpid()) in edited.stdout + edited.stderr
    finally:
        print(*(path.read_text() for path in project.root.glob("*.log")))  # seen with a failure
        run.leave()
    assert not list(project.root.rglob("*.parquet"))
    assert not list(bucket.glob(".dataspoc/runs/**/*.json"))


def test_failing_tap_fails_the_run_without_changes(project: Project) -> None:
    """A failing tap fails the run and changes neither the lake nor the state."""
    failed = project.meltano(
        "run", *PLUGINS, TAP_SPARK_JDBC_INCREMENTAL_TABLES='["nowhere:id:integer"]'
    )
    assert failed.returncode != 0
    assert "nowhere" in failed.stdout + failed.stderr
    assert not list(project.root.rglob("*.parquet"))
    assert not list(project.root.rglob(".dataspoc/state"))


def test_meltano_yml_is_valid_by_meltano_schema() -> None:
    schema = json.loads((resources.files("meltano") / "schemas/meltano.schema.json").read_text())
    written = yaml.safe_load((ROOT / "meltano.yml").read_text())
    problems = jsonschema.validators.validator_for(schema)(schema).iter_errors(written)
    assert [(problem.json_path, problem.message) for problem in problems] == []


@pytest.mark.parametrize(
    ("kind", "program"), [("extractors", "tap-spark-jdbc"), ("loaders", "target-spark-lake")]
)
def test_meltano_yml_lists_every_program_setting(kind: str, program: str) -> None:
    """Kinds, defaults, capabilities and secrecy agree with the program's `--about`."""
    (plugin,) = yaml.safe_load((ROOT / "meltano.yml").read_text())["plugins"][kind]
    about = subprocess.run(
        [BIN / program, "--about", "--format", "json"], capture_output=True, text=True, check=True
    )
    described = json.loads(about.stdout)
    properties = described["settings"]["properties"]
    written: dict[str, Mapping[str, Any]] = {
        setting["name"]: setting for setting in plugin["settings"]
    }
    assert set(written) == set(properties)
    # The SDK's `validate-records` is a name that Meltano's own schema does not have.
    assert set(plugin["capabilities"]) == set(described["capabilities"]) - {"validate-records"}
    for name, setting in written.items():
        schema = properties[name]
        (json_type,) = (
            {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"]) - {"null"}
        )
        assert setting.get("kind") in KINDS[json_type], name
        default = schema.get("default")
        assert setting.get("value") == (None if default in ([], {}) else default), name
        assert not schema.get("secret") or setting.get("sensitive"), name
        if setting.get("kind") == "options":
            assert [option["value"] for option in setting["options"]] == [
                v for v in schema["enum"] if v
            ], name
