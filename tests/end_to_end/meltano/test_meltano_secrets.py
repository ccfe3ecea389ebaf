"""What opens the lake to Meltano's state backend stays with Meltano: no plugin finds it in its
environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from end_to_end.meltano_project import BIN, Project

SECRETS = ("s3cret-of-the-bucket", "s3cret-of-the-states")
OPTIONS = {"secret": SECRETS[0], "nested": {"token": SECRETS[0]}}
PLUGIN = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps(dict(os.environ)))
sys.stdin.read() if "target" in sys.argv[1] else print('{"type": "STATE", "value": {}}')
"""


def project(folder: Path, options: Any, states: Any) -> Project:
    (folder / "plugin.py").write_text(PLUGIN)

    def plugin(name: str) -> dict[str, Any]:
        command = f"{folder}/{name}"
        Path(command).write_text(
            f"#!/bin/sh\nexec {sys.executable} {folder}/plugin.py {folder}/{name}.json\n"
        )
        Path(command).chmod(0o755)
        return {
            "name": name,
            "namespace": name.replace("-", "_"),
            "executable": command,
            "capabilities": ["state"],
        }

    lake = {"storage_options": options, "state_backend": states}
    config = {
        "version": 1,
        "project_id": "p",
        "send_anonymous_usage_stats": False,
        "default_environment": "dev",
        "environments": [{"name": "dev"}],
        "state_backend": {"uri": f"lake+file://{folder}/lake", "lake": lake},
        "plugins": {
            "extractors": [plugin("tap-env")],
            "loaders": [plugin("target-env")],
            "utilities": [plugin("utility-env")],
        },
    }
    (folder / "meltano.yml").write_text(yaml.safe_dump(config))
    (folder / ".venv").symlink_to(BIN.parent)
    return Project(folder)


def test_meltano_passes_file_reference_unchanged(tmp_path: Path) -> None:
    meltano = project(tmp_path, {}, {"uri": f"sqlite:///{tmp_path}/states.db"})
    path = tmp_path / "meltano.yml"
    config = yaml.safe_load(path.read_text())
    given = {
        "password": "${file:/run/secrets/db}",
        "options": {"key": "a${file:secret s}", "list": ["$${file:x}"]},
    }
    config["plugins"]["extractors"][0]["config"] = given
    path.write_text(yaml.safe_dump(config))
    done = meltano.meltano("invoke", "--dump=config", "tap-env")
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert reported["password"] == given["password"]
    assert reported["options"] == given["options"]


# What is taken from an environment does not depend on how Meltano came to start a plugin.
@pytest.mark.parametrize(
    ("kind", "words"),
    [("mapping", ("run", "tap-env", "target-env")), ("JSON text", ("invoke", "utility-env"))],
    ids=["mapping", "JSON text"],
)
def test_plugin_environment_has_no_lake_secrets(
    tmp_path: Path, kind: str, words: tuple[str, ...]
) -> None:
    states = {"uri": f"sqlite:///{tmp_path}/states.db", "storage_options": {"password": SECRETS[1]}}
    given = (OPTIONS, states) if kind == "mapping" else (json.dumps(OPTIONS), json.dumps(states))
    meltano = project(tmp_path, *given)
    meltano.run(*words)
    seen = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in words[1:]}
    for name, environment in seen.items():
        assert environment["MELTANO_STATE_BACKEND_URI"] == f"lake+file://{tmp_path}/lake"
        found = [
            variable
            for variable, value in environment.items()
            if any(secret in value for secret in SECRETS)
        ]
        assert found == [], name
    if "tap-env" not in seen:
        return
    # Meltano itself knows them, and what it hands to the tap is gone with it.
    handed = json.loads(seen["tap-env"]["SPARK_LAKE_STATE"])
    assert (handed["bucket"], handed["pipeline"]) == (
        f"{tmp_path}/lake",
        "dev.tap-env-to-target-env",
    )
    assert not Path(handed["rest"]).exists()
