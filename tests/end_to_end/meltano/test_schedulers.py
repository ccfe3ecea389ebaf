"""The examples for Airflow and Dagster, each in the real one."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compat.foreign import program
from end_to_end.meltano_project import new_shop
from end_to_end.page import BIN, ROOT, blocks
from servers.postgresql import PostgreSQL

AIRFLOW, DAGSTER = ROOT / "examples/airflow/shop.py", ROOT / "examples/dagster/definitions.py"
SECONDS = 300
PASSWORD = "never shown"

# Both send statistics about their use elsewhere, unless that is turned off.
QUIET = {
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "DAGSTER_DISABLE_TELEMETRY": "yes",
    "DO_NOT_TRACK": "1",
    "SCARF_ANALYTICS": "false",
}

IN_AIRFLOW = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.exceptions import AirflowException
from airflow.sdk.execution_time.context import ConnectionAccessor

bag = DagBag(sys.argv[1])
assert bag.import_errors == {}, bag.import_errors
dag = bag.dags["shop"]
task = dag.get_task("run")
task.render_template_fields({"conn": ConnectionAccessor()})
facts = {"catchup": dag.catchup, "at_once": dag.max_active_runs, "retries": task.retries}
facts["errors"] = []
for code in ("0", "1", "3"):
    os.environ["EXIT_CODE"] = code
    try:
        task.execute({})
    except AirflowException as error:
        facts["errors"].append(str(error))
print(json.dumps(facts))
"""

IN_DAGSTER = """
import json, os, runpy, sys
import dagster as dg

def run():
    done = defs.resolve_implicit_global_asset_job_def().execute_in_process(raise_on_error=False)
    made = [event.materialization for event in done.get_asset_materialization_events()]
    assets = {
        each.asset_key.to_user_string(): {name: fact.value for name, fact in each.metadata.items()}
        for each in made
    }
    return {"success": done.success, "assets": assets}

example, tap = sys.argv[1:]
defs = runpy.run_path(example)["defs"]
dg.Definitions.validate_loadable(defs)
first = run()
os.unlink(tap)
schedules = [schedule.cron_schedule for schedule in defs.schedules]
print(json.dumps({"runs": [first, run()], "schedules": schedules}))
"""


@pytest.mark.parametrize("example", [AIRFLOW, DAGSTER], ids=["airflow", "dagster"])
def test_guide_shows_example_unchanged(example: Path) -> None:
    shown = blocks(ROOT / "docs/scheduling.md", example.parent.name.capitalize())
    assert [(block.kind, block.text) for block in shown] == [
        ("python", example.read_text(encoding="utf-8"))
    ]


def copied(example: Path, folder: Path, **replacements: str) -> Path:
    """The example for a pipeline in this folder."""
    text = example.read_text(encoding="utf-8")
    for written, real in {**replacements, "/srv/shop": str(folder)}.items():
        assert written in text
        text = text.replace(written, real)
    copy = folder / example.name
    copy.write_text(text)
    return copy


def reported(python: Path, script: str, *words: Path, **variables: str) -> dict[str, Any]:
    """The last line of what a script printed."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("AIRFLOW", "DAGSTER", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [python, "-c", script, *words],
        env={**clean, **QUIET, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "log": done.stdout + done.stderr}


def test_airflow_keeps_password_in_environment(
    tmp_path: Path,
) -> None:
    """Airflow runs the example with the connection's password only in its environment."""
    python = program("apache-airflow", "3.3.2", "python")
    dags, seen, standin = tmp_path / "dags", tmp_path / "seen", tmp_path / ".venv/bin/spark-lake"
    dags.mkdir()
    copied(AIRFLOW, tmp_path).rename(dags / "shop.py")
    standin.parent.mkdir(parents=True)
    lines = (
        f'printf "%s\\n" "$PWD" "$SHOP_PASSWORD" "$*" >>{shlex.quote(str(seen))}; exit "$EXIT_CODE"'
    )
    standin.write_text(f"#!/bin/sh\n{lines}\n")
    standin.chmod(0o755)
    facts = reported(
        python,
        IN_AIRFLOW,
        dags,
        AIRFLOW_HOME=str(tmp_path / "airflow"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW_CONN_SHOP=json.dumps({"conn_type": "generic", "password": PASSWORD}),
    )
    assert (facts["catchup"], facts["at_once"], facts["retries"]) == (False, 1, 3)
    assert seen.read_text().splitlines() == [str(tmp_path), PASSWORD, "run"] * 3
    assert [error.rsplit(maxsplit=1)[-1] for error in facts["errors"]] == ["1.", "3."]
    assert f"{standin} run" in facts["log"]
    assert PASSWORD not in facts["log"]


def test_dagster_materializes_assets_with_run_facts(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """Dagster materializes the example's assets with the figures of the run."""
    python = program("dagster", "1.13.29", "python")
    tap, target = tmp_path / "tap.json", tmp_path / "target.json"
    tap.write_text(json.dumps(new_shop(postgresql.new_database()).tap))
    target.write_text(json.dumps({"bucket": "./lake", "pipeline": "shop"}))
    # The streams of a shop in PostgreSQL; one retry, and at once.
    replacements = {
        '("customers", "orders")': '("public-customers", "public-orders")',
        "{FOLDER}/.venv/bin": str(BIN),
        "max_retries=3, delay=300": "max_retries=1, delay=0",
    }
    example = copied(DAGSTER, tmp_path, **replacements)
    facts = reported(python, IN_DAGSTER, example, tap)
    # The second one finds no tap.json.
    good, failed = facts["runs"]
    assert good["success"], facts["log"]
    assert {name: made["records"] for name, made in good["assets"].items()} == {
        "shop/public-customers": 50,
        "shop/public-orders": 340,
    }
    assert len({made["run_id"] for made in good["assets"].values()}) == 1
    assert facts["schedules"] == ["0 5 * * *"]

    assert failed == {"success": False, "assets": {}}
    assert facts["log"].count("External execution process failed with code 1") >= 2
    assert facts["log"].count("STEP_UP_FOR_RETRY") == 1
