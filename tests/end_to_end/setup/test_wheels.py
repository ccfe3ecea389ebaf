"""The three wheels in an environment without this checkout: programs that work whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from end_to_end.meltano_project import PIPELINE, PLUGINS, new_project, new_shop

ROOT = Path(__file__).parents[3]
PACKAGES = ("shared", "tap-spark-jdbc", "target-spark-lake")
TIMEOUT_SECONDS = 300
# Else a new place of PySpark's is given an archive of its classes in the background, by half a
# minute of CPU.
WITHOUT_ARCHIVE = {"SPARK_LAKE_CLASS_ARCHIVE": "off"}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs that pip finds in the wheels, with Meltano beside them."""
    folder = tmp_path_factory.mktemp("installed")
    for package in PACKAGES:
        build = (
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            folder / "dist",
        )
        run(*build, cwd=ROOT / package, **os.environ)
    uv = shutil.which("uv") or ROOT / ".tools/uv/bin/uv"
    run(
        uv, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder, **os.environ
    )
    wanted = ("target-spark-lake[java,s3]", "tap-spark-jdbc[java,postgresql]", "meltano")
    pins = ("--constraint", ROOT / "requirements.lock", "--no-verify-hashes")
    found = ("--find-links", folder / "dist", "--python", folder / "venv/bin/python")
    install = [uv, "pip", "install", "--quiet", *found, *pins, *wanted]
    # What this checkout was set up from is kept; an index might say that PySpark is new, and it
    # would be built again.
    kept = subprocess.run([*install, "--offline"], cwd=folder, capture_output=True, check=False)
    if kept.returncode:
        run(*install, cwd=folder, **os.environ)
    return folder / "venv/bin"


def test_wheels_sync_postgresql_to_s3_with_meltano(
    programs: Path, postgresql: Any, s3: Any, tmp_path: Path
) -> None:
    """A JVM reads, and Meltano uses the state backend that a wheel installs.

    Spark's tasks would need the extra `cluster`.
    """
    bucket, options = f"{s3.new_bucket()}/lake", json.dumps(s3.storage_options)
    variables = {
        **new_shop(postgresql.new_database()).variables(),
        "TAP_SPARK_JDBC_READER": "jdbc",
        "TAP_SPARK_JDBC_ENGINE": "local",
        "TARGET_SPARK_LAKE_ENGINE": "local",
        "TARGET_SPARK_LAKE_BUCKET": bucket,
        "TARGET_SPARK_LAKE_STORAGE_OPTIONS": options,
        "MELTANO_STATE_BACKEND_URI": f"lake+{bucket}",
        "MELTANO_STATE_BACKEND_LAKE_STORAGE_OPTIONS": options,
        **WITHOUT_ARCHIVE,
    }
    new_project(tmp_path, programs, **variables).run("run", *PLUGINS)
    rows = ds.dataset(
        f"{bucket.removeprefix('s3://')}/raw/public-orders", filesystem=s3.filesystem()
    ).to_table()
    assert sorted(rows["id"].to_pylist()) == list(range(1, 341))
    target = {"bucket": bucket, "pipeline": PIPELINE, "storage_options": s3.storage_options}
    (tmp_path / "target.json").write_text(json.dumps(target))
    clean = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": os.environ.get("HOME", str(tmp_path))}
    words = ("spark-lake", "state", "show", "--config", "target.json", "--json")
    shown = json.loads(run("/usr/bin/env", *words, cwd=tmp_path, **clean))
    assert shown["bookmarks"].keys() == {"public-orders"}


def test_wheels_import_nothing_from_checkout(programs: Path, tmp_path: Path) -> None:
    names = ("singer_spark", "tap_spark_jdbc", "target_spark_lake")
    shown = (
        f"import {', '.join(names)}; print({', '.join(f'{name}.__file__' for name in names)}, "
        "sep=chr(10))"
    )
    places = run(programs / "python", "-c", shown, cwd=tmp_path).split()
    assert [place for place in places if not place.startswith(str(programs.parent))] == []
