"""Random transactions against LOG_BASED streams, with tap and target killed at any moment: by hand, not in the suite.

`python tests/storms/log_changes.py --rounds 30 --format delta --method append-dedup` starts a server of its own. After
each good run the tables must be the source's, and a history must hold every change once, in order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers.postgresql import PostgreSQL, running

BIN = Path(sys.executable).parent
Row = tuple[Any, ...]
BIG = 6000

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text, body text, amount numeric(12,2), at timestamptz);
CREATE TABLE items (order_id int, place int, what text, body text, PRIMARY KEY (order_id, place));
CREATE TABLE events (id bigint, day date, what text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE events_2025 PARTITION OF events FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE events_2026 PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
ALTER TABLE orders ALTER body SET STORAGE EXTERNAL;
ALTER TABLE items ALTER body SET STORAGE EXTERNAL;
"""
COLUMNS = {
    "orders": ["id", "note", "body", "amount", "at"],
    "items": ["order_id", "place", "what", "body"],
    "events": ["id", "day", "what"],
}
KEYS = {"orders": 1, "items": 2, "events": 2}


class Source:
    """The database, and whoever writes to it."""

    def __init__(self, dsn: str, chance: random.Random) -> None:
        self.dsn = dsn
        self.chance = chance
        self.open: list[psycopg.Connection] = []
        self.read = psycopg.connect(dsn, autocommit=True)
        self.read.execute(TABLES)
        self.extra = 0

    def statement(self, connection: psycopg.Connection) -> None:
        chance, number = self.chance, self.chance.randrange(60)
        text = f"{chance.random()} \\ \" '' ü\n"
        big = str(chance.random()) * (BIG // 10)
        day = f"202{chance.choice('56')}-0{chance.randrange(1, 9)}-01"
        choices = [
            ("INSERT INTO orders VALUES (%s, %s, %s, %s, now()) ON CONFLICT (id) DO UPDATE SET note = excluded.note",
             (number, text, big, chance.randrange(10**6) / 100)),
            ("UPDATE orders SET note = %s, amount = amount + 1 WHERE id = %s", (text, number)),
            ("UPDATE orders SET body = %s WHERE id = %s", (big, number)),
            ("DELETE FROM orders WHERE id = %s", (number,)),
            ("UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE id = %s)",
             (number + 60, number, number + 60)),
            ("INSERT INTO items SELECT %s, i, %s, %s FROM generate_series(1, 5) i ON CONFLICT DO NOTHING",
             (number, text, big)),
            ("UPDATE items SET what = %s WHERE order_id = %s", (text, number)),
            ("DELETE FROM items WHERE order_id = %s AND place > 3", (number,)),
            ("INSERT INTO events VALUES (%s, %s, %s) ON CONFLICT (id, day) DO UPDATE SET what = excluded.what",
             (number, day, text)),
            ("UPDATE events SET day = '2026-12-24' WHERE id = %s AND NOT EXISTS "
             "(SELECT FROM events WHERE id = %s AND day = '2026-12-24')", (number, number)),
            ("DELETE FROM events WHERE id = %s", (number,)),
        ]  # fmt: skip
        if chance.random() < 0.01:
            connection.execute(f"TRUNCATE {chance.choice(list(COLUMNS))}")
            return
        statement, values = chance.choice(choices)
        connection.execute(statement, values)

    def transaction(self, connection: psycopg.Connection) -> None:
        """A transaction that is committed, rolled back, or prepared; with savepoints."""
        with suppress(psycopg.Error):
            with connection.transaction() as outer:
                for _ in range(self.chance.randrange(1, 6)):
                    if self.chance.random() < 0.2:
                        with connection.transaction() as inner:
                            self.statement(connection)
                            if self.chance.random() < 0.5:
                                raise psycopg.Rollback(inner)
                    else:
                        self.statement(connection)
                if self.chance.random() < 0.15:
                    raise psycopg.Rollback(outer)

    def write(self, transactions: int) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '300ms'")
            for _ in range(transactions):
                self.transaction(connection)
            if self.chance.random() < 0.15:
                with suppress(psycopg.Error):
                    self.extra += 1
                    connection.execute(f"ALTER TABLE orders ADD COLUMN extra{self.extra} int")
                    COLUMNS["orders"].append(f"extra{self.extra}")
        if self.chance.random() < 0.5:
            self.leave_open()
        if self.open and self.chance.random() < 0.5:
            connection = self.open.pop(0)
            connection.rollback() if self.chance.random() < 0.3 else connection.commit()
            connection.close()

    def leave_open(self) -> None:
        connection = psycopg.connect(self.dsn)
        connection.execute("SET lock_timeout = '300ms'")
        with suppress(psycopg.Error):
            self.statement(connection)
            self.statement(connection)
            self.open.append(connection)
            return
        connection.close()

    def rows(self, table: str) -> Counter[Row]:
        return Counter(self.read.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}").fetchall())


class Pipe:
    """The pipeline, in a folder of its own."""

    def __init__(self, folder: Path, source: PostgreSQL, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        database = source.database("storm")
        spark = {"master": "local[2]"}
        tap = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password, "spark": spark}
        tap |= {"schemas": ["public"], "tables": list(COLUMNS)}
        tap["stream_options"] = {"*": {"replication_method": "LOG_BASED"}}
        if options.batches:
            root = str(folder / "lake/.dataspoc/staging/batches")
            tap["batch_config"] = {"encoding": {"format": "parquet"}, "storage": {"root": root}}
        if options.rows:
            tap["max_run_rows"] = options.rows
        target = {"bucket": str(folder / "lake"), "pipeline": "storm", "spark": spark, "format": options.format}
        target |= {"hard_delete": options.hard}
        if options.method:
            target["stream_options"] = {"*": {"load_method": options.method}}
        (folder / "tap.json").write_text(json.dumps(tap))
        (folder / "target.json").write_text(json.dumps(target))

    def run(self, *flags: str, kill_after: float | None = None, victim: int = 0) -> bool:
        """Runs the pipe; with a time, one of its ends is killed then. Whether both ended well."""
        target_config = self.folder / "target.json"
        with (self.folder / "log.txt").open("ab") as log:
            log.write(f"--- {flags} {kill_after} {victim}\n".encode())
            log.flush()  # before the programs write theirs
            tap = subprocess.Popen(
                [BIN / "tap-spark-jdbc", "--config", self.folder / "tap.json", "--state-from", target_config, *flags],
                stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
            target = subprocess.Popen(
                [BIN / "target-spark-lake", "--config", target_config],
                stdin=tap.stdout, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            )  # fmt: skip
            assert tap.stdout is not None
            tap.stdout.close()
            if kill_after is not None:
                end = time.monotonic() + kill_after
                while time.monotonic() < end and target.poll() is None:
                    time.sleep(0.05)
                for each in ([tap], [target], [tap, target])[victim]:
                    with suppress(ProcessLookupError):
                        os.killpg(each.pid, signal.SIGKILL)
            codes = tap.wait(), target.wait()
        return codes == (0, 0)

    def table(self, name: str, suffix: str = "") -> pa.Table:
        """By their names files lie in the order in which they came."""
        path = self.folder / f"lake/raw/public-{name}{suffix}"
        if self.options.format == "delta":
            files = DeltaTable(path).file_uris()
        elif self.options.format == "iceberg":
            catalog = SqlCatalog("lake", uri=f"sqlite:///{self.folder}/lake/.dataspoc/catalog.db")
            scan = catalog.load_table(("raw", path.name)).scan()
            if not suffix:
                return scan.to_arrow()
            files = [each.file.file_path.removeprefix("file://") for each in scan.plan_files()]
        else:
            files = list(map(str, path.rglob("*.parquet")))
        if not files:  # the table was emptied
            return pa.table({"_sdc_lsn": pa.array([], pa.int64())} | {each: pa.array([]) for each in COLUMNS[name]})
        schema = pa.unify_schemas(map(pq.read_schema, files), promote_options="permissive")
        return ds.dataset(sorted(files), schema=schema, format="parquet").to_table()

    def rows(self, name: str) -> Counter[Row]:
        table = self.table(name)
        if "_sdc_deleted_at" in table.column_names:
            table = table.filter(pc.is_null(table.column("_sdc_deleted_at")))
        found = {each: table.column(each).to_pylist() for each in COLUMNS[name] if each in table.column_names}
        lacking = [each for each in COLUMNS[name] if each not in found]
        found |= dict.fromkeys(lacking, [None] * table.num_rows)
        return Counter(zip(*(found[each] for each in COLUMNS[name]), strict=True))

    def versions(self, name: str) -> Iterator[tuple[Row, ...]]:
        """Of each key in a history: the places of its versions, in the order of the table."""
        table = self.table(name, "__history")
        keys = [table.column(each).to_pylist() for each in COLUMNS[name][: KEYS[name]]]
        yield from zip(*keys, table.column("_sdc_lsn").to_pylist(), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--format", default="parquet", choices=["parquet", "delta", "iceberg"])
    parser.add_argument("--method", default="", choices=["", "upsert", "append-dedup"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print("seed", options.seed, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # the server may run as another account
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with running(Path(scratch) / "server") as facts:
            server = PostgreSQL(**facts)
            with psycopg.connect(server.database("postgres").dsn, autocommit=True) as connection:
                connection.execute("CREATE DATABASE storm")
            source = Source(server.database("storm").dsn, chance)
            source.write(30)
            for connection in source.open:  # a slot waits for them
                connection.close()
            source.open.clear()
            pipe = Pipe(folder, server, options)
            took = 25.0
            for number in range(options.rounds):
                for _ in range(chance.randrange(3)):
                    source.write(chance.randrange(10))
                    killed = chance.uniform(1, min(took, 30))
                    done = pipe.run(kill_after=killed, victim=chance.randrange(3))
                    print(f"round {number}: killed after {killed:.1f} s, {'done' if done else 'dead'}", flush=True)
                source.write(chance.randrange(40))
                began = time.monotonic()
                flags = ["--full"] if number and chance.random() < 0.1 else []
                if flags or not number:  # a slot is made, which waits for them
                    for connection in source.open:
                        connection.commit()
                    source.open.clear()
                runs = 1
                while True:
                    assert pipe.run(*flags), (folder / "log.txt").read_text()[-3000:]
                    state = json.loads((folder / "lake/.dataspoc/state/storm/state.json").read_text())
                    flags = []
                    if not options.rows or runs > 30 or _is_at_end(pipe):
                        break
                    runs += 1
                took = time.monotonic() - began
                for table in COLUMNS:
                    ours, theirs = pipe.rows(table), source.rows(table)
                    assert ours == theirs, (table, shown(ours - theirs), shown(theirs - ours), state)
                print(
                    f"round {number}: {took:.0f} s, {sum(map(len, map(source.rows, COLUMNS)))} rows agree", flush=True
                )
                if options.method == "append-dedup":
                    check_history(pipe)


def _is_at_end(pipe: Pipe) -> bool:
    told = (pipe.folder / "log.txt").read_text().rsplit("---", 1)[-1]
    return "the next run goes on there" not in told and "not begun in this run" not in told


def shown(rows: Counter[Row]) -> list[str]:
    return [" ".join(str(each)[:20] for each in row) for row in rows][:5]


def check_history(pipe: Pipe) -> None:
    """The versions of a key lie in the order of their commits."""
    for table in COLUMNS:
        last: dict[Row, int] = {}
        for *key, lsn in pipe.versions(table):
            if lsn is not None:
                assert last.get(tuple(key), 0) <= lsn, (table, key, lsn)
                last[tuple(key)] = lsn


if __name__ == "__main__":
    main()
