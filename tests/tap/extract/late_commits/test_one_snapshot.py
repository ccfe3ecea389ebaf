"""Each version that a run could see arrives once, and a run of many slices has the rows of one
moment.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

import psycopg
import pytest

from tap.extract.late_commits.driven_source import TABLE, Between, Source


@dataclass
class Writer:
    """Transactions that insert and update forever, short and long ones, at random.

    A key is when one began.
    """

    source: Source
    dice: random.Random
    clock: int = 0
    sessions: list[Session] = field(default_factory=list)
    lag: int = 0
    locked: dict[int, Session] = field(default_factory=dict)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def step(self) -> None:
        self.dice.choice(self.sessions).step(self)


@dataclass(eq=False)
class Session:
    connection: psycopg.Connection
    haste: float
    began: int | None = None
    savepoints: int = 0

    def step(self, writer: Writer) -> None:
        dice = writer.dice
        if self.began is None:
            self.connection.execute("select 1")
            self.began, self.savepoints = writer.tick(), 0
        elif dice.random() < self.haste:
            self.end(writer, commits=dice.random() < 0.9)
        else:
            dice.choice(
                [self.insert, self.insert, self.update, self.update, self.nest, self.unnest]
            )(writer)

    def end(self, writer: Writer, *, commits: bool) -> None:
        self.connection.commit() if commits else self.connection.rollback()
        self.began = None
        writer.locked = {row: by for row, by in writer.locked.items() if by is not self}

    def key(self, writer: Writer) -> int:
        key = self.began if writer.dice.random() < 0.8 else writer.tick()
        # Blocks of numbers, clocks that are slow: no lower than the window reaches.
        return key if not writer.lag else max(key, writer.clock - writer.dice.randrange(writer.lag))

    def insert(self, writer: Writer) -> None:
        row = writer.tick()
        writer.locked[row] = self
        self.connection.execute(
            "insert into t values (%s, %s, %s)", (row, self.key(writer), f"version {row}")
        )

    def update(self, writer: Writer) -> None:
        known = [row for (row,) in self.connection.execute("select id from t")]
        free = [row for row in sorted(known) if writer.locked.get(row, self) is self]
        if free:
            row = writer.dice.choice(free)
            writer.locked[row] = self
            version = f"version {writer.tick()}"
            self.connection.execute(
                "update t set k = %s, v = %s where id = %s", (self.key(writer), version, row)
            )

    def nest(self, writer: Writer) -> None:
        self.savepoints += 1
        self.connection.execute(f"savepoint s{self.savepoints}")

    def unnest(self, writer: Writer) -> None:
        if self.savepoints:
            how = writer.dice.choice(["release", "rollback to"])
            self.connection.execute(f"{how} s{self.savepoints}")
            self.savepoints -= how == "release"


@pytest.mark.parametrize(
    ("seed", "lag", "settings"),
    [
        (7, 0, {}),
        # A run's transactions are about as long, in keys, as this reaches: some that were open are
        # older.
        (8, 0, {"late_rows": "window", "late_window": 25}),
        (9, 60, {"late_rows": "window", "late_window": 60}),
    ],
    ids=["whole table", "window", "window and blocks of keys"],
)
def test_every_visible_version_arrives_once(source, seed, lag, settings):
    """Every version that a run could see arrives once, over ten runs beside long transactions."""
    # By the columnar driver, and every fourth by Spark.
    it = source(**settings)
    writer = Writer(it, random.Random(seed), lag=lag)
    writer.sessions = [Session(it.transaction(), haste) for haste in (0.5, 0.3, 0.1, 0.02, 0.02)]
    for session in writer.sessions:
        session.connection.rollback()
    it.pipe.output = lambda: Between(writer.step)
    arrived: Counter[str] = Counter()
    latest: dict[int, str] = {}
    late = 0
    for number in range(10):
        for _ in range(40):
            writer.step()
        if number == 9:
            for session in writer.sessions:
                session.end(writer, commits=True)
        visible = it.rows()

        it.pipe.config["reader"] = ("arrow", "jdbc", "arrow", "arrow")[number % 4]
        sent = it.pipe.run()
        it.pipe.save(sent.final)

        # No less, no more: what the run could see, and no run before it had sent.
        assert sent.rows == visible - arrived, number
        arrived += sent.rows
        assert set(arrived.values()) <= {1}
        latest.update({json.loads(row)[1]["id"]: row for row in sent.rows})
        late += "snapshot" in it.bookmark
    assert set(latest.values()) == set(visible)
    # The transactions were long: nearly every run left some open.
    assert late > 5


@pytest.mark.parametrize(
    "settings",
    [{}, {"incremental_tables": []}, {"reader": "jdbc"}],
    ids=["incremental", "full table", "incremental by jdbc"],
)
def test_run_of_many_slices_reads_one_snapshot(source, settings):
    it = source(
        TABLE + "insert into t select n, n, 'row' from generate_series(1, 40) n;", **settings
    )
    moment = it.rows()
    steps = iter(range(1, 1000))

    def happens() -> None:
        n = next(steps)
        it.database.execute(
            f"insert into t values ({100 + n}, {n}, ''), ({-n}, {100 + n}, ''); delete from t "
            f"where id = {40 - n};update t set id = {500 + n} where id = {20 - n}; update t set k "
            f"= 500, v = '' where id = {n % 9 + 25}"
        )

    it.pipe.output = lambda: Between(happens)
    sent = it.pipe.run()

    assert next(steps) > 8
    assert sent.rows == moment
