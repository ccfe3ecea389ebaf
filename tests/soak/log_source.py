"""A database for `log_changes`: its writers, and what each of its rows went through."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import psycopg

Row = tuple[Any, ...]
# So large a value is not repeated by an update that leaves it as it was.
BIG = 6000
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text, body text, amount numeric(12,2),
  at timestamptz);
CREATE TABLE items (order_id int, place int, what text, body text, PRIMARY KEY (order_id, place));
CREATE TABLE events (id bigint, day date, what text, PRIMARY KEY (id,
  day)) PARTITION BY RANGE (day);
CREATE TABLE events_2025 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE events_2026 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
ALTER TABLE orders ALTER body SET STORAGE EXTERNAL;
ALTER TABLE items ALTER body SET STORAGE EXTERNAL;
CREATE TABLE changed (number bigserial PRIMARY KEY, name text, key text[], what text);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE
  former text[] := ARRAY(SELECT to_jsonb(OLD) ->> each FROM unnest(TG_ARGV[2:]) each);
  present text[] := ARRAY(SELECT to_jsonb(NEW) ->> each FROM unnest(TG_ARGV[2:]) each);
BEGIN
  IF TG_OP = 'DELETE' OR TG_OP = 'UPDATE' AND former <> present THEN
    INSERT INTO changed (name, key, what) VALUES (TG_ARGV[0], former, 'deleted');
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO changed (name, key, what) VALUES (TG_ARGV[0], present,
      to_jsonb(NEW) ->> TG_ARGV[1]);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON orders
  FOR EACH ROW EXECUTE FUNCTION note_change('orders', 'note', 'id');
CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON items
  FOR EACH ROW EXECUTE FUNCTION note_change('items', 'what', 'order_id', 'place');
CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON events
  FOR EACH ROW EXECUTE FUNCTION note_change('events', 'what', 'id', 'day');
"""
KEYS = {"orders": ["id"], "items": ["order_id", "place"], "events": ["id", "day"]}
# The column that each change's note names a row's version by.
NOTES = {"orders": "note", "items": "what", "events": "what"}


class Source:
    """The database and its writers."""

    def __init__(self, dsn: str, chance: random.Random) -> None:
        self.dsn = dsn
        self.chance = chance
        self.columns = {
            "orders": ["id", "note", "body", "amount", "at"],
            "items": ["order_id", "place", "what", "body"],
            "events": ["id", "day", "what"],
        }
        self.open: list[psycopg.Connection] = []
        self.prepared: list[str] = []
        self.read = psycopg.connect(dsn, autocommit=True)
        self.read.execute(TABLES)
        self.extra = 0

    def statement(self, connection: psycopg.Connection) -> None:
        chance, number = self.chance, self.chance.randrange(60)
        text = f"{chance.random()} \\ \" '' ü\n"
        big = str(chance.random()) * (BIG // 10)
        day = f"202{chance.choice('56')}-0{chance.randrange(1, 9)}-01"
        choices = [
            ("INSERT INTO orders VALUES (%s, %s, %s, %s, now()) ON CONFLICT (id) DO UPDATE SET "
                "note = excluded.note",
             (number, text, big, chance.randrange(10**6) / 100)),
            ("UPDATE orders SET note = %s, amount = amount + 1 WHERE id = %s", (text, number)),
            ("UPDATE orders SET body = %s, note = %s WHERE id = %s", (big, text, number)),
            ("DELETE FROM orders WHERE id = %s", (number,)),
            ("UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE id "
                "= %s)",
             (number + 60, number, number + 60)),
            ("INSERT INTO items SELECT %s, i, %s, %s FROM generate_series(1, 5) i ON CONFLICT DO "
                "NOTHING",
             (number, text, big)),
            ("UPDATE items SET what = %s WHERE order_id = %s", (text, number)),
            ("DELETE FROM items WHERE order_id = %s AND place > 3", (number,)),
            ("INSERT INTO events VALUES (%s, %s, %s) ON CONFLICT (id, day) DO UPDATE SET what = "
                "excluded.what",
             (number, day, text)),
            ("UPDATE events SET day = '2026-12-24' WHERE id = %s AND NOT EXISTS "
             "(SELECT FROM events WHERE id = %s AND day = '2026-12-24')", (number, number)),
            ("DELETE FROM events WHERE id = %s", (number,)),
        ]  # fmt: skip
        if chance.random() < 0.01:
            connection.execute(
                f"TRUNCATE {', '.join(chance.sample(list(KEYS), chance.randrange(1, 3)))}"
            )
            return
        statement, values = chance.choice(choices)
        connection.execute(statement, values)

    def transaction(self, connection: psycopg.Connection) -> None:
        """A transaction that is committed, rolled back, prepared or left open, with savepoints."""
        with suppress(psycopg.Error), connection.transaction() as outer:
            for _ in range(self.chance.randrange(1, 6)):
                if self.chance.random() < 0.2:
                    with connection.transaction() as inner:
                        self.statement(connection)
                        if self.chance.random() < 0.5:
                            raise psycopg.Rollback(inner)
                else:
                    self.statement(connection)
            if self.chance.random() < 0.02:  # more than the server keeps in memory
                connection.execute(
                    "INSERT INTO items SELECT i, 0, 'large', repeat('y', 600) FROM "
                    "generate_series(1000, 1600) i "
                    "ON CONFLICT (order_id, place) DO UPDATE SET what = random()"
                )
            if self.chance.random() < 0.15:
                raise psycopg.Rollback(outer)

    def write(self, transactions: int) -> None:
        with self._connected(autocommit=True) as connection:
            for _ in range(transactions):
                self.transaction(connection)
            if self.chance.random() < 0.2:
                self.alter(connection)
        if self.chance.random() < 0.5:
            self.leave_open()
        if self.open and self.chance.random() < 0.5:
            connection = self.open.pop(0)
            connection.rollback() if self.chance.random() < 0.3 else connection.commit()
            connection.close()
        if self.prepared and self.chance.random() < 0.4:
            self.end_prepared("ROLLBACK" if self.chance.random() < 0.3 else "COMMIT")

    def alter(self, connection: psycopg.Connection) -> None:
        """A column comes, or the newest one goes."""
        columns = self.columns["orders"]
        with suppress(psycopg.Error):
            if len(columns) > 7:
                connection.execute(f"ALTER TABLE orders DROP COLUMN {columns[-1]}")
                columns.pop()
            else:
                connection.execute(f"ALTER TABLE orders ADD COLUMN extra{self.extra} int")
                columns.append(f"extra{self.extra}")
                self.extra += 1

    def leave_open(self) -> None:
        """A transaction that continues over several runs, or waits for its end as a prepared
        one.
        """
        connection = self._connected()
        with suppress(psycopg.Error):
            self.statement(connection)
            self.statement(connection)
            if self.chance.random() < 0.4:
                name = f"soak{self.chance.randrange(10**9)}"
                connection.execute(f"PREPARE TRANSACTION '{name}'")
                self.prepared.append(name)
            else:
                self.open.append(connection)
                return
        connection.close()

    def end_prepared(self, how: str) -> None:
        self.read.execute(f"{how} PREPARED '{self.prepared.pop(0)}'")

    def end_all(self) -> None:
        """Nothing is open any more."""
        for connection in self.open:
            connection.commit()
            connection.close()
        self.open.clear()
        while self.prepared:
            self.end_prepared("COMMIT")

    def rows(self, table: str) -> Counter[Row]:
        return Counter(
            self.read.execute(f"SELECT {', '.join(self.columns[table])} FROM {table}").fetchall()
        )

    def last_change(self) -> int:
        return int(
            self.read.execute("SELECT coalesce(max(number), 0) FROM changed").fetchall()[0][0]
        )

    def changes(self, table: str, after: int) -> dict[Row, list[str]]:
        """What was committed to each key behind a change, in its order."""
        found: dict[Row, list[str]] = defaultdict(list)
        question = "SELECT key, what FROM changed WHERE name = %s AND number > %s ORDER BY number"
        for key, what in self.read.execute(question, (table, after)):
            found[tuple(key)].append(what)
        return found

    def _connected(self, *, autocommit: bool = False) -> psycopg.Connection:
        connection = psycopg.connect(self.dsn, autocommit=autocommit)
        connection.execute("SET lock_timeout = '300ms'")
        connection.commit()
        return connection
