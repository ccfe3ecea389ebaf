"""The settings `state_backend.lake.…` by Meltano's own service: what a project sets counts, or is
an error.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from meltano.core.project import Project
from meltano.core.state_store import state_store_manager_from_project_settings

from faults.small_lake import PIPELINE, SmallLake, state_of
from singer_spark.state.handover import STATE_VARIABLE, handed_over
from target_spark_lake.meltano.lake_backend import LakeStateError
from target_spark_lake.ops.init import init
from target_spark_lake.ops.new_pipeline import NewPipeline

JSON = dict[str, Any]
VARIABLES = "MELTANO_STATE_BACKEND_LAKE_"
DOTTED = "dev:tap.a-to-target-b:eu.1"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    # So that it is gone after the test.
    monkeypatch.setenv(STATE_VARIABLE, "")
    return SmallLake(str(tmp_path / "lake"), {})


def states_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What Meltano opens in the project of this folder."""
    project = Project(folder)
    monkeypatch.setattr(Project, "_default", project)
    return state_store_manager_from_project_settings(project.settings)


def written(lake: SmallLake, settings: JSON, **others: Any) -> Path:
    folder = Path(lake.url).parent
    backend = {"uri": f"lake+file://{lake.url}", **settings}
    (folder / "meltano.yml").write_text(
        yaml.safe_dump({"project_id": "p", "state_backend": backend, **others})
    )
    return folder


def handed_by(states: Any, state_id: str) -> JSON:
    states.get(state_id)
    return handed_over(os.environ) or {}


MAPPING = {"prod:other": PIPELINE, DOTTED: "shop.x"}


@pytest.mark.parametrize(
    ("lake_settings", "variable"),
    [
        pytest.param({"pipelines": MAPPING}, None, id="a mapping in the file"),
        pytest.param({"pipelines": json.dumps(MAPPING)}, None, id="JSON text in the file"),
        pytest.param(
            {"pipelines": {"prod:other": "not this"}},
            json.dumps(MAPPING),
            id="JSON in the environment",
        ),
    ],
)
def test_state_id_maps_to_configured_pipeline(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, lake_settings: JSON, variable: str | None
) -> None:
    """A state id maps to the pipeline that the project configures."""
    if variable:
        monkeypatch.setenv(f"{VARIABLES}PIPELINES", variable)
    states = states_of(written(lake, {"lake": lake_settings}), monkeypatch)
    bound = lake.sync()
    assert json.loads(states.get("prod:other").json_merged())["singer_state"] == state_of(bound)
    assert list(states.get_state_ids()) == ["prod:other"]
    assert handed_by(states, DOTTED)["pipeline"] == "shop.x"
    assert handed_by(states, "dev:unmapped")["pipeline"] == "dev.unmapped"


def test_mapping_with_dotted_keys_is_accepted(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline mapping written with dotted keys is accepted."""
    folder = written(
        lake, {"lake.pipelines": {"prod:a": "p"}}, **{"state_backend.lake.pipelines.prod:b.c": "q"}
    )
    states = states_of(folder, monkeypatch)
    assert [handed_by(states, state_id)["pipeline"] for state_id in ("prod:a", "prod:b.c")] == [
        "p",
        "q",
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_target_options_and_backend_are_passed_whole(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    """The target's storage options and state backend are passed on whole."""
    monkeypatch.setenv("THE_FOLDER", f"{lake.url}-states")
    backend: Any = {"uri": "$THE_FOLDER"}
    options: Any = {
        "auto_mkdir": True,
        "nested": {"lists": [{"a": 1}], "empty": {}, "plain": "a b"},
    }
    if as_json:
        backend, options = json.dumps(backend), json.dumps(options)
    folder = written(lake, {"lake": {"state_backend": backend, "storage_options": options}})
    handed = handed_by(states_of(folder, monkeypatch), "dev:a-to-b")
    assert handed["state_backend"] == {"uri": f"{lake.url}-states"}
    assert handed["storage_options"] == {
        "auto_mkdir": True,
        "nested": {"lists": [{"a": 1}], "empty": {}, "plain": "a b"},
    }


@pytest.mark.parametrize(
    ("pipelines", "says"),
    [
        (["prod:other"], "must be a mapping"),
        (7, "must be a mapping"),
        ({"prod:other": None}, "prod:other must be the name"),
        ({"prod:other": 7}, "prod:other must be the name"),
        ({"prod:other": ["p"]}, "prod:other must be the name"),
        ("{oops", "JSON object"),
        ("orders", "JSON object"),
    ],
)
def test_invalid_pipeline_mapping_is_refused(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch, pipelines: Any, says: str
) -> None:
    folder = written(lake, {"lake": {"pipelines": pipelines}})
    with pytest.raises((LakeStateError, ValueError), match=says):
        states_of(folder, monkeypatch)


def test_other_projects_settings_are_refused(
    lake: SmallLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(lake, {"lake": {"pipelines": MAPPING}})
    (tmp_path / "other").mkdir()
    (tmp_path / "other/meltano.yml").write_text("project_id: other\n")
    monkeypatch.setattr(Project, "_default", Project(tmp_path / "other"))
    with pytest.raises(LakeStateError, match=r"RUN-036 .*other/meltano\.yml"):
        state_store_manager_from_project_settings(Project(folder).settings)


def test_init_config_lets_meltano_read_pipeline_state(
    lake: SmallLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the config that init writes, Meltano reads the pipe's state in each environment."""
    there = "project_id: p\nenvironments:\n- name: dev\n- name: prod\n  state_id_suffix: eu.1\n"
    (tmp_path / "meltano.yml").write_text(there)
    init(NewPipeline(PIPELINE, "jdbc:sqlite:shop.db", lake.url, tables=("orders",)), tmp_path)
    states, bound = states_of(tmp_path, monkeypatch), lake.sync()
    plugins = f"tap-spark-jdbc--{PIPELINE}-to-target-spark-lake--{PIPELINE}"
    for state_id in (f"dev:{plugins}", f"prod:{plugins}:eu.1"):
        assert json.loads(states.get(state_id).json_merged())["singer_state"] == state_of(bound)
