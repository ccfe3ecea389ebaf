"""The source of every case: a real PostgreSQL, and in it a table of 12 mixed columns in each size asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parent.parent
DATABASE = "bench"
COLUMNS = """
    id::bigint                                                             AS id,
    (id % 1000)::integer                                                   AS quantity,
    ((id * 7919) % 100000000 / 100.0)::numeric(12, 2)                      AS amount,
    sqrt(id)::double precision                                             AS weight,
    id % 3 = 0                                                             AS paid,
    ('SKU-' || lpad((id % 50000)::text, 8, '0'))::varchar(20)              AS sku,
    'Order ' || id || ' of customer ' || id * 31 % 200000 || ', ' || substr(md5(id::text), 1, 24) AS note,
    date '2015-01-01' + (id % 3650)::integer                               AS due_on,
    timestamp '2020-01-01' + id / 3 * interval '11.000137 seconds'         AS updated_at,
    timestamptz '2020-01-01 00:00:00+00' + id * interval '7 seconds'       AS shipped_at,
    md5(id::text)::uuid                                                    AS reference,
    CASE WHEN id % 10 <> 0 THEN (id % 5)::smallint END                     AS priority
"""


@dataclass(frozen=True)
class Server:
    """Where the PostgreSQL of this run listens; `pid` is its first process."""

    host: str
    port: int
    user: str
    password: str
    pid: int = 0

    @property
    def dsn(self) -> str:
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{DATABASE}"

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{self.host}:{self.port}/{DATABASE}"

    def cpu_seconds(self) -> float:
        """CPU seconds of the server so far: its first process, those that it has reaped, those that run."""
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
    """A table to copy, or all of a schema (`*`); `checksum` is the sum of ids: lost and repeated rows don't cancel."""

    server: Server
    schema: str
    rows: int
    checksum: int
    table: str = "orders"


@contextmanager
def postgresql(data: Path) -> Iterator[Server]:
    """Starts the server in folder `data` and an empty database in it; stops it at the end."""
    # It ends with its standard input, so also when this process is killed.
    command = [sys.executable, "-m", "servers.postgresql", "--data", str(data), "--follow-stdin"]
    process = subprocess.Popen(command, cwd=ROOT / "tests", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        place = json.loads(process.stdout.readline() or sys.exit("PostgreSQL did not start"))
        known = {name: place[name] for name in ("host", "port", "user", "password")}
        with psycopg.connect(**{**known, "dbname": "postgres"}, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            backend = Path(f"/proc/{row[0]}/stat").read_text().rpartition(")")[2].split()
        yield Server(**known, pid=int(backend[1]))
    finally:
        process.stdin.close()
        process.wait(60)


def table_of(server: Server, rows: int) -> Source:
    """Makes the table of `rows` rows, with its indexes, vacuumed and read once; one that stands is taken."""
    schema = f"rows_{rows}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass(%s)", [f"{schema}.orders"]).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA {schema}")
            rows_made = f"SELECT {COLUMNS} FROM generate_series(1::bigint, {rows}) AS id"
            connection.execute(f"CREATE TABLE {schema}.orders AS {rows_made}")
            connection.execute(f"ALTER TABLE {schema}.orders ADD PRIMARY KEY (id)")
            connection.execute(f"ALTER TABLE {schema}.orders ALTER updated_at SET NOT NULL")
            connection.execute(f"CREATE INDEX ON {schema}.orders (updated_at)")
            connection.execute(f"VACUUM (ANALYZE) {schema}.orders")
        row = connection.execute(f"SELECT count(*), sum(id)::bigint FROM {schema}.orders").fetchone()
        assert row is not None
    return Source(server, schema, row[0], row[1])


def tables_of(server: Server, tables: int, rows: int) -> Source:
    """Makes tables of `rows` rows each in a schema of their own, each like `table_of`'s; those that stand are taken."""
    schema = f"tables_{tables}_{rows}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace(%s)", [schema]).fetchone() == (None,):
            connection.execute(f"CREATE SCHEMA {schema}")
            for number in range(tables):
                name, first = f"{schema}.t{number:04d}", number * rows
                generated = f"generate_series({first + 1}::bigint, {first + rows}) AS id"
                connection.execute(f"CREATE TABLE {name} AS SELECT {COLUMNS} FROM {generated}")
                connection.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (id), ALTER updated_at SET NOT NULL")
                connection.execute(f"CREATE INDEX ON {name} (updated_at)")
                connection.execute(f"VACUUM (ANALYZE) {name}")
    every = tables * rows
    return Source(server, schema, every, every * (every + 1) // 2, "*")
