"""`kill -9` of a real process, at each step of the journal and at any moment, with readers
watching.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from faults.resuming_lake import PARTS, ResumingLake
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake
from target_spark_lake.commit.pipeline_run import open_run

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
DEADLINE = 60


def writer(bucket: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ["PYTHONPATH"]]),
    }
    command = [sys.executable, "-m", "faults.writer", str(bucket), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_kill_9_before_any_change_loses_nothing(tmp_path: Path) -> None:
    """One lake, one process a step, until a process gets through all of its steps."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    step = 0
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        step += 1
        with writer(tmp_path, "--kill-at", str(step)) as process:
            code = process.wait(DEADLINE)
        lake.check_readers_see_committed_rows()
        lake.check_exact(lake.sync())
    assert code == 0
    assert step > 12


def test_repeated_kills_never_lose_a_checkpoint(tmp_path: Path) -> None:
    """Each process continues from where the ones before it were killed; only a recovery comes in
    between.
    """
    lake = ResumingLake(str(tmp_path), {})
    lake.sync()
    reached = []
    step = 0
    while lake.committed_bound() == STEP:
        step += 1
        with writer(tmp_path, "--resume", "--kill-at", str(step)) as process:
            assert process.wait(DEADLINE) == -signal.SIGKILL
        lake.check_readers_see_committed_rows()
        checkpoint = lake.checkpoint()
        reached.append(checkpoint.resume["parts"] if checkpoint else 0)
        open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS).leave()
    *reached, _ = reached
    assert reached == sorted(reached)
    assert set(reached) == set(range(PARTS + 1))
    lake.check_exact(2 * STEP)


def test_readers_see_only_committed_rows_during_kills(
    tmp_path: Path,
) -> None:
    """Readers see only whole files of committed rows while writers are killed."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    over = threading.Event()
    looks: list[int] = []
    wrong: list[BaseException] = []

    def read() -> None:
        while not over.is_set():
            try:
                lake.check_readers_see_committed_rows()
                looks.append(1)
            except BaseException as error:
                wrong.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    moments = random.Random(4)
    try:
        for _ in range(6):
            with writer(tmp_path) as process:
                assert process.stdout is not None
                for _ in range(moments.randint(1, 5)):
                    assert process.stdout.readline()
                process.kill()
    finally:
        over.set()
        reader.join()
    assert wrong == []
    assert len(looks) > 3
    lake.check_exact(lake.sync())
