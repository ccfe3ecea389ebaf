"""Programs of others, each in a virtual environment of its own, made once and kept in
`.tools/taps`.

One with many dependencies has a `.lock` beside this file, so that a release of one of them breaks
no test. Made by `echo PACKAGE==VERSION | uv pip compile --universal --python-version 3.11
--no-header --no-annotate -o PACKAGE.lock -`
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".tools"
SECONDS = 300


def program(package: str, version: str, name: str) -> Path:
    """The command of a package from the package index."""
    folder = TOOLS / "taps" / f"{package}-{version}"
    command = folder / "bin" / name
    if not (folder / ".ready").exists():
        uv = shutil.which("uv") or str(TOOLS / "uv" / "bin" / "uv")
        shutil.rmtree(folder, ignore_errors=True)
        _run(uv, "venv", "-q", "--python", sys.executable, str(folder))
        lock = HERE / f"{package}.lock"
        # The older ones still import pkg_resources.
        pins = ["--constraint", str(lock)] if lock.exists() else ["setuptools<80"]
        _run(
            uv,
            "pip",
            "install",
            "-q",
            "--python",
            str(folder / "bin/python"),
            f"{package}=={version}",
            *pins,
        )
        (folder / ".ready").touch()
    return command


def _run(*command: str) -> None:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=clean, check=False
    )
    assert done.returncode == 0, done.stderr
