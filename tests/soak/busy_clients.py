"""The clients of a PostgreSQL in a soak: writers, a designer of tables, and one that watches
whether they wait for us.
"""

from __future__ import annotations

import random
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

from servers.postgresql import Database

# Nobody waits for longer for what a run holds; what is beyond a second is the machine's, which does
# not look in time.
MOST_SECONDS = 1.0
OURS = "application_name in ('tap-spark-jdbc', 'PostgreSQL JDBC Driver')"
WAITING = f"""
select w.pid, min(a.query), min(o.query) from pg_locks w join pg_stat_activity a using (pid)
join pg_stat_activity o on o.pid = any (pg_blocking_pids(w.pid)) and o.{OURS}
where not w.granted and not a.{OURS} group by w.pid
"""


@dataclass
class Soak:
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

    def __init__(self, soak: Soak, number: int) -> None:
        self.soak = soak
        self.dice = random.Random(soak.seed * 1000 + number)
        self.long = number % 3 == 0

    def work(self) -> None:
        with self.soak.connect(options="-c lock_timeout=5s") as connection:
            while not self.soak.over.is_set():
                try:
                    self._transaction(connection)
                except psycopg.Error as error:
                    connection.rollback()
                    self.soak.counts[f"writers: {type(error).__name__}"] += 1

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
            self.soak.over.wait(dice.expovariate(1 / 2.0) if self.long else dice.uniform(0, 0.05))
        if dice.random() < 0.85:
            connection.commit()
            self.soak.counts["transactions"] += 1
        else:
            connection.rollback()
            self.soak.counts["transactions undone"] += 1
        self.soak.over.wait(dice.uniform(0, 0.3))

    def _change(self, connection: psycopg.Connection) -> None:
        dice, number = self.dice, self.soak.number()
        row, version = dice.randint(1, 20_000), f"version {number}"
        statements: list[tuple[str, tuple[Any, ...]]] = [
            ("insert into app (v) values (%s), (%s)", (version, version)),
            # Below any bookmark.
            ("insert into app (id, v) values (%s, %s)", (-number, version)),
            ("update ups set v = %s, n = n + 1, updated_at = now() where id = %s", (version, row)),
            ("update ups set v = %s where id = %s", (version, row)),
            (
                "update ups set v = %s, updated_at = updated_at - interval '1 hour' where id = %s",
                (version, row),
            ),
            ("insert into ups (id, n, v) values (%s, 1, %s)", (20_000 + number, version)),
            (
                "insert into ups (id, n, v, updated_at) values (%s, 1, %s, now() - interval '1 "
                "day')",
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

    def __init__(self, soak: Soak) -> None:
        self.soak = soak
        self.dice = random.Random(soak.seed)
        self.number = 0

    def work(self) -> None:
        with self.soak.connect(autocommit=True, options="-c lock_timeout=3s") as connection:
            while not self.soak.over.wait(0.5 + self.dice.expovariate(1 / 20)):
                change = self._change()
                try:
                    connection.execute(change)
                    self.soak.counts[f"ddl: {' '.join(change.split()[:2])}"] += 1
                except psycopg.Error as error:
                    self.soak.counts[f"ddl: {type(error).__name__}"] += 1

    def _change(self) -> str:
        self.number += 1
        table = self.dice.choice(["app", "ups", "ful", "par"])
        rewritten = self.dice.choice(["ups", "ful"])
        gone = f"alter table {table} drop column if exists x{self.dice.randint(1, self.number)}"
        return self.dice.choice(
            [
                f"alter table {table} add column x{self.number} text",
                f"alter table {table} add column x{self.number} integer default 7",
                f"alter table {rewritten} add column x{self.number} double precision default "
                "random()",
                gone,
                gone,
                self.dice.choice(
                    ["alter table ups alter n type bigint", "alter table ups alter n type integer"]
                ),
                f"truncate {self.dice.choice(['app', 'ups', 'ful', 'par2'])}",
                f"vacuum full {table}",
                f"create index concurrently on {table} (v)" if table != "par" else "analyze par",
                "refresh materialized view mat",
                "refresh materialized view mat",
            ]
        )


def watch(soak: Soak) -> None:
    """Who waits for the tap, and for how long."""
    since: dict[int, float] = {}
    with soak.connect(autocommit=True) as connection:
        while not soak.over.wait(0.05):
            now = time.monotonic()
            found = {pid: (waits, runs) for pid, waits, runs in connection.execute(WAITING)}
            since = {pid: since.get(pid, now) for pid in found}
            for pid, began in since.items():
                soak.longest = max(soak.longest, now - began)
                if now - began > MOST_SECONDS:
                    waits, runs = found[pid]
                    soak.complain(
                        f"a client waits for {now - began:.1f} s: {waits!r} for "
                        f"{' '.join(runs.split())!r}"
                    )
            soak.counts["looks at waiting clients"] += 1


@contextmanager
def running_clients(soak: Soak) -> Iterator[None]:
    """Everybody at work, for as long as the context lasts."""
    work: list[Callable[[], None]] = [Writer(soak, number).work for number in range(6)]
    work += [Designer(soak).work, lambda: watch(soak)]
    threads = [Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        soak.over.set()
        for thread in threads:
            thread.join(60)
