"""The source of every case: a real PostgreSQL, and in it a table of each shape and size that is
asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sources.shapes import columns

ROOT = Path(__file__).resolve().parents[2]
DATABASE = "bench"


@dataclass(frozen=True)
class Server:
    """Where the database server of this run listens; `pid` is its first process."""

    host: str
    port: int
    user: str
    password: str
    pid: int = 0
    kind: str = "postgresql"

    @property
    def dsn(self) -> str:
        scheme = "mysql" if self.kind == "mariadb" else self.kind
        return f"{scheme}://{self.user}:{self.password}@{self.host}:{self.port}/{DATABASE}"

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:{self.kind}://{self.host}:{self.port}/{DATABASE}"

    def cpu_seconds(self) -> float:
        """CPU seconds of the server so far: its first process, those that it has reaped, those that
        run.
        """
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat.parent.name) == self.pid:
                ticks += sum(int(field) for field in fields[11:15])
            elif int(fields[1]) == self.pid:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Source:
    """A table to copy, or all of a schema (`*`).

    Attributes:
        checksum: The sum of ids: lost and repeated rows don't cancel.
        bytes: Of the rows as the server keeps them, long texts compressed; 0: not asked.
        first_rows: What it had before it grew.
    """

    server: Server
    schema: str
    rows: int
    checksum: int
    table: str = "orders"
    bytes: int = 0
    first_rows: int = 0


@contextmanager
def started(*module: str) -> Iterator[dict[str, Any]]:
    """Runs one of the tests' servers, and gives what it says of itself; it ends at the end."""
    # It ends with its standard input, so also when this process is killed.
    command = [sys.executable, "-m", *module, "--follow-stdin"]
    process = subprocess.Popen(
        command, cwd=ROOT / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield json.loads(process.stdout.readline() or sys.exit(f"{module[0]} did not start"))
    finally:
        process.stdin.close()
        process.wait(60)


@contextmanager
def postgresql(data: Path) -> Iterator[Server]:
    """Starts the server in folder `data` and an empty database in it; stops it at the end."""
    with started("servers.postgresql", "--data", str(data)) as place:
        known = {name: place[name] for name in ("host", "port", "user", "password")}
        with psycopg.connect(**{**known, "dbname": "postgres"}, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            backend = Path(f"/proc/{row[0]}/stat").read_text().rpartition(")")[2].split()
        yield Server(**known, pid=int(backend[1]))


def table_of(server: Server, rows: int, shape: str = "orders", *, grown: bool = False) -> Source:
    """The table of `rows` rows, made with its indexes where it is missing, vacuumed and read once.

    Args:
        server: Where it is.
        rows: How many it begins with.
        shape: Of its columns.
        grown: It gets, or keeps, 1 % more; else what it has got is taken away.
    """
    table = f"{shape}_{rows}.orders"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA {shape}_{rows}")
            connection.execute(f"CREATE TABLE {table} AS {made(shape, 1, rows)}")
            connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
            connection.execute(f"ALTER TABLE {table} ALTER updated_at SET NOT NULL")
            connection.execute(f"CREATE INDEX ON {table} (updated_at)")
            connection.execute(f"VACUUM (ANALYZE) {table}")
        last = int(connection.execute(f"SELECT max(id) FROM {table}").fetchall()[0][0])
        if grown and last == rows:
            connection.execute(f"INSERT INTO {table} {made(shape, rows + 1, rows + rows // 100)}")
        elif not grown and last > rows:
            connection.execute(f"DELETE FROM {table} WHERE id > {rows}")
            connection.execute(f"VACUUM (ANALYZE) {table}")
        asked = f"SELECT count(*), sum(id)::bigint, pg_table_size('{table}')::bigint FROM {table}"
        count, checksum, size = connection.execute(asked).fetchall()[0]
    return Source(server, f"{shape}_{rows}", count, checksum, bytes=size, first_rows=rows)


def made(shape: str, first: int, last: int) -> str:
    """A query that makes the rows with these ids."""
    return f"SELECT {columns(shape)} FROM generate_series({first}::bigint, {last}) AS id"


def tables_of(server: Server, tables: int, rows: int) -> Source:
    """Makes tables of `rows` rows each in a schema of their own, each like `table_of`'s; existing
    ones are reused.
    """
    schema = f"tables_{tables}_{rows}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace(%s)", [schema]).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA {schema}")
            for number in range(tables):
                name, first = f"{schema}.t{number:04d}", number * rows
                connection.execute(
                    f"CREATE TABLE {name} AS {made('orders', first + 1, first + rows)}"
                )
                connection.execute(
                    f"ALTER TABLE {name} ADD PRIMARY KEY (id), ALTER updated_at SET NOT NULL"
                )
                connection.execute(f"CREATE INDEX ON {name} (updated_at)")
                connection.execute(f"VACUUM (ANALYZE) {name}")
    every = tables * rows
    return Source(server, schema, every, every * (every + 1) // 2, "*")
