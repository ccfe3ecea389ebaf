"""A storm, by hand: runs of `tap | target` beside a busy PostgreSQL, and what the lake holds when it is over.

`cd tests && ../.venv/bin/python -m storms.busy_postgresql --runs 50 --minutes 20 --seed 1` prints counts, and exits
with 1 if a row was lost, came twice or is another one, a run failed for no reason, or a client waited for the tap.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import psycopg
import pyarrow.parquet as pq

from servers.postgresql import USER, Database, running

BIN = Path(sys.executable).parent
SCRIPT = """
create sequence app_ids cache 10;
create table app (id bigint primary key default nextval('app_ids'), v text);
create table ups (id bigint primary key, n integer, v text, updated_at timestamptz not null default now());
create index on ups (updated_at);
create table ful (id bigint primary key, v text);
create table par (id bigint primary key, v text) partition by range (id);
create table par1 partition of par for values from (minvalue) to (5000);
create table par2 partition of par default;
insert into app (v) select 'first' from generate_series(1, 20000);
insert into ups select n, n, 'first' from generate_series(1, 20000) n;
insert into ful select n, 'first' from generate_series(1, 20000) n;
insert into par select n, 'first' from generate_series(1, 10000) n;
create materialized view mat as select id, v from ups where id % 3 = 0;
"""
# Of the DDL, as a run may tell it.
BY_DDL = re.compile(
    r"was emptied|gave way|has changed its|was dropped|was defined|was renamed|was attached|holds or awaits a lock"
    r"|column .* does not exist"
)
# Nobody waits for longer for what a run holds; what is beyond a second is the machine's, which does not look in time.
MOST_SECONDS = 1.0
OURS = "application_name in ('tap-spark-jdbc', 'PostgreSQL JDBC Driver')"
WAITING = f"""
select w.pid, min(a.query), min(o.query) from pg_locks w join pg_stat_activity a using (pid)
join pg_stat_activity o on o.pid = any (pg_blocking_pids(w.pid)) and o.{OURS}
where not w.granted and not a.{OURS} group by w.pid
"""


@dataclass
class Storm:
    """One database, one lake, and what was counted."""

    database: Database
    folder: Path
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest: float = 0.0
    over: Event = field(default_factory=Event)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    lock: Lock = field(default_factory=Lock)

    def number(self) -> int:
        with self.lock:
            return next(self.numbers)

    def connect(self, **options: Any) -> psycopg.Connection:
        return psycopg.connect(self.database.dsn, **options)

    def complain(self, what: str) -> None:
        print(f"WRONG: {what}", flush=True)
        self.wrong.append(what)


class Writer:
    """One client: its transactions, short and long, nested and undone."""

    def __init__(self, storm: Storm, number: int) -> None:
        self.storm = storm
        self.dice = random.Random(storm.seed * 1000 + number)
        self.long = number % 3 == 0

    def work(self) -> None:
        with self.storm.connect(options="-c lock_timeout=5s") as connection:
            while not self.storm.over.is_set():
                try:
                    self._transaction(connection)
                except psycopg.Error as error:
                    connection.rollback()
                    self.storm.counts[f"writers: {type(error).__name__}"] += 1

    def _transaction(self, connection: psycopg.Connection) -> None:
        dice = self.dice
        for _ in range(dice.randint(1, 5)):
            if dice.random() < 0.3:
                with suppress(psycopg.Rollback), connection.transaction():
                    self._change(connection)
                    if dice.random() < 0.3:
                        raise psycopg.Rollback
            else:
                self._change(connection)
            self.storm.over.wait(dice.expovariate(1 / 2.0) if self.long else dice.uniform(0, 0.05))
        if dice.random() < 0.85:
            connection.commit()
            self.storm.counts["transactions"] += 1
        else:
            connection.rollback()
            self.storm.counts["transactions undone"] += 1
        self.storm.over.wait(dice.uniform(0, 0.3))

    def _change(self, connection: psycopg.Connection) -> None:
        dice, number = self.dice, self.storm.number()
        row, version = dice.randint(1, 20_000), f"version {number}"
        statements: list[tuple[str, tuple[Any, ...]]] = [
            ("insert into app (v) values (%s), (%s)", (version, version)),
            # Below any bookmark.
            ("insert into app (id, v) values (%s, %s)", (-number, version)),
            ("update ups set v = %s, n = n + 1, updated_at = now() where id = %s", (version, row)),
            ("update ups set v = %s where id = %s", (version, row)),
            ("update ups set v = %s, updated_at = updated_at - interval '1 hour' where id = %s", (version, row)),
            ("insert into ups (id, n, v) values (%s, 1, %s)", (20_000 + number, version)),
            (
                "insert into ups (id, n, v, updated_at) values (%s, 1, %s, now() - interval '1 day')",
                (20_000 + number, version),
            ),
            ("update ful set v = %s where id = %s", (version, row)),
            ("delete from ful where id = %s", (row,)),
            ("insert into ful values (%s, %s)", (20_000 + number, version)),
            ("insert into par values (%s, %s)", (20_000 + number, version)),
            ("insert into par values (%s, %s)", (-number, version)),
        ]
        connection.execute(*dice.choice(statements))


class Designer:
    """A client that changes tables."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.dice = random.Random(storm.seed)
        self.number = 0

    def work(self) -> None:
        with self.storm.connect(autocommit=True, options="-c lock_timeout=3s") as connection:
            while not self.storm.over.wait(0.5 + self.dice.expovariate(1 / 20)):
                change = self._change()
                try:
                    connection.execute(change)
                    self.storm.counts[f"ddl: {' '.join(change.split()[:2])}"] += 1
                except psycopg.Error as error:
                    self.storm.counts[f"ddl: {type(error).__name__}"] += 1

    def _change(self) -> str:
        self.number += 1
        table = self.dice.choice(["app", "ups", "ful", "par"])
        written_anew = self.dice.choice(["ups", "ful"])
        gone = f"alter table {table} drop column if exists x{self.dice.randint(1, self.number)}"
        return self.dice.choice(
            [
                f"alter table {table} add column x{self.number} text",
                f"alter table {table} add column x{self.number} integer default 7",
                f"alter table {written_anew} add column x{self.number} double precision default random()",
                gone,
                gone,
                self.dice.choice(["alter table ups alter n type bigint", "alter table ups alter n type integer"]),
                f"truncate {self.dice.choice(['app', 'ups', 'ful', 'par2'])}",
                f"vacuum full {table}",
                f"create index concurrently on {table} (v)" if table != "par" else "analyze par",
                "refresh materialized view mat",
                "refresh materialized view mat",
            ]
        )


def watch(storm: Storm) -> None:
    """Who waits for the tap, and for how long."""
    since: dict[int, float] = {}
    with storm.connect(autocommit=True) as connection:
        while not storm.over.wait(0.05):
            now = time.monotonic()
            found = {pid: (waits, runs) for pid, waits, runs in connection.execute(WAITING)}
            since = {pid: since.get(pid, now) for pid in found}
            for pid, began in since.items():
                storm.longest = max(storm.longest, now - began)
                if now - began > MOST_SECONDS:
                    waits, runs = found[pid]
                    storm.complain(f"a client waits for {now - began:.1f} s: {waits!r} for {' '.join(runs.split())!r}")
            storm.counts["looks at waiting clients"] += 1


def configs(storm: Storm, *, batches: bool) -> tuple[Path, Path]:
    lake, database = storm.folder / "lake", storm.database
    tap: dict[str, Any] = {
        "jdbc_url": database.jdbc_url,
        "user": USER,
        "password": database.password,
        "tables": ["app", "ups", "ful", "par", "mat"],
        "incremental_tables": [
            "public.app:id:integer!append", "public.ups:updated_at:timestamp!upsert", "public.par:id:integer!append",
        ],
        "stream_options": {
            "public-mat": {"partition_column": "id"}, "public-ups": {"key_properties": ["id"]},
        },
        "slice_rows": 3000,
        "spark": {"master": "local[2]"},
    }  # fmt: skip
    if batches:
        root = f"file://{lake}/.dataspoc/staging/batches"
        tap["batch_config"] = {"encoding": {"format": "parquet"}, "storage": {"root": root}}
    target = {"bucket": str(lake), "pipeline": "storm", "spark": {"master": "local[2]"}}
    paths = storm.folder / "tap.json", storm.folder / "target.json"
    for path, config in zip(paths, (tap, target), strict=True):
        path.write_text(json.dumps(config))
    return paths


def run(storm: Storm, *, batches: bool) -> bool:
    """One run; whether it succeeded."""
    tap, target = configs(storm, batches=batches)
    state = storm.folder / "lake/.dataspoc/state/storm/state.json"
    with (storm.folder / "tap.log").open("w+") as told, (storm.folder / "target.log").open("w+") as other:
        sends = subprocess.Popen(
            [BIN / "tap-spark-jdbc", "--config", tap, "--state", state],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told,
        )  # fmt: skip
        takes = subprocess.Popen(
            [BIN / "target-spark-lake", "--config", target],
            stdin=sends.stdout, stdout=subprocess.DEVNULL, stderr=other,
        )  # fmt: skip
        assert sends.stdout is not None
        sends.stdout.close()
        codes = takes.wait(), sends.wait()
        texts = []
        for log in (told, other):
            log.seek(0)
            texts.append(log.read().strip())
    if codes == (0, 0):
        storm.counts["runs"] += 1
        return True
    last = texts[0].splitlines()[-1] if codes[1] and texts[0] else texts[1].splitlines()[-1]
    print(f"a run failed: {last[:300]}", flush=True)
    if BY_DDL.search(texts[0]):
        storm.counts["runs that failed by DDL"] += 1
    else:
        storm.complain(f"a run failed for no reason {codes}: {texts[0][-1500:]} | {texts[1][-1500:]}")
    return False


def lake_rows(storm: Storm, stream: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for path in sorted((storm.folder / "lake/raw" / stream).rglob("*.parquet")):
        table = pq.ParquetFile(path).read(columns=list(columns))
        rows += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return rows


def print_rows(storm: Storm, stream: str, key: Any) -> None:
    """Every row of the key, with its file and what the target wrote beside it."""
    for path in sorted((storm.folder / "lake/raw" / stream).rglob("*.parquet")):
        for row in pq.read_table(path, filters=[("id", "=", key)], partitioning=None).to_pylist():
            print(f"  {path.name}: { {name: str(value) for name, value in row.items()} }", flush=True)


def compare(storm: Storm) -> None:
    """Lake and source, once all is quiet."""
    with storm.connect(autocommit=True) as connection:
        for table in ("app", "par", "ups", "ful", "mat"):
            columns = "id, n, v" if table == "ups" else "id, v"
            source = Counter(connection.execute(f"select {columns} from {table}").fetchall())
            lake = Counter(lake_rows(storm, f"public-{table}", tuple(columns.split(", "))))
            missing = source - lake
            extra = lake - source if table in ("ful", "mat") else lake - Counter(set(lake))
            storm.counts[f"rows of {table}"] = sum(source.values())
            for what, found in (("missing or another", missing), ("extra or twice", extra)):
                if found:
                    storm.complain(f"{table}: {sum(found.values())} rows {what}: {sorted(map(str, found))[:5]}")
                    for row in list(found)[:5]:
                        print_rows(storm, f"public-{table}", row[0])


@contextmanager
def weather(storm: Storm) -> Iterator[None]:
    """Everybody at work, for as long as the context lasts."""
    work: list[Callable[[], None]] = [Writer(storm, number).work for number in range(6)]
    work += [Designer(storm).work, lambda: watch(storm)]
    threads = [Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        storm.over.set()
        for thread in threads:
            thread.join(60)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice, deadline = random.Random(arguments.seed), time.monotonic() + 60 * arguments.minutes
    # The server has an account of its own, which may enter no other folder.
    with (
        tempfile.TemporaryDirectory(prefix="storm-") as folder,
        tempfile.TemporaryDirectory(prefix="postgresql-") as data,
        running(Path(data)) as server,
    ):
        database = Database("postgres", server["host"], server["port"], server["user"], server["password"])
        storm = Storm(database, Path(folder), arguments.seed)
        with storm.connect(autocommit=True) as connection:
            connection.execute(SCRIPT)
        with weather(storm):
            done = 0
            while done < arguments.runs and time.monotonic() < deadline:
                done += 1
                run(storm, batches=dice.random() < 0.5)
        # Nobody disturbs these.
        if not run(storm, batches=False) or not run(storm, batches=True):
            storm.complain("a run failed though nobody changed anything")
        compare(storm)
        for name, number in sorted(storm.counts.items()):
            print(f"{number:8} {name}")
        print(f"{storm.longest:8.2f} s that a client waited for the tap at most")
        print(f"seed {arguments.seed}: {'all is well' if not storm.wrong else f'{len(storm.wrong)} things are wrong'}")
        return 1 if storm.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
