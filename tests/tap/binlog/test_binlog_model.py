"""Random transactions, deaths of the tap at any STATE, and budgets: the lake is the source, each
change came once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from servers.mariadb import MariaDB
from tap.binlog.piped import LOGGED, committed, piped, run_script
from tap.dying import Pipe
from tap_spark_jdbc.binlog import dump

JSON = dict[str, Any]
KEYS = {"orders": ["id"], "items": ["order_id", "place"]}
COLUMNS = {"orders": ["id", "note", "body", "amount"], "items": ["order_id", "place", "what"]}
TABLES = """
create table orders (id int primary key, note varchar(60), body text,
  amount decimal(12,2)) character set utf8mb4;
create table items (order_id int, place varchar(5), what text, primary key (order_id,
  place)) character set latin1;
create table changed (number bigint auto_increment primary key, records int);
create trigger o1 after insert on orders for each row insert into changed (records) values (1);
create trigger o2 after update on orders for each row
  insert into changed (records) values (if(old.id <> new.id, 2,
    if(old.note <=> new.note and old.body <=> new.body and old.amount <=> new.amount, 0, 1)));
create trigger o3 after delete on orders for each row insert into changed (records) values (1);
create trigger i1 after insert on items for each row insert into changed (records) values (1);
create trigger i2 after update on items for each row
  insert into changed (records) values (if(old.what <=> new.what, 0, 1));
create trigger i3 after delete on items for each row insert into changed (records) values (1)
"""


@dataclass
class Writers:
    """All writers to the database; one transaction may stay open over several runs."""

    connect: Any
    chance: random.Random
    open: list[pymysql.Connection] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    numbers: int = 0

    def statement(self, cursor: pymysql.cursors.Cursor) -> None:
        chance, number = self.chance, self.chance.randrange(25)
        text = f"{chance.random()} \\ \" ' ü\n"
        choices: list[tuple[str, tuple[Any, ...]]] = [
            (
                "insert into orders values (%s, %s, %s, %s) on duplicate key update note = "
                "values(note)",
                (number, text, text * 20, number / 4),
            ),
            ("replace into orders values (%s, %s, null, 1)", (number, text)),
            ("update orders set note = %s, amount = amount + 1 where id = %s", (text, number)),
            ("delete from orders where id = %s", (number,)),
            (
                "update orders set id = %s where id = %s and not exists (select * from (select id "
                "from orders) o where o.id = %s)",
                (number + 25, number, number + 25),
            ),
            (
                "insert ignore into items values (%s, 'a', %s), (%s, 'b', %s), (%s, 'ü', null)",
                (number, text, number, text, number),
            ),
            ("update items set what = %s where order_id = %s", (text, number)),
            ("delete from items where order_id = %s and place > 'a'", (number,)),
        ]
        cursor.execute(*chance.choice(choices))

    def transaction(self, connection: pymysql.Connection) -> None:
        """A transaction that is committed or rolled back, with savepoints; it fails where it would
        wait for an open one.
        """
        try:
            with connection.cursor() as cursor:
                for _ in range(self.chance.randrange(1, 6)):
                    cursor.execute("savepoint s")
                    self.statement(cursor)
                    if self.chance.random() < 0.15:
                        cursor.execute("rollback to s")
            connection.rollback() if self.chance.random() < 0.15 else connection.commit()
        except pymysql.MySQLError:
            connection.rollback()

    def write(self, transactions: int) -> None:
        with self.connect() as connection:
            with connection.cursor() as cursor:
                cursor.execute("set innodb_lock_wait_timeout = 1")
            for _ in range(transactions):
                self.transaction(connection)
        for connection in self.open:
            with suppress(pymysql.MySQLError):
                connection.commit() if self.chance.random() < 0.7 else connection.rollback()
            connection.close()
        self.open.clear()

    def leave_open(self) -> None:
        """A transaction that lasts over a run."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("set innodb_lock_wait_timeout = 1")
                self.statement(cursor)
                self.statement(cursor)
            self.open.append(connection)
        except pymysql.MySQLError:
            connection.close()


@dataclass
class Lake:
    """Tables of current rows, and how many records ever came from the log."""

    rows: dict[str, dict[tuple[Any, ...], JSON]] = field(
        default_factory=lambda: {name: {} for name in KEYS}
    )
    changes: int = 0
    places: list[int] = field(default_factory=list)

    def take(self, messages: list[JSON]) -> None:
        for message in messages:
            if message["type"] != "RECORD":
                continue
            table, record = message["stream"].split("-")[1], message["record"]
            key = tuple(record[name] for name in KEYS[table])
            if "_sdc_lsn" in record:
                self.changes += 1
                self.places.append(record["_sdc_lsn"])
            if record.get("_sdc_deleted_at"):
                self.rows[table].pop(key, None)
            else:
                self.rows[table][key] = record

    def current(self, table: str) -> Counter[tuple[Any, ...]]:
        return Counter(
            tuple(row[name] for name in COLUMNS[table]) for row in self.rows[table].values()
        )


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Several batches, and so several STATEs, of few changes."""
    monkeypatch.setattr(dump, "CHUNK_BYTES", 700)
    monkeypatch.setattr(dump, "BATCH_BYTES", 2000)
    yield


@pytest.mark.parametrize(("seed", "budget"), [(1, None), (2, 12)])
def test_lake_equals_source_after_random_changes(
    server: MariaDB, tmp_path: Path, small_batches: None, seed: int, budget: int | None
) -> None:
    chance, lake = random.Random(seed), Lake()
    settings: JSON = {"tables": list(KEYS), **({} if budget is None else {"max_run_rows": budget})}
    with piped(server, tmp_path, TABLES, **settings) as (pipe, cursor):
        database = server.database(pipe.config["schemas"][0])
        writers = Writers(database.connect, chance)
        writers.write(20)
        before = changed(cursor)
        while not commit(pipe, lake):
            pass
        assert_same(lake, cursor)
        for _ in range(4):
            writers.write(chance.randrange(15))
            if chance.random() < 0.5:
                writers.leave_open()
            if chance.random() < 0.5:
                pipe.dies(lake.take, chance, writers.write)
            if chance.random() < 0.3:
                cursor.execute("flush binary logs")
            while not commit(pipe, lake):
                pass
            assert_same(lake, cursor)
        writers.write(0)
        while not commit(pipe, lake):
            pass
        assert_same(lake, cursor)
        assert lake.changes == changed(cursor) - before
        assert lake.places == sorted(lake.places)


@pytest.mark.parametrize(
    ("server", "locks"),
    [("mariadb", True), ("mariadb", False), ("mysql", False)],
    indirect=["server"],
)
def test_first_load_beside_writers(server: MariaDB, tmp_path: Path, locks: bool) -> None:
    """Over several connections at one place, or over one without the right to lock: each change
    comes once.
    """
    script = """
    create table orders (id int primary key, note varchar(60));
    create table visits (number bigint auto_increment primary key, who int);
    insert into visits (who)
      with recursive s(n) as (select 1 union all select n + 1 from s where n < 900) select n from s
    """
    settings = {"tables": ["orders", "visits"], "n_jobs": 4, "slice_rows": 100}
    with piped(server, tmp_path, script, **settings) as (pipe, cursor):
        name = pipe.config["schemas"][0]
        user = f"reader_{name}"
        run_script(
            cursor,
            f"create user {user} identified by 'secret';\ngrant select on {name}.* to {user};\n"
            f"grant replication slave, replication client on *.* to {user}",
        )
        if locks:
            cursor.execute(f"grant lock tables on {name}.* to {user}")
        pipe.config.update(user=user, password="secret")
        pipe.config["stream_options"] = {"*": {**LOGGED["*"], "load_method": "append-only"}}
        over, versions = threading.Event(), Counter[str]()

        def write(number: int) -> None:
            with server.database(name).connect() as connection, connection.cursor() as writer:
                # So few that the tap overtakes them.
                for version in range(1, 1500):
                    if over.is_set():
                        return
                    key = number * 1000 + version % 7
                    writer.execute(
                        "replace into orders values (%s, %s)", (key, f"{number} {version}")
                    )
                    writer.execute("insert into visits (who) values (%s)", (-number,))

        with ThreadPoolExecutor() as threads:
            writing = [threads.submit(write, number) for number in range(1, 4)]
            try:
                sent = [committed(pipe), committed(pipe)]
            finally:
                over.set()
            for each in writing:
                each.result()
        sent.append(committed(pipe))
        assert not committed(pipe).rows
        assert all(
            "_sdc_lsn" in each["record"] for each in sent[1].messages if each["type"] == "RECORD"
        )
        visits = sum((each.values(f"{name}-visits", "number") for each in sent), Counter())
        cursor.execute("select number from visits")
        assert visits == Counter(number for (number,) in cursor.fetchall())
        orders: JSON = {}
        for each in (
            each for run in sent for each in run.messages if each.get("stream") == f"{name}-orders"
        ):
            if each["type"] == "RECORD":
                record = each["record"]
                orders.pop(record["id"], None)
                if not record.get("_sdc_deleted_at"):
                    versions[record["note"]] += 1
                    orders[record["id"]] = record["note"]
        cursor.execute("select id, note from orders")
        assert orders == dict(cursor.fetchall())
        assert max(versions.values()) == 1


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_first_load_by_spark_beside_writers(server: MariaDB, tmp_path: Path) -> None:
    """Slices are read at different moments, and what changes meanwhile comes once more: the lake is
    the source.
    """
    with piped(
        server, tmp_path, TABLES, tables=list(KEYS), engine="spark", slice_rows=15, n_jobs=2
    ) as (pipe, cursor):
        writers = Writers(server.database(pipe.config["schemas"][0]).connect, random.Random(7))
        writers.write(40)
        over = threading.Event()

        def write() -> None:
            while not over.is_set():
                writers.write(3)

        lake = Lake()
        with ThreadPoolExecutor() as threads:
            writing = threads.submit(write)
            try:
                commit(pipe, lake)
            finally:
                over.set()
            writing.result()
        commit(pipe, lake)
        assert_same(lake, cursor)


def commit(pipe: Pipe, lake: Lake) -> bool:
    """A run that is committed; whether it read all that there was."""
    sent = pipe.run()
    lake.take(sent.messages)
    pipe.save(sent.final)
    most = pipe.config.get("max_run_rows")
    count = sum(each["type"] == "RECORD" for each in sent.messages)
    return most is None or (count < most and len(sent.final["bookmarks"]) == len(KEYS))


def assert_same(lake: Lake, cursor: pymysql.cursors.Cursor) -> None:
    for table, names in COLUMNS.items():
        shown = ["cast(amount as double)" if name == "amount" else name for name in names]
        cursor.execute(f"select {', '.join(shown)} from {table}")
        assert lake.current(table) == Counter(cursor.fetchall())


def changed(cursor: pymysql.cursors.Cursor) -> int:
    cursor.execute("select coalesce(sum(records), 0) from changed")
    return int(cursor.fetchall()[0][0])
