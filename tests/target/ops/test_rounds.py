"""`spark-lake run --every` and `--at`: runs in a row by one process, each with all that a single
run promises.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from end_to_end.marked import until
from servers.postgresql import PostgreSQL, client_ports
from servers.processes import children
from singer_spark.engine import kept_jvm
from singer_spark.engine.kept_jvm import MOST_BYTES, MOST_RUNS, JvmKeeper
from singer_spark.errors import ConfigurationError
from tap.opened import login
from target_spark_lake.ops import spark_lake
from target_spark_lake.ops.run import Schedule

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")
SECONDS = 120
ROUNDS = 20
ROUND = re.compile(r"\d\d:\d\d:\d\d round (\d+): (.*); took .*, the next at \d\d:\d\d:\d\d\n")


class Loop:
    """A running `spark-lake run --every`, and what it says, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self.others: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.put(line)

    def next_round(self) -> tuple[int, str]:
        """The number of the next round that ends, and what is said of it."""
        while True:
            line = self.lines.get(timeout=SECONDS)
            if found := ROUND.fullmatch(line):
                return int(found[1]), found[2]
            self.others.append(line)

    def children(self, word: str) -> list[int]:
        """The processes that it started whose command has this word in it."""
        return [each.pid for each in children(self.process.pid, word)]


@contextmanager
def loop(folder: Path, *words: str) -> Iterator[Loop]:
    command = [SPARK_LAKE, "run", *words]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        running = Loop(process)
        try:
            yield running
        finally:
            process.kill()
            # Its children hold the same pipe: it is read to their end before it is closed.
            running.reader.join(SECONDS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    insert(tmp_path, 0, 100)
    tap = {"jdbc_url": "jdbc:sqlite:shop.db", "incremental_tables": ["orders:id:integer!append"]}
    (tmp_path / "tap.json").write_text(json.dumps(tap))
    (tmp_path / "target.json").write_text(json.dumps({"bucket": "./lake", "pipeline": "shop"}))
    return tmp_path


def insert(folder: Path, first: int, end: int) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute("create table if not exists orders (id integer primary key)")
        database.executemany("insert into orders values (?)", [(n,) for n in range(first, end)])


def in_lake(folder: Path) -> list[int]:
    files = sorted((folder / "lake/raw").rglob("*.parquet"))
    return sorted(
        each for file in files for each in pq.read_table(file, partitioning=None)["id"].to_pylist()
    )


@pytest.mark.slow
def test_round_leaves_no_database_session(tmp_path: Path, postgresql: PostgreSQL) -> None:
    """The JVM stays, but its database connections are closed."""
    shop = postgresql.new_database()
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        for name in ("a", "b", "c"):
            connection.execute(
                f"create table {name} as select n as id, now() as at from generate_series(1, 1000) "
                "n"
            )
        specs = [f"public.{name}:at:timestamp!append" for name in ("a", "b", "c")]
        tap = login(
            shop,
            reader="jdbc",
            incremental_tables=specs,
            batch_config={"encoding": {"format": "parquet"}},
        )
        (tmp_path / "tap.json").write_text(json.dumps(tap))
        (tmp_path / "target.json").write_text(json.dumps({"bucket": "./lake", "pipeline": "shop"}))
        with loop(tmp_path, "--every", "1h") as running:
            assert running.next_round()[1].startswith("3000 records in 3 stream(s)")
            assert len(running.children("java")) == 1
            assert client_ports(connection) == set()


def tap_beside_jvm(running: Loop) -> tuple[int, int] | None:
    """The processes of the tap and of the JVM, while both run."""
    taps, javas = running.children("bin/tap-spark-jdbc"), running.children("java")
    return (taps[0], javas[0]) if taps and javas else None


def killed_in_a_round(running: Loop) -> bool:
    """Kills taps until a round fails by that, as one may be over already; returns whether the JVM
    of that round is gone.
    """
    for _ in range(ROUNDS):
        tap, java = until(lambda: tap_beside_jvm(running), "a tap beside its JVM", running.process)
        with suppress(ProcessLookupError):
            os.kill(tap, signal.SIGKILL)
        if "exit code" in running.next_round()[1]:
            return not Path(f"/proc/{java}").exists()
    return False


@pytest.mark.slow
def test_rounds_share_one_jvm_and_outlive_failures(folder: Path) -> None:
    """Each round prints one line and no STATE; SIGTERM ends the loop and its JVM.

    The error of a failed round is shown as usual, and its JVM is stopped.
    """
    with loop(folder, "--every", "1s") as running:
        number, said = running.next_round()
        assert (number, said.startswith("100 records in 1 stream(s)")) == (1, True)
        (java,) = running.children("java")
        insert(folder, 100, 150)
        while len(in_lake(folder)) < 150:
            number, _ = running.next_round()
        assert running.children("java") == [java]
        assert running.others == []
        (folder / "shop.db").rename(folder / "away.db")
        while "exit code" not in running.next_round()[1]:
            pass
        assert any(
            "tap-spark-jdbc: TAP-001 can't connect to jdbc:sqlite:shop.db" in line
            for line in running.others
        )
        assert not Path(f"/proc/{java}").exists()
        (folder / "away.db").rename(folder / "shop.db")
        insert(folder, 150, 160)
        while len(in_lake(folder)) < 160:
            running.next_round()
        # A tap that is killed leaves its JVM to the process that keeps it, which ends it.
        assert killed_in_a_round(running)
        insert(folder, 160, 170)
        while len(in_lake(folder)) < 170:
            running.next_round()
        (java,) = running.children("java")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(SECONDS) == 128 + signal.SIGTERM
        assert running.process.stdout is not None
        assert running.process.stdout.read() == ""
    assert not Path(f"/proc/{java}").exists()
    assert in_lake(folder) == list(range(170))


def test_jvm_is_ended_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM ends after too many runs, too much memory or a failed run."""
    size, ended = [10**9], []
    monkeypatch.setattr(kept_jvm, "jvm_process_id", lambda: 1)
    monkeypatch.setattr(kept_jvm, "jvm_is_alive", lambda: True)
    monkeypatch.setattr(kept_jvm, "end_jvm", lambda: ended.append(1))
    monkeypatch.setattr(kept_jvm, "_resident_bytes", lambda process: size[0])
    keeper = JvmKeeper()
    for _ in range(MOST_RUNS - 1):
        keeper.after_run(failed=False)
    assert ended == []
    keeper.after_run(failed=False)
    assert len(ended) == 1
    keeper.after_run(failed=False)
    size[0] += MOST_BYTES + 1
    keeper.after_run(failed=False)
    assert len(ended) == 2
    keeper.after_run(failed=True)
    assert len(ended) == 3


def test_rounds_start_by_cron_or_interval() -> None:
    """Rounds start at cron times or at a fixed interval."""
    noon = datetime(2026, 11, 27, 12, 0, 30).timestamp()
    assert Schedule.of("5m", None).next(noon) == noon + 300
    assert Schedule.of("5m", None).first(noon) == noon
    for expression, following in (
        ("*/15 * * * *", (12, 15)),
        ("@hourly", (13, 0)),
        ("30 6-22 * * mon-fri", (12, 30)),
    ):
        schedule = Schedule.of(None, expression)
        assert datetime.fromtimestamp(schedule.first(noon)) == datetime(2026, 11, 27, *following)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--every", "often"], "--every often: write a time such as 30s, 5m or 2h"),
        (["--every", "0"], "--every 0: write a time"),
        (["--at", "61 * * * *"], "--at '61 \\* \\* \\* \\*': .*five cron fields"),
        (["--at", "0 0 31 2 *"], "--at '0 0 31 2 \\*': "),
        (["--every", "5m", "--full"], "--full is for one run"),
    ],
)
def test_impossible_schedule_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        spark_lake.command(["run", *words])
