"""The image: its recipe names what there is, runs as nobody, and is built where a builder is at
hand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from target_spark_lake.ops.spark_lake import COMMANDS

ROOT = Path(__file__).parents[3]
BUILDER = shutil.which("buildah")
# Where Debian has the authorities that an owner adds, and all of them in one file.
TRUSTED = "/usr/local/share/ca-certificates"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def instructions() -> list[tuple[str, str]]:
    """The recipe's instructions, each with its words on one line."""
    text = (ROOT / "Containerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def words_of(kind: str) -> list[str]:
    return [words for each, words in instructions() if each == kind]


def test_image_runs_as_unprivileged_numeric_user() -> None:
    found = instructions()
    last = max(number for number, (kind, _) in enumerate(found) if kind == "FROM")
    users = [words for kind, words in found[last:] if kind == "USER"]
    assert users, "nobody says who runs it"
    assert re.fullmatch(r"[1-9]\d*(:\d+)?", users[-1]), (
        "Kubernetes can't tell that a name is not root's"
    )
    # What is made after it, is made by that account.
    assert found[last:].index(("USER", users[-1])) < found[last:].index(("WORKDIR", "/work"))


def test_image_has_no_downloads_or_secret_arguments() -> None:
    """The image downloads only through package managers and takes no secret as an argument."""
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
    reported = [
        name
        for kind in ("ARG", "ENV")
        for words in words_of(kind)
        for name in re.findall(r"(\w+)=", words)
    ]
    assert reported and not [
        name for name in reported if re.search("PASSWORD|SECRET|TOKEN|KEY", name)
    ]


def test_image_copies_and_starts_existing_files() -> None:
    """Sources, programs, extras and modules named in the recipe all exist."""
    sources = [
        word for words in words_of("COPY") if "--from" not in words for word in words.split()[:-1]
    ]
    assert sources == ["dist/*.whl", "requirements.lock"]
    kept = (ROOT / ".containerignore").read_text().split()
    assert kept == ["*", *(f"!{source}" for source in sources)]
    for kind in ("ENTRYPOINT", "CMD"):
        assert all(isinstance(word, str) for words in words_of(kind) for word in json.loads(words))
    scripts = {
        name
        for package in ("tap-spark-jdbc", "target-spark-lake")
        for name in tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"][
            "scripts"
        ]
    }
    assert json.loads(words_of("CMD")[0])[0] in scripts
    extras = {"TAP": "tap-spark-jdbc", "TARGET": "target-spark-lake"}
    for name, package in extras.items():
        (wanted,) = re.findall(rf"EXTRAS_OF_{name}=(\S+)", " ".join(words_of("ARG")))
        known = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]
        assert set(wanted.split(",")) <= set(known)
    modules = re.findall(r"python -m (\S+)", " ".join(words_of("RUN")))
    known_modules = [path for path in ROOT.glob("*/src/**/*.py")]
    for module in (each for each in modules if each != "venv"):
        assert [
            path
            for path in known_modules
            if path.with_suffix("").as_posix().endswith(module.replace(".", "/"))
        ]


def test_kubernetes_example_starts_without_rights() -> None:
    """The example for kubernetes starts a command that there is as an account without rights."""
    job = yaml.safe_load((ROOT / "examples/kubernetes/cronjob.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    program, *words = container["args"]
    assert program == "spark-lake"
    assert callable(COMMANDS.main(words, standalone_mode=False))
    assert pod["securityContext"]["runAsNonRoot"] is True
    (user,) = words_of("USER")
    assert str(pod["securityContext"]["runAsUser"]) == user.partition(":")[0]
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def buildah(folder: Path, *words: str) -> str:
    """What it prints; all that it makes is in the folder, and it needs no rights but those to
    change its root.
    """
    assert BUILDER is not None
    own = ["--root", f"{folder}/store", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]
    return subprocess.run(
        [BUILDER, *own, *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def base(folder: Path) -> str:
    """The recipe's own where a registry is reached, else one that is made of Debian's packages."""
    (own,) = re.findall(r"BASE=(\S+)", " ".join(words_of("ARG")))
    try:
        buildah(folder, "pull", "--quiet", f"docker.io/library/{own}")
    except subprocess.CalledProcessError:
        made = [
            shutil.which("mmdebstrap") or "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "bookworm",
        ]
        subprocess.run([*made, f"{folder}/base.tar", "http://deb.debian.org/debian"], check=True)
        container = buildah(folder, "from", "scratch").strip()
        buildah(folder, "add", "--quiet", container, f"{folder}/base.tar", "/")
        buildah(folder, "commit", "--quiet", "--rm", container, "base")
        return "localhost/base"
    return f"docker.io/library/{own}"


def mounts(folder: Path) -> list[str]:
    """This machine's way to the package index and the authorities that its owner trusts, for the
    build alone.
    """
    reported = {
        name[4:].lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith("PIP_")
    }
    lines = [
        f"{name} = {value}"
        for name, value in reported.items()
        if name in ("index-url", "extra-index-url")
    ]
    # Not this machine's file of them all: the package that makes the image's own could not write
    # it.
    (folder / "pip.conf").write_text("\n".join(["[global]", f"cert = {AUTHORITIES}", *lines, ""]))
    places = {
        f"{folder}/pip.conf": "/etc/pip.conf",
        **{place: place for place in (TRUSTED,) if Path(place).is_dir()},
    }
    return [word for ours, theirs in places.items() for word in ("--volume", f"{ours}:{theirs}:ro")]


if BUILDER is not None:

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    def test_image_builds_and_its_programs_run(tmp_path: Path) -> None:
        for package in ("shared", "tap-spark-jdbc", "target-spark-lake"):
            build = [
                sys.executable,
                "-m",
                "hatchling",
                "build",
                "--target",
                "wheel",
                "--directory",
                f"{tmp_path}/dist",
            ]
            subprocess.run(build, cwd=ROOT / package, check=True, capture_output=True)
        for name in ("Containerfile", ".containerignore", "requirements.lock"):
            shutil.copy(ROOT / name, tmp_path)
        way = ["--isolation", "chroot", "--network", "host"]
        build_args = ["--build-arg", f"BASE={base(tmp_path)}", *mounts(tmp_path)]
        buildah(tmp_path, "build", "--quiet", *way, *build_args, "--tag", "spark-lake-test", ".")
        container = buildah(tmp_path, "from", "spark-lake-test").strip()
        for program in ("tap-spark-jdbc", "target-spark-lake", "spark-lake"):
            assert buildah(
                tmp_path, "run", "--isolation", "chroot", container, "--", program, "--version"
            )
        assert (
            buildah(tmp_path, "run", "--isolation", "chroot", container, "--", "id", "-u").strip()
            == "10001"
        )
