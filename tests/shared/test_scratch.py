"""The scratch folder: gone with its process, or with the next start after a kill; never a living one's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HOLDS = """
import sys
from pathlib import Path
from singer_spark.scratch import scratch_folder
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


def test_a_folder_goes_with_its_process_and_after_a_kill_with_the_next_start(tmp_path: Path) -> None:
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


def test_what_only_looks_like_a_scratch_folder_stays(tmp_path: Path) -> None:
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


def test_a_start_never_takes_a_folder_that_another_one_is_just_making(tmp_path: Path) -> None:
    """One process looks for abandoned folders without a pause, another one makes folders."""
    looks = "while True: scratch._remove_abandoned(place)"
    makes = "for _ in range(3000): assert scratch._make(place).is_dir()"
    code = "import pathlib, sys\nfrom singer_spark import scratch\nplace = pathlib.Path(sys.argv[1])\n"
    with subprocess.Popen([sys.executable, "-c", code + looks, str(tmp_path)]) as looking:
        made = subprocess.run(
            ["bash", "-c", 'ulimit -n 10000; exec "$@"', "bash", sys.executable, "-c", code + makes, str(tmp_path)],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        looking.kill()
    assert made.returncode == 0, made.stderr


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    code = (
        "from singer_spark import errors, scratch\n"
        "import tempfile\n"
        "tempfile.tempdir = '/proc/no/such/place'\n"
        "errors.run_command_line(scratch.scratch_folder, 'tap-x')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "TMPDIR" in line
