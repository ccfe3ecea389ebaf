"""A database of MariaDB or MySQL for `log_changes`: its writers, and what each of its rows went
through.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import pymysql

from servers.mariadb import MariaDatabase

Row = tuple[Any, ...]
# The server does not know the XA transaction: it changed nothing and ended with its session; or it
# was rolled back.
GONE = (1397, 1402)
KEYS = {"orders": ["id"], "items": ["order_id", "place"], "events": ["id", "day"]}
NOTES = {"orders": "note", "items": "what", "events": "what"}
TABLES = """
create table orders (id int primary key, note varchar(60), body mediumtext, amount decimal(12,2),
  at datetime(6))
  character set utf8mb4 |
create table items (order_id int, place int, what varchar(60), body text, primary key (order_id,
  place))
  character set latin1 |
create table events (id bigint, day date, what varchar(60), primary key (id,
  day)) character set utf16 |
create table changed (number bigint auto_increment primary key, name varchar(10), a varchar(20),
  b varchar(20),
  what varchar(60)) character set utf8mb4
"""
# The same value again is no change, and not in the log.
TRIGGERS = """
create trigger {t}1 after insert on {t} for each row
  insert into changed (name, a, b, what) values ('{t}', new.{a}, new.{b}, new.{what}) |
create trigger {t}3 after delete on {t} for each row
  insert into changed (name, a, b, what) values ('{t}', old.{a}, old.{b}, 'deleted') |
create trigger {t}2 after update on {t} for each row begin
  if old.{a} <> new.{a} or old.{b} <> new.{b} then
    insert into changed (name, a, b, what) values ('{t}', old.{a}, old.{b}, 'deleted');
  end if;
  if not ({same}) then
    insert into changed (name, a, b, what) values ('{t}', new.{a}, new.{b}, new.{what});
  end if;
end
"""


class BinlogSource:
    """The database and its writers, each in a time zone of its own."""

    def __init__(self, database: MariaDatabase, chance: random.Random) -> None:
        self.database, self.chance = database, chance
        self.columns = {
            "orders": ["id", "note", "body", "amount", "at"],
            "items": ["order_id", "place", "what", "body"],
            "events": ["id", "day", "what"],
        }
        self.open: list[pymysql.Connection] = []
        self.prepared: list[str] = []
        self.read = database.connect()
        self.read.autocommit(True)
        for each in TABLES.split("|"):
            self._rows(each)
        for table, names in self.columns.items():
            a, b = (*KEYS[table], KEYS[table][0])[:2]
            same = " and ".join(f"old.{name} <=> new.{name}" for name in names)
            script = TRIGGERS.format(t=table, a=a, b=b, what=NOTES[table], same=same)
            for each in script.split("|"):
                self._rows(each)
        self._rows("set global binlog_row_metadata = full")
        self.extra = 0

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Row]:
        with self.read.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def statement(self, cursor: pymysql.cursors.Cursor) -> None:
        chance, number = self.chance, self.chance.randrange(60)
        text = f"{chance.random()} \\ \" ' ü\n"
        big = str(chance.random()) * 600
        day = f"202{chance.choice('56')}-0{chance.randrange(1, 9)}-01"
        choices: list[tuple[str, tuple[Any, ...]]] = [
            ("insert into orders values (%s, %s, %s, %s, now(6)) on duplicate key update note = "
                "values(note)",
             (number, text, big, chance.randrange(10**6) / 100)),
            ("update orders set note = %s, amount = amount + 1 where id = %s", (text, number)),
            ("update orders set body = %s, note = %s where id = %s", (big, text, number)),
            ("delete from orders where id = %s", (number,)),
            ("update orders set id = %s where id = %s and not exists (select * from (select id "
                "from orders) o where o.id = %s)", (number + 60, number, number + 60)),
            ("insert ignore into items values (%s, 1, %s, %s), (%s, 2, %s, null), (%s, 5, %s, '')",
             (number, text, big, number, text, number, text)),
            ("update items set what = %s where order_id = %s", (text, number)),
            ("delete from items where order_id = %s and place > 3", (number,)),
            ("insert into events values (%s, %s, %s) on duplicate key update what = values(what)",
             (number, day, text)),
            ("delete from events where id = %s", (number,)),
        ]  # fmt: skip
        if chance.random() < 0.01:
            cursor.execute(f"truncate {chance.choice(list(KEYS))}")
            return
        cursor.execute(*chance.choice(choices))

    def transaction(self, connection: pymysql.Connection) -> None:
        """A transaction that is committed or rolled back, with savepoints, and now and then a large
        one.
        """
        try:
            with connection.cursor() as cursor:
                for _ in range(self.chance.randrange(1, 6)):
                    cursor.execute("savepoint s")
                    self.statement(cursor)
                    if self.chance.random() < 0.1:
                        with suppress(pymysql.MySQLError):  # DDL forgets it
                            cursor.execute("rollback to s")
                if self.chance.random() < 0.02:
                    many = ", ".join(
                        f"({n}, 0, 'large', repeat('y', 600))" for n in range(1000, 1600)
                    )
                    cursor.execute(
                        f"insert into items values {many} on duplicate key update what = rand()"
                    )
            connection.rollback() if self.chance.random() < 0.15 else connection.commit()
        except pymysql.MySQLError:
            connection.rollback()

    def write(self, transactions: int) -> None:
        with self._connected() as connection:
            for _ in range(transactions):
                self.transaction(connection)
            if self.chance.random() < 0.2:
                self.alter(connection)
            if self.chance.random() < 0.1:
                with connection.cursor() as cursor:
                    cursor.execute("flush binary logs")
        if self.chance.random() < 0.5:
            self.leave_open()
        if self.open and self.chance.random() < 0.5:
            connection = self.open.pop(0)
            with suppress(pymysql.MySQLError):
                connection.rollback() if self.chance.random() < 0.3 else connection.commit()
            connection.close()
        if self.prepared and self.chance.random() < 0.4:
            self.end_prepared("rollback" if self.chance.random() < 0.3 else "commit")

    def alter(self, connection: pymysql.Connection) -> None:
        """A column comes, also as the first one, or the newest one goes."""
        columns = self.columns["orders"]
        with suppress(pymysql.MySQLError), connection.cursor() as cursor:
            if len(columns) > 7:
                cursor.execute(f"alter table orders drop column {columns[-1]}")
                columns.pop()
            else:
                place = self.chance.choice(["", " first"])
                cursor.execute(f"alter table orders add column extra{self.extra} int{place}")
                columns.append(f"extra{self.extra}")
                self.extra += 1

    def leave_open(self) -> None:
        """A transaction that lasts over runs, or waits for its end as a prepared one."""
        connection = self._connected()
        name = f"soak{self.chance.randrange(10**9)}"
        try:
            with connection.cursor() as cursor:
                prepares = self.chance.random() < 0.4
                cursor.execute(f"xa start '{name}'" if prepares else "begin")
                for _ in range(2):
                    self.statement(cursor)
                if prepares:
                    cursor.execute(f"xa end '{name}'")
                    cursor.execute(f"xa prepare '{name}'")
                    self.prepared.append(name)
                    connection.close()
                    return
        except pymysql.MySQLError:
            connection.close()
            return
        self.open.append(connection)

    def end_prepared(self, how: str) -> None:
        try:
            self._rows(f"xa {how} '{self.prepared.pop(0)}'")
        except pymysql.MySQLError as error:
            if error.args[0] not in GONE:
                raise

    def end_all(self) -> None:
        """Nothing is open any more."""
        for connection in self.open:
            with suppress(pymysql.MySQLError):
                connection.commit()
            connection.close()
        self.open.clear()
        while self.prepared:
            self.end_prepared("commit")

    def rows(self, table: str) -> Counter[Row]:
        return Counter(self._rows(f"select {', '.join(self.columns[table])} from {table}"))

    def last_change(self) -> int:
        return int(self._rows("select coalesce(max(number), 0) from changed")[0][0])

    def changes(self, table: str, after: int) -> dict[Row, list[str]]:
        """What was committed to each key behind a change, in its order."""
        found: dict[Row, list[str]] = defaultdict(list)
        question = "select a, b, what from changed where name = %s and number > %s order by number"
        for *key, what in self._rows(question, (table, after)):
            found[tuple(key[: len(KEYS[table])])].append(what)
        return found

    def _connected(self) -> pymysql.Connection:
        connection = self.database.connect()
        with connection.cursor() as cursor:
            cursor.execute("set innodb_lock_wait_timeout = 1, lock_wait_timeout = 1")
            cursor.execute(
                f"set time_zone = '{self.chance.choice(['+00:00', '-03:30', '+13:00'])}'"
            )
        connection.commit()
        return connection
