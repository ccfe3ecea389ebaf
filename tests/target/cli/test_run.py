"""`spark-lake run`: what the pipe does, as one command."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from target.loading import Lake
from target_spark_lake.cli import spark_lake
from target_spark_lake.cli.commands import run as run_module

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")


@pytest.mark.parametrize(
    ("tap", "target", "code"),
    [
        ("exit 0", "cat", 0),
        ("exit 1", "cat", 1),
        ("exit 0", "exit 3", 3),
        ("exit 2", "cat; exit 3", 3),
        ("kill -9 $$", "cat", 137),
        # A tap whose target is gone must notice.
        ("while echo line; do :; done 2>/dev/null; exit 5", "exit 4", 4),
    ],
)
def test_the_exit_code_is_the_pipe_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tap: str, target: str, code: int
) -> None:
    for name, script in (("tap-spark-jdbc", tap), ("target-spark-lake", target)):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/{name}.words\n{script}\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(run_module, "installed", lambda program: str(tmp_path / program))
    assert spark_lake.command(["run", "--full", "--config", "lake.json"]) == code
    words = {path.stem: path.read_text() for path in tmp_path.glob("*.words")}
    assert words["tap-spark-jdbc"] == "--config tap.json --state-from lake.json --full --log-level info\n"
    assert words["target-spark-lake"] == "--config lake.json --log-level info\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("create table orders (id integer primary key)")
        database.executemany("insert into orders values (?)", [(n,) for n in range(100)])
    (tmp_path / "tap.json").write_text(json.dumps({"jdbc_url": "jdbc:sqlite:shop.db"}))
    (tmp_path / "target.json").write_text(json.dumps({"bucket": "./lake", "pipeline": "shop"}))
    return tmp_path


@pytest.mark.slow
def test_a_run_has_one_summary_and_says_its_state(folder: Path) -> None:
    done = subprocess.run([SPARK_LAKE, "run"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Done! 100 records in 1 stream(s)") == 1
    assert "orders: 100 records loaded" in done.stderr
    assert json.loads(done.stdout) == {"bookmarks": {}}


def rewritten(file: Path, **settings: object) -> None:
    """The config, with some settings more or other."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


@pytest.mark.slow
def test_a_table_that_shrinks_fails_until_it_is_accepted(folder: Path) -> None:
    rewritten(folder / "target.json", max_shrink_percent=50)

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([SPARK_LAKE, "run", *flags], cwd=folder, capture_output=True, text=True, check=False)

    assert run().returncode == 0
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute("delete from orders where id > 9")
    refused = run()
    assert refused.returncode == 1
    assert "stream orders" in refused.stderr and "--accept-shrink" in refused.stderr
    assert len(orders(folder)) == 100
    assert run("--accept-shrink").returncode == 0
    assert orders(folder) == [(id,) for id in range(10)]


def orders(folder: Path, table: str = "orders") -> list[tuple[int]]:
    return Lake(folder / "lake").rows(table, "id")


@pytest.mark.slow
def test_a_signal_reaches_both_programs_and_nothing_is_published(folder: Path) -> None:
    process = subprocess.Popen(
        [SPARK_LAKE, "run"], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = next(line for line in process.stderr if "reading" in line)
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 143, said + rest
    assert "tap-spark-jdbc: stopped by SIGTERM" in rest
    assert "target-spark-lake: stopped by SIGTERM; nothing was published" in rest
    assert not (folder / "lake/raw").exists()
