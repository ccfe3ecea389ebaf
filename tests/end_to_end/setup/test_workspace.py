"""What a fresh clone promises: programs that need no set-up of the shell, a lock that covers all,
nothing local.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import duckdb
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 300
PACKAGES = ("shared", "tap-spark-jdbc", "target-spark-lake")
PARTS = (*PACKAGES, ".ci", "tests", "demo", "docs", "benchmarks")
GENERATED = re.compile(r"__pycache__/|(^|/)\.(\w+_)?cache/|derby\.log$")
# In pieces, so that this file does not hold them.
LOCAL = re.compile(
    "|".join(
        [
            "py" + r"pi\.org",
            "python" + "hosted",
            "maven" + r"\.org",
            r"(?<![\w.])/" + r"(work|root|home/\w+)/",
        ]
    )
)


def locked(name: str = "requirements-dev.lock") -> dict[str, str]:
    """Name and version of everything that `make test` installs, or by requirements.lock `make
    setup`.
    """
    lines = (ROOT / name).read_text().splitlines()
    pins = [
        line.split(";")[0].strip(" \\").split("==")
        for line in lines
        if line and not line.startswith(" ")
    ]
    return {canonicalize_name(name): pinned for name, pinned in pins}


def test_pipe_runs_in_any_folder_without_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "demo/make_database.py", tmp_path / "shop.db"], check=True
    )
    (tmp_path / "tap.json").write_text(json.dumps({"jdbc_url": "jdbc:sqlite:shop.db"}))
    (tmp_path / "target.json").write_text(json.dumps({"bucket": "lake", "pipeline": "shop"}))
    pipe = (
        f"'{BIN}/tap-spark-jdbc' --config tap.json | '{BIN}/target-spark-lake' --config target.json"
    )
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", pipe],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with duckdb.connect() as connection:
        counted = connection.sql(
            f"select count(*) from read_parquet('{tmp_path}/lake/raw/orders/*.parquet')"
        ).fetchall()
    assert counted == [(340,)]


@pytest.mark.parametrize(
    "program", ["tap-spark-jdbc", "target-spark-lake", "spark-lake", "meltano"]
)
def test_every_program_answers_with_no_variable_set(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [BIN / program, "--help"], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert program in done.stdout


def unconditional(block: str) -> str:
    """A pin with its hashes; tools of the tests may need on every machine what users need on
    some.
    """
    return re.sub(r" ;[^\\]*", " ", block, count=1)


def test_lock_pins_requirements_with_hashes() -> None:
    """The lock file pins every requirement within its range and with hashes."""
    pins = locked()
    wanted: list[str] = []
    for folder in (".", *PACKAGES):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())
        tables = [
            project["project"],
            *({"dependencies": group} for group in project.get("dependency-groups", {}).values()),
        ]
        tables += [
            {"dependencies": extra}
            for extra in project["project"].get("optional-dependencies", {}).values()
        ]
        wanted += [line for table in tables for line in table.get("dependencies", [])]
    own = {"singer-spark", "tap-spark-jdbc", "target-spark-lake"}
    requirements = [needed for needed in map(Requirement, wanted) if needed.name not in own]
    outside = [
        f"{need} is {pins.get(canonicalize_name(need.name))}"
        for need in requirements
        if not need.specifier.contains(
            pins.get(canonicalize_name(need.name), "0"), prereleases=True
        )
    ]
    assert outside == []
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements-dev.lock").read_text().strip())
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
    users = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().strip())
    assert set(map(unconditional, users)) < set(map(unconditional, blocks))


def test_requirements_lock_excludes_test_tools() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    tools = {canonicalize_name(Requirement(line).name) for line in groups["dev"]}
    # Some are extras of the programs as well.
    assert tools & locked("requirements.lock").keys() == {
        "pandas",
        "psycopg",
        "pymysql",
        "singer-sdk",
    }


def test_installed_versions_match_lock() -> None:
    installed = {
        name: version(name) for name in ("pyspark", "singer-sdk", "meltano", "pyarrow", "orjson")
    }
    assert installed == {name: locked()[name] for name in installed}


def test_files_hold_no_local_hosts_or_paths() -> None:
    """No file names a package host or a path of this machine."""
    files = [path for part in PARTS for path in (ROOT / part).rglob("*")]
    files += [path for path in ROOT.iterdir() if path.name != "uv.lock"]
    kept = [
        path
        for path in files
        if path.is_file() and not GENERATED.search(str(path.relative_to(ROOT)))
    ]
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in kept
        for match in LOCAL.finditer(path.read_text(errors="replace"))
    ]
    assert found == []
