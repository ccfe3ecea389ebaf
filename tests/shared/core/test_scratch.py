"""The scratch folder is gone with its process, or with the next start after a kill; a living
process's never is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HOLDS = """
import sys
import tempfile
from pathlib import Path
from singer_spark.core.scratch import scratch_folder
folder = scratch_folder()
(folder / "spool").mkdir()
(folder / "spool" / "lines").write_text("x")
print(folder, flush=True)
sys.stdin.readline()
"""


def holder(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a scratch folder until it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_scratch_folder_is_removed_with_its_process(
    tmp_path: Path,
) -> None:
    """A folder is removed with its process, and after a kill by the next start."""
    first, living = holder(tmp_path)
    second, killed = holder(tmp_path)
    second.kill()
    second.communicate()
    assert (killed / "spool" / "lines").exists()

    third, other = holder(tmp_path)

    assert not killed.exists()
    assert (living / "spool" / "lines").exists()
    assert (other / "spool" / "lines").exists()
    for process in (first, third):
        process.communicate("\n")
        assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_scratch_folder_lookalike_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "singer-spark-scratch-of-mine" / "data"
    data.parent.mkdir()
    data.write_text("precious")
    lake = tmp_path / "spark-lake"
    lake.mkdir()
    (tmp_path / "singer-spark-scratch-link").symlink_to(lake)
    (lake / "owner.lock").touch()

    process, _ = holder(tmp_path)
    process.communicate("\n")

    assert data.read_text() == "precious"
    assert (lake / "owner.lock").exists()


PLACE = """
import pathlib, shutil, sys
from singer_spark.core import scratch
place = pathlib.Path(sys.argv[1])
"""
LOOKS = f"""{PLACE}
while True:
    scratch._remove_abandoned(place)
"""
MAKES = f"""{PLACE}
for _ in range(900):
    folder = scratch._make(place)
    assert folder.is_dir()
    shutil.rmtree(folder)
"""


@pytest.mark.slow
def test_start_never_takes_a_folder_being_created() -> None:
    """Two processes look for abandoned folders without a pause, others make thousands."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        looking = [subprocess.Popen([sys.executable, "-c", LOOKS, place]) for _ in range(2)]
        try:
            for _ in range(5):
                subprocess.run([sys.executable, "-c", MAKES, place], check=True)
        finally:
            for process in looking:
                process.kill()
                process.wait()


def test_unwritable_temporary_folder_is_reported(tmp_path: Path) -> None:
    code = (
        "from singer_spark import errors; from singer_spark.core import scratch\n"
        "import tempfile\n"
        "tempfile.tempdir = '/proc/no/such/place'\n"
        "errors.run_command_line(scratch.scratch_folder, 'tap-x')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("tap-x: RUN-015 ")
    assert "TMPDIR" in line
