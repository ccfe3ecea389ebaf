"""Random writers on MariaDB, open for random times, beside runs that die: every version that stayed
unchanged comes once.

To be run by hand: `cd tests && ../.venv/bin/python -m soak.late_commits --minutes 20`. Each round
has a table of its own and a seed, which a failure names. Clocks are off by up to the window;
transactions roll back, whole or to a savepoint; updates leave the key. A run that dies is continued
by the next one.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from servers.mariadb import MariaDB, running
from tap.dying import Pipe, Sent
from tap.opened import login

if TYPE_CHECKING:
    import pymysql

    from servers.mariadb import MariaDatabase

TABLE = (
    "create table t (id int auto_increment primary key, v int not null, k datetime(6) not "
    "null, key (k))"
)
SECONDS = 3_600
MOST_OPEN = 4
KINDS = ("numbers", "moments")
Version = tuple[int, int]


@dataclass
class Writer:
    """An open transaction, and the rows that it has locked; with those of before its savepoint."""

    connection: pymysql.Connection
    own: set[int] = field(default_factory=set)


@dataclass
class Soak:
    """One table, its writers and its lake.

    Attributes:
        arrived: How often each version came.
        due: The versions that a whole run could see.
    """

    database: MariaDatabase
    lake: Pipe
    kind: str
    random: random.Random
    arrived: Counter[Version] = field(default_factory=Counter)
    due: set[Version] = field(default_factory=set)
    writers: list[Writer] = field(default_factory=list)
    version: int = 0
    dead: Sent | None = None

    @classmethod
    def of(cls, database: MariaDatabase, folder: Path, kind: str, seed: int) -> Soak:
        """An empty table; numbers have a narrow window, so that open transactions widen it."""
        with database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(TABLE)
        spec = "t:id:integer" if kind == "numbers" else "t:k:datetime"
        lag = {"safety_lag_rows": 3} if kind == "numbers" else {"safety_lag_seconds": SECONDS}
        config = login(
            database, schemas=[database.name], incremental_tables=[spec], slice_rows=4, **lag
        )
        return cls(database, Pipe(folder, config), kind, random.Random(seed))

    def blow(self, steps: int) -> None:
        """So many random steps, then rest; AssertionError: a version is missing, or came twice."""
        actions = [
            self.begin,
            self.insert,
            self.insert,
            self.insert,
            self.end,
            self.savepoint,
            self.run,
            self.run,
        ]
        actions += [self.update, self.update] if self.kind == "moments" else []
        if self.kind == "numbers":
            # The first run can't know the keys of a transaction that has just begun.
            self.insert()
            self.run(whole=True)
        for _ in range(steps):
            self.random.choice(actions)()
        while self.writers:
            self.end()
        for _ in range(2):
            self.run(whole=True)
        assert not self.due - set(self.arrived), f"missing: {sorted(self.due - set(self.arrived))}"

    def begin(self) -> None:
        """One more transaction."""
        if len(self.writers) < MOST_OPEN:
            self.writers.append(Writer(self.database.connect()))
            # Otherwise MySQL locks the gap where a row was rolled back.
            self._execute(
                self.writers[-1], "set session transaction isolation level read committed"
            )
            self._execute(self.writers[-1], "start transaction")

    def insert(self) -> None:
        """A row, of an open transaction or at once, with a key of a clock that is off."""
        self.version += 1
        columns = (
            f"(v, k) values ({self.version}, utc_timestamp(6) + interval {self._skew()} second)"
        )
        if (writer := self._any()) is None:
            with self.database.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"insert into t {columns}")
            return
        writer.own.add(self._execute(writer, f"insert into t {columns}"))

    def update(self) -> None:
        """Another version of a row that no other transaction has locked; its key stays, or not."""
        locked = set().union(*(each.own for each in self.writers))
        free = [number for number, _ in self._visible() if number not in locked]
        writer = self._any()
        if not free or writer is None:
            return
        self.version += 1
        number = self.random.choice(free)
        key = self.random.choice(["", f", k = utc_timestamp(6) + interval {self._skew()} second"])
        self._execute(writer, f"update t set v = {self.version}{key} where id = {number}")
        writer.own.add(number)

    def savepoint(self) -> None:
        """A row that is rolled back in an open transaction, which continues."""
        if (writer := self._any()) is not None:
            self.version += 1
            self._execute(writer, "savepoint s")
            self._execute(writer, f"insert into t (v, k) values ({self.version}, utc_timestamp(6))")
            self._execute(writer, "rollback to savepoint s")

    def end(self) -> None:
        """A commit, or now and then a rollback."""
        if self.writers:
            writer = self.writers.pop(self.random.randrange(len(self.writers)))
            self._execute(writer, self.random.choice(["commit", "commit", "commit", "rollback"]))
            writer.connection.close()

    def run(self, *, whole: bool = False) -> None:
        """A run, which may continue one that died, and may die itself."""
        # A run that follows at once would see the list of transactions made for the last one.
        time.sleep(0.2)
        visible, sent = set(self._visible()), self.lake.run()
        if not whole and self.random.random() < 0.4:
            sent = sent.until(self.random.randrange(len(sent.states)))
            self.lake.die(sent, began_from=self.lake.saved)
            self._take(sent)
            return
        self.lake.save(sent.final)
        self._take(sent)
        self.due |= visible

    def _take(self, sent: Sent) -> None:
        """What came until the last STATE."""
        rows = [each["record"] for each in sent.messages if each["type"] == "RECORD"]
        self.arrived += Counter((each["id"], each["v"]) for each in rows)
        twice = [version for version, count in self.arrived.items() if count > 1]
        assert not twice, f"twice: {sorted(twice)}"

    def _visible(self) -> list[Version]:
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("select id, v from t")
            return [(int(number), int(version)) for number, version in cursor.fetchall()]

    def _any(self) -> Writer | None:
        return (
            self.random.choice(self.writers)
            if self.writers and self.random.random() < 0.7
            else None
        )

    def _skew(self) -> int:
        return self.random.randint(-SECONDS // 3, SECONDS // 3)

    def _execute(self, writer: Writer, statement: str) -> int:
        with writer.connection.cursor() as cursor:
            cursor.execute(statement)
            return int(cursor.lastrowid or 0)


def main() -> None:
    """Rounds for so many minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    end, seed = time.monotonic() + given.minutes * 60, given.seed
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as facts:
        server = MariaDB(**facts)
        while time.monotonic() < end:
            kind = KINDS[seed % len(KINDS)]
            soak = Soak.of(server.new_database(), Path(folder) / f"lake-{seed}", kind, seed)
            try:
                soak.blow(given.steps)
            except AssertionError as error:
                raise SystemExit(f"seed {seed}, {kind}: {error}") from error
            print(
                json.dumps({"seed": seed, "kind": kind, "versions": len(soak.arrived)}), flush=True
            )
            seed += 1


if __name__ == "__main__":
    main()
