"""A database whose rows change at random, and what a target makes of the tap's messages: a model in
plain Python.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

JSON = dict[str, Any]
Row = tuple[Any, ...]
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text, body text, amount numeric(12,2));
CREATE TABLE items (order_id int, place int, what text, PRIMARY KEY (order_id, place));
CREATE TABLE events (id bigint, day date, what text, PRIMARY KEY (id,
  day)) PARTITION BY RANGE (day);
CREATE TABLE events_2025 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE events_2026 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
ALTER TABLE orders ALTER body SET STORAGE EXTERNAL;
CREATE TABLE changed (number bigserial PRIMARY KEY, records int);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO changed (records) VALUES (CASE WHEN TG_OP = 'UPDATE' AND TG_ARGV[0] IS NOT NULL
    AND to_jsonb(OLD) ->> TG_ARGV[0] <> to_jsonb(NEW) ->> TG_ARGV[0] THEN 2 ELSE 1 END);
  RETURN NULL;
END $$;
CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION
  note_change('id');
CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION
  note_change();
CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION
  note_change();
"""
KEYS = {"orders": ["id"], "items": ["order_id", "place"], "events": ["id", "day"]}
COLUMNS = {
    "orders": ["id", "note", "body", "amount"],
    "items": ["order_id", "place", "what"],
    "events": ["id", "day", "what"],
}


@dataclass
class Writers:
    """All writers to the database."""

    dsn: str
    chance: random.Random
    truncates: bool = True
    open: list[psycopg.Connection] = field(default_factory=list)

    def statement(self, connection: psycopg.Connection) -> None:
        chance, number = self.chance, self.chance.randrange(25)
        text, big = f"{chance.random()} \\ \" '' ü\n", str(chance.random()) * 300
        day = f"202{chance.choice('56')}-0{chance.randrange(1, 4)}-01"
        choices: list[tuple[str, tuple[Any, ...]]] = [
            (
                "INSERT INTO orders VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET note = "
                "excluded.note",
                (number, text, big, number / 4),
            ),
            ("UPDATE orders SET note = %s, amount = amount + 1 WHERE id = %s", (text, number)),
            ("UPDATE orders SET body = %s WHERE id = %s", (big, number)),
            ("DELETE FROM orders WHERE id = %s", (number,)),
            (
                "UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE "
                "id = %s)",
                (number + 25, number, number + 25),
            ),
            (
                "INSERT INTO items SELECT %s, i, %s FROM generate_series(1, 5) i ON CONFLICT DO "
                "NOTHING",
                (number, text),
            ),
            ("UPDATE items SET what = %s WHERE order_id = %s", (text, number)),
            ("DELETE FROM items WHERE order_id = %s AND place > 3", (number,)),
            (
                "INSERT INTO events VALUES (%s, %s, %s) ON CONFLICT (id, day) DO UPDATE SET what = "
                "excluded.what",
                (number, day, text),
            ),
            ("DELETE FROM events WHERE id = %s", (number,)),
        ]
        if self.truncates and chance.random() < 0.02:
            connection.execute(f"TRUNCATE {chance.choice(list(KEYS))}")
        else:
            connection.execute(*chance.choice(choices))

    def transaction(self, connection: psycopg.Connection) -> None:
        """A transaction that is committed or rolled back, with savepoints; it fails where it would
        wait for an open one.
        """
        with suppress(psycopg.errors.LockNotAvailable), connection.transaction() as outer:
            for _ in range(self.chance.randrange(1, 6)):
                with connection.transaction() as inner:
                    self.statement(connection)
                    if self.chance.random() < 0.15:
                        raise psycopg.Rollback(inner)
            if self.chance.random() < 0.15:
                raise psycopg.Rollback(outer)

    def write(self, transactions: int) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '50ms'")
            for _ in range(transactions):
                self.transaction(connection)
        if self.chance.random() < 0.4:
            self.leave_open()
        if self.open and self.chance.random() < 0.5:
            self.end(self.open.pop(0))

    def leave_open(self) -> None:
        """A transaction that continues over several runs."""
        connection = psycopg.connect(self.dsn)
        connection.execute("SET lock_timeout = '50ms'")
        try:
            self.statement(connection)
            self.statement(connection)
        except psycopg.errors.LockNotAvailable:
            connection.close()
        else:
            self.open.append(connection)

    def end(self, connection: psycopg.Connection) -> None:
        if self.chance.random() < 0.7:
            connection.commit()
        connection.close()

    def close(self) -> None:
        for connection in self.open:
            connection.close()


@dataclass
class Lake:
    """Tables of current rows, and all that ever came, as a target keeps them: mistakes of the tap
    show here.
    """

    rows: dict[str, dict[Row, JSON]] = field(default_factory=lambda: {name: {} for name in KEYS})
    history: list[JSON] = field(default_factory=list)

    def take(self, messages: list[JSON]) -> None:
        """The messages of runs that are committed together."""
        for message in messages:
            if message["type"] == "ACTIVATE_VERSION":
                self._truncate(message)
            elif message["type"] == "SCHEMA" and message["schema"]["x-extent"] == "full":
                self.rows[table_of(message)].clear()
            elif message["type"] == "RECORD":
                self._change(message)

    def _truncate(self, message: JSON) -> None:
        rows = self.rows[table_of(message)]
        for key in [key for key, row in rows.items() if row.get("version", 0) < message["version"]]:
            del rows[key]

    def _change(self, message: JSON) -> None:
        table, record = table_of(message), message["record"]
        key = tuple(record[name] for name in KEYS[table])
        self.history.append(message)
        if record.get("_sdc_deleted_at") is not None:
            self.rows[table].pop(key, None)
            return
        for name in json.loads(record.get("_sdc_unchanged") or "[]"):
            assert name not in record
            record = {**record, name: self.rows[table][key][name]}
        self.rows[table][key] = {**record, "version": message.get("version", 0)}

    def current(self, table: str) -> Counter[Row]:
        return Counter(
            tuple(row[name] for name in COLUMNS[table]) for row in self.rows[table].values()
        )


def table_of(message: JSON) -> str:
    return str(message["stream"]).removeprefix("public-")


def source_rows(connection: psycopg.Connection, table: str) -> Counter[Row]:
    """The rows as JSON has them."""
    shown = {"amount": "CAST(amount AS double precision)", "day": "CAST(day AS text)"}
    columns = ", ".join(shown.get(name, name) for name in COLUMNS[table])
    return Counter(connection.execute(f"SELECT {columns} FROM {table}").fetchall())
