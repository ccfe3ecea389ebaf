"""The image: its recipe names what there is, runs as nobody, and is built where a builder is at hand."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from target_spark_lake.cli.spark_lake import command_parser

ROOT = Path(__file__).parents[2]
BUILDER = shutil.which("buildah")


def instructions() -> list[tuple[str, str]]:
    """The recipe's instructions, each with its words on one line."""
    text = (ROOT / "Containerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def words_of(kind: str) -> list[str]:
    return [words for each, words in instructions() if each == kind]


def test_the_last_stage_runs_as_an_account_without_rights() -> None:
    found = instructions()
    last = max(number for number, (kind, _) in enumerate(found) if kind == "FROM")
    users = [words for kind, words in found[last:] if kind == "USER"]
    assert users, "nobody says who runs it"
    assert re.fullmatch(r"[1-9]\d*(:\d+)?", users[-1]), "Kubernetes can't tell that a name is not root's"
    # What is made after it, is made by that account.
    assert found[last:].index(("USER", users[-1])) < found[last:].index(("WORKDIR", "/work"))


def test_nothing_is_fetched_past_the_package_managers_and_no_secret_is_an_argument() -> None:
    assert words_of("ADD") == []
    for words in words_of("RUN"):
        assert not re.search(r"\b(curl|wget|sudo|chmod 777)\b", words)
        if "apt-get install" in words:
            # In one layer, so that no old list of packages is used, and none stays.
            assert (
                "apt-get update" in words
                and "--no-install-recommends" in words
                and "rm -rf /var/lib/apt/lists" in words
            )
        if "pip install" in words:
            assert "--no-cache-dir" in words and "--constraint" in words
    told = [name for kind in ("ARG", "ENV") for words in words_of(kind) for name in re.findall(r"(\w+)=", words)]
    assert told and not [name for name in told if re.search("PASSWORD|SECRET|TOKEN|KEY", name)]


def test_what_it_copies_and_starts_is_there() -> None:
    sources = [word for words in words_of("COPY") if "--from" not in words for word in words.split()[:-1]]
    assert sources == ["dist/*.whl", "requirements.lock"]
    kept = (ROOT / ".containerignore").read_text().split()
    assert kept == ["*", *(f"!{source}" for source in sources)]
    for kind in ("ENTRYPOINT", "CMD"):
        assert all(isinstance(word, str) for words in words_of(kind) for word in json.loads(words))
    scripts = {
        name
        for package in ("tap-spark-jdbc", "target-spark-lake")
        for name in tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]["scripts"]
    }
    assert json.loads(words_of("CMD")[0])[0] in scripts
    extras = {"TAP": "tap-spark-jdbc", "TARGET": "target-spark-lake"}
    for name, package in extras.items():
        (wanted,) = re.findall(rf"EXTRAS_OF_{name}=(\S+)", " ".join(words_of("ARG")))
        known = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(wanted.split(",")) <= set(known)
    modules = re.findall(r"python -m (\S+)", " ".join(words_of("RUN")))
    known_modules = [path for path in ROOT.glob("*/src/**/*.py")]
    for module in (each for each in modules if each != "venv"):
        assert [path for path in known_modules if path.with_suffix("").as_posix().endswith(module.replace(".", "/"))]


def test_the_example_for_kubernetes_starts_a_command_that_there_is_as_an_account_without_rights() -> None:
    job = yaml.safe_load((ROOT / "examples/kubernetes/cronjob.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, *words = container["args"]
    assert program == "spark-lake"
    assert command_parser().parse_args(words).run is not None
    assert pod["securityContext"]["runAsNonRoot"] is True
    (user,) = words_of("USER")
    assert str(pod["securityContext"]["runAsUser"]) == user.partition(":")[0]
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


@pytest.mark.slow
@pytest.mark.skipif(BUILDER is None, reason="no buildah at hand: the recipe is only read")
def test_the_image_is_built_and_its_programs_run(tmp_path: Path) -> None:
    assert BUILDER is not None
    for package in ("shared", "tap-spark-jdbc", "target-spark-lake"):
        build = shlex.split(f"{ROOT}/.venv/bin/python -m hatchling build --target wheel --directory {tmp_path}/dist")
        subprocess.run(build, cwd=ROOT / package, check=True, capture_output=True)
    for name in ("Containerfile", ".containerignore", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run([BUILDER, "build", "--tag", "spark-lake-test", "."], cwd=tmp_path, check=True)
    made = subprocess.run([BUILDER, "from", "spark-lake-test"], check=True, capture_output=True, text=True)
    container = made.stdout.strip()
    try:
        for program in ("tap-spark-jdbc", "target-spark-lake", "spark-lake"):
            done = subprocess.run(
                [BUILDER, "run", container, "--", program, "--version"], check=True, capture_output=True
            )
            assert done.stdout
        whoami = subprocess.run([BUILDER, "run", container, "--", "id", "-u"], check=True, capture_output=True)
        assert whoami.stdout.strip() == b"10001"
    finally:
        subprocess.run([BUILDER, "rm", container], check=True, capture_output=True)
