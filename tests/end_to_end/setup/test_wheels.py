"""The three wheels in an environment without this checkout: programs that work whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest

from end_to_end.meltano_project import PIPELINE, PLUGINS, new_project

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


def test_the_wheels_sync_postgresql_to_s3(
    programs: Path, postgresql: Any, s3: Any, tmp_path: Path
) -> None:
    database, bucket = postgresql.new_database(), s3.new_bucket()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table orders (id integer primary key, note text)")
        connection.execute(
            "insert into orders select n, 'note ' || n from generate_series(1, 50) n"
        )
    tap = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    tap |= {
        "incremental_tables": ["public.orders:id:integer"],
        "storage_options": s3.storage_options,
    }
    target = {"bucket": f"{bucket}/lake", "pipeline": "shop", "storage_options": s3.storage_options}
    (tmp_path / "tap.json").write_text(json.dumps(tap))
    (tmp_path / "target.json").write_text(json.dumps(target))
    pipe = (
        "tap-spark-jdbc --config tap.json --state-from target.json | target-spark-lake --config "
        "target.json"
    )
    shell = ("/bin/bash", "-o", "pipefail", "-c", pipe)
    clean = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": os.environ.get("HOME", str(tmp_path)),
        **WITHOUT_ARCHIVE,
    }
    run(*shell, cwd=tmp_path, **clean)
    rows = ds.dataset(
        f"{bucket.removeprefix('s3://')}/lake/raw/public-orders", filesystem=s3.filesystem()
    ).to_table()
    assert sorted(rows["id"].to_pylist()) == list(range(1, 51))
    shown = json.loads(
        run(
            programs / "spark-lake",
            "state",
            "show",
            "--config",
            "target.json",
            "--json",
            cwd=tmp_path,
            **clean,
        )
    )
    assert shown["bookmarks"]["public-orders"]["replication_key_value"] == 50


def test_the_wheels_work_in_a_meltano_project(programs: Path, tmp_path: Path) -> None:
    project = new_project(tmp_path, programs, **WITHOUT_ARCHIVE)
    project.shop()
    project.run("run", *PLUGINS)
    assert project.query("select count(*) from orders") == [(340,)]
    assert project.lake_state(PIPELINE)["bookmarks"].keys() == {"orders"}


def test_the_wheels_need_nothing_of_the_checkout(programs: Path, tmp_path: Path) -> None:
    names = ("singer_spark", "tap_spark_jdbc", "target_spark_lake")
    shown = (
        f"import {', '.join(names)}; print({', '.join(f'{name}.__file__' for name in names)}, "
        "sep=chr(10))"
    )
    places = run(programs / "python", "-c", shown, cwd=tmp_path).split()
    assert [place for place in places if not place.startswith(str(programs.parent))] == []
