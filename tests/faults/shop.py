"""A shop on a real database whose rows the test knows, because it made them: nothing is read back
to compare with.
"""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]
Execute = Callable[[str, Iterable[Row]], None]

COLUMNS = {
    "customers": ("id", "name"),
    "orders": ("id", "version", "amount", "note", "changed_at"),
    "ties": ("name", "moment"),
    "visits": ("id", "tick"),
}
# Tables that are appended to, with the place of their replication key. Customers are overwritten.
KEYS = {"orders": 4, "ties": 1, "visits": 1}
SPECS = ["orders:changed_at:timestamp", "ties:moment:timestamp", "visits:tick:integer"]
CREATE = """
create table customers (id integer primary key, name varchar(100));
create table orders (id integer primary key, version integer, amount decimal(12,2),
  note varchar(100),
  changed_at timestamp not null);
create index orders_changed_at on orders (changed_at);
create table ties (name varchar(100), moment timestamp not null);
create index ties_moment on ties (moment);
create table visits (id integer primary key, tick integer not null);
"""
BEGIN = dt.datetime(2025, 3, 30, 2, 30)
MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Known:
    """What is known of the shop at one time; never changed.

    Attributes:
        now: Rows of each table.
        ever: Every row that was ever in a table, as often as it was.
        before: The rows that were there at the last good run.
    """

    now: dict[str, tuple[Row, ...]]
    ever: dict[str, Counter[Row]]
    before: dict[str, tuple[Row, ...]]


@dataclass
class Shop:
    """Four tables: `customers` is sent whole.

    `orders` has an indexed key with ties, and rows that change; `ties` has no primary key, few
    moments and rows that are equal; the key of `visits` has no index.
    """

    execute: Execute
    chance: random.Random
    known: Known = field(init=False)

    def __post_init__(self) -> None:
        self.known = Known(
            {name: () for name in COLUMNS}, {name: Counter() for name in COLUMNS}, {}
        )
        self._clock = 0
        self._last_id = 0

    def resolve(self) -> None:
        """A good run is over: its rows are what ties at the bookmark are measured by."""
        self.known = replace(self.known, before=self.known.now)

    def grow(self, rows: int) -> None:
        """New rows of the streams that a resumed run looks at to their end, ties at the greatest
        key among them.
        """
        orders, ties = [], []
        for _ in range(rows):
            orders.append((self._new_id(), 1, self._amount(), self._note(), self._moment()))
            ties.append((self.chance.choice("ab"), self._moment()))
        self._insert("orders", orders)
        self._insert("ties", ties)

    def change_orders(self, rows: int) -> None:
        """Some orders change, and their key with them."""
        old = self.chance.sample(self.known.now["orders"], rows)
        new = [
            (row[0], row[1] + 1, self._amount(), self._note(), self._moment(later=True))
            for row in old
        ]
        changes = [(*row[1:], row[0]) for row in new]
        self.execute(
            "update orders set version = ?, amount = ?, note = ?, changed_at = ? where id = ?",
            changes,
        )
        kept = [row for row in self.known.now["orders"] if row not in set(old)]
        self._now("orders", [*kept, *new], new)

    def move_on(self, rows: int) -> None:
        """Everything changes, as it may between two good runs."""
        self.grow(rows)
        if self.known.now["orders"]:
            self.change_orders(min(rows, len(self.known.now["orders"])) // 2)
        self._insert("visits", [(self._new_id(), self._tick()) for _ in range(rows)])
        self._insert("customers", [(self._new_id(), self._note()) for _ in range(rows)])
        gone = self.chance.sample(self.known.now["customers"], rows // 3)
        self.execute("delete from customers where id = ?", [row[:1] for row in gone])
        self._now(
            "customers", [row for row in self.known.now["customers"] if row not in set(gone)], []
        )

    def _insert(self, table: str, rows: list[Row]) -> None:
        marks = ", ".join("?" * len(COLUMNS[table]))
        self.execute(f"insert into {table} values ({marks})", rows)
        self._now(table, [*self.known.now[table], *rows], rows)

    def _now(self, table: str, rows: list[Row], new: list[Row]) -> None:
        now = {**self.known.now, table: tuple(rows)}
        ever = {**self.known.ever, table: self.known.ever[table] + Counter(new)}
        self.known = replace(self.known, now=now, ever=ever)

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _amount(self) -> Decimal:
        return Decimal(self.chance.randrange(10**8)) / 100

    def _note(self) -> str:
        return self.chance.choice(["", 'l1\nl2 "é😀"', "plain"]) + str(self.chance.randrange(1000))

    def _tick(self) -> int:
        self._clock += self.chance.random() < 0.3
        return self._clock

    def _moment(self, *, later: bool = False) -> dt.datetime:
        """Never before an earlier one, and often the same."""
        self._clock += later or self.chance.random() < 0.3
        return BEGIN + self._clock * MICROSECOND


def sqlite_shop(path: Path, chance: random.Random) -> tuple[Shop, dict[str, Any]]:
    """A shop in a SQLite file, and the tap's config for it."""

    def execute(statement: str, rows: Iterable[Row]) -> None:
        with sqlite3.connect(path) as connection:
            connection.executemany(statement, [tuple(map(_as_sqlite, row)) for row in rows])
            connection.commit()
        connection.close()

    with sqlite3.connect(path) as connection:
        connection.executescript(CREATE)
    connection.close()
    return Shop(execute, chance), {"jdbc_url": f"jdbc:sqlite:{path}", "incremental_tables": SPECS}


def postgresql_shop(database: Any, chance: random.Random) -> tuple[Shop, dict[str, Any]]:
    """A shop in a PostgreSQL database, and the tap's config for it."""
    import psycopg

    def execute(statement: str, rows: Iterable[Row]) -> None:
        with psycopg.connect(database.dsn) as connection, connection.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), list(rows))

    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(CREATE)
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    specs = [f"public.{spec}" for spec in SPECS]
    return Shop(execute, chance), {**login, "schemas": ["public"], "incremental_tables": specs}


def _as_sqlite(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    return str(value) if isinstance(value, Decimal) else value
