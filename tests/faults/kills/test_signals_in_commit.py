"""SIGTERM before every change that a run makes to the bucket: the exit code, the lake and the state
always agree.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from target.loading import reader

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
ROWS = 3
SAME_BREATH, LATER = 3600, -1


class Lake:
    """A lake that a forked target loads: `grows` is appended to, `whole` is overwritten."""

    def __init__(self, folder: Path, forks: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.forks = forks
        self.run_count = 0
        streams = {"whole": {"load_method": "overwrite"}}
        config = {"bucket": str(folder / "lake"), "pipeline": "test", "stream_options": streams}
        (folder / "target.json").write_text(json.dumps(config))

    def run(
        self, nth: int = 0, signals: tuple[int, ...] = (), breath: float = SAME_BREATH
    ) -> dict[str, Any]:
        """One run with the next rows, stopped at a given place."""
        self.run_count += 1
        lines: list[dict[str, Any]] = []
        for stream in ("grows", "whole"):
            properties = {"run": {"type": "integer"}, "id": {"type": "integer"}}
            schema = {"properties": properties, "x-extent": "full"}
            lines.append(
                {"type": "SCHEMA", "stream": stream, "schema": schema, "key_properties": []}
            )
            rows = ({"run": self.run_count, "id": number} for number in range(ROWS))
            lines += ({"type": "RECORD", "stream": stream, "record": row} for row in rows)
        lines.append({"type": "STATE", "value": {"run": self.run_count}})
        (self.folder / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert self.forks.stdin is not None and self.forks.stdout is not None
        order = {"input": "in", "nth": nth, "signals": signals, "breath": breath}
        self.forks.stdin.write(json.dumps(order) + "\n")
        self.forks.stdin.flush()
        answer: dict[str, Any] = json.loads(self.forks.stdout.readline())
        assert "Traceback" not in answer["errors"], answer["errors"]
        return answer

    def runs_of(self, stream: str) -> list[int]:
        """The runs whose rows are in a table, each of them whole."""
        files = self.folder / "lake/raw" / stream / "*.parquet"
        with reader() as connection:
            found = connection.sql(
                f"select run, count(*), count(distinct id) from '{files}' group by run order by run"
            )
            rows = found.fetchall()
        assert all(count == distinct == ROWS for _, count, distinct in rows), rows
        return [run for run, _, _ in rows]

    @property
    def state(self) -> int:
        return int(
            json.loads((self.folder / "lake/.dataspoc/state/test/state.json").read_text())["run"]
        )

    def check_exact(self, committed: list[int]) -> None:
        """Exactly these runs happened, and nothing is left of others."""
        assert self.runs_of("grows") == committed
        assert self.runs_of("whole") == committed[-1:]
        assert self.state == committed[-1]
        assert [
            path for path in (self.folder / "lake/.dataspoc/staging").rglob("*") if path.is_file()
        ] == []


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    command = [sys.executable, "-m", "faults.signalled_target", str(tmp_path)]
    modules = os.pathsep.join([str(TESTS), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": modules, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as forks:
        yield Lake(tmp_path, forks)
        assert forks.stdin is not None
        forks.stdin.close()


def test_signal_stops_run_or_is_too_late(lake: Lake) -> None:
    """After a signal before any change, the run either stops or commits completely."""
    assert lake.run()["code"] == 0
    committed = [1]
    stopped = too_late = nth = 0
    while True:
        nth += 1
        answer = lake.run(nth, (signal.SIGTERM, signal.SIGINT))
        if answer["code"] == 0:
            committed.append(lake.run_count)
            assert answer["output"] == f'{{"run":{lake.run_count}}}\n'
            too_late += "SIGTERM came too late" in answer["errors"]
        else:
            assert (answer["code"], answer["output"]) == (143, ""), answer["errors"]
            assert "stopped by SIGTERM; nothing was published" in answer["errors"]
            stopped += 1
        # At once, before any other run could repair it.
        assert (lake.runs_of("grows"), lake.state) == (committed, committed[-1])
        if not answer["reached"]:
            break
    assert lake.run()["code"] == 0
    lake.check_exact([*committed, lake.run_count])
    assert stopped >= 1
    assert too_late >= 5


def test_second_signal_in_commit_acts_like_a_crash(
    lake: Lake,
) -> None:
    """A second signal during a commit acts like a crash that the next run repairs.

    It comes at every other change: `test_kills` dies at each of them.
    """
    assert lake.run()["code"] == 0
    committed = [1]
    finished = repaired = 0
    for nth in itertools.count(1, 2):
        answer = lake.run(nth, (signal.SIGTERM, signal.SIGTERM), LATER)
        ended = lake.run_count
        assert answer["code"] == (143 if answer["reached"] else 0), answer["errors"]
        assert lake.run()["code"] == 0
        if ended in lake.runs_of("grows"):
            committed.append(ended)
            finished += answer["reached"]
        else:
            assert answer["output"] == ""
            repaired += 1
        committed.append(lake.run_count)
        lake.check_exact(committed)
        if not answer["reached"]:
            break
    assert finished >= 3
    assert repaired >= 2
