"""Faults planted one by one into a copy of the sources, each of which some test must catch; not a
part of the suite.

`python tests/planted_faults.py [NAME …]` plants all of them, or those named; it ends with 1 where
no test noticed. Each names the few tests that guard what it breaks, mostly without a JVM: all of
them take some minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from planted.fault import SOURCES, Fault
from planted.shared_faults import SHARED_FAULTS
from planted.tap_faults import TAP_FAULTS
from planted.target_faults import TARGET_FAULTS

ROOT = Path(__file__).parents[1]
COPIED = (
    "shared",
    "tap-spark-jdbc",
    "target-spark-lake",
    "tests",
    "docs",
    "demo",
    "pyproject.toml",
    "meltano.yml",
)
TIMEOUT_SECONDS = 900
FAULTS = (*TARGET_FAULTS, *SHARED_FAULTS, *TAP_FAULTS)


def planted(fault: Fault, copy: Path) -> tuple[bool, str]:
    """Whether a test noticed the fault, and the first that did."""
    path = copy / fault.path
    before = path.read_text()
    assert before.count(fault.right) == 1, (
        f"{fault.name}: {fault.path} has changed, so must this fault"
    )
    path.write_text(before.replace(fault.right, fault.wrong))
    try:
        sources = os.pathsep.join(str((copy / source).parent) for source in SOURCES.values())
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                "--no-header",
                *fault.tests,
            ],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": sources},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    finally:
        path.write_text(before)
    first = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    # Tests that can't begin, or of which there are none, notice nothing.
    return done.returncode == 1 and bool(first), first[0][7:] if first else done.stdout[
        -2000:
    ] + done.stderr[-2000:]


def main() -> int:
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or fault.name in sys.argv[1:]]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder, "copy")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(".venv"))
            else:
                shutil.copy(ROOT / name, copy / name)
        for fault in chosen:
            began = time.monotonic()
            noticed, by = planted(fault, copy)
            missed += not noticed
            print(
                f"{'caught' if noticed else 'MISSED'}  {fault.name} "
                f"({time.monotonic() - began:.0f} s): {by}",
                flush=True,
            )
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
