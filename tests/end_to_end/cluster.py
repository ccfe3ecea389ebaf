"""One source and one pipe for tests whose executors see no disk of the programs.

The lake and its state are on S3.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from end_to_end.pipe import Outcome, Pipe
from servers.clusters.standalone import short_lived
from tap.supply.test_retries import WAIT

ORDERS = """
create table orders (id bigint primary key, total numeric(12, 2), changed_at timestamp not null);
insert into orders select n, n * 1.25, timestamp '2025-03-30 02:30:00' + n * interval '1 second'
  from generate_series(1, 2000) n;
create index on orders (changed_at);
"""
OTHERS = """
create table events (id bigint primary key, tags text[] not null, level double precision,
  note text);
insert into events select n, array['t' || n % 7, 'é"\\'], n / 8.0, repeat('note ', 10) || n
  from generate_series(1, 3000) n;
update events set level = 'NaN' where id % 1000 = 5;
create table places (code text primary key, at timestamptz);
insert into places select 'p' || n, timestamptz '2025-01-01 00:00:00+00' + n * interval '1 hour'
  from generate_series(1, 500) n;
create table notes (line text);
insert into notes select repeat('n' || n, 100) from generate_series(1, 700) n;
"""
# More than a slice of new events, with the values that the first ones have, too.
CHANGE = """
insert into events select n, array['t' || n % 7, 'é"\\'], n / 8.0, repeat('later ', 10) || n
  from generate_series(3001, 4500) n;
update events set level = 'NaN' where id in (3005, 4005);
insert into events values (4501, array['later'], null, null);
update orders set total = 0, changed_at = '2025-06-01' where id % 100 = 3;
insert into orders values (9001, 5, '2025-06-02');
delete from places where code like 'p1%';
"""
TABLES = {
    "events": ["id", "tags", "level", "note"],
    "orders": ["id", "total", "changed_at"],
    "places": ["code", "at"],
    "notes": ["line"],
}


def small(here: str = "127.0.0.1") -> dict[str, str]:
    """Settings for little executors that know this machine by an address.

    Java is looked for only now.
    """
    return {
        "spark.executor.extraJavaOptions": shlex.join(short_lived()),
        "spark.executor.memory": "512m",
        "spark.driver.host": here,
        "spark.pyspark.python": sys.executable,
    }


# A reader of places comes to a stop in the middle of them, while somebody holds lock 7.
HOLD = f"""
create schema kept; alter table places set schema kept;
create function held(code text) returns text language plpgsql volatile as $$
begin
  if code = 'p250' then {WAIT} end if;
  return code;
end $$;
create view places as select held(code) as code, at from kept.places;
"""


@contextmanager
def new_source(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    """A database with the tables; nothing cuts the last one."""
    with psycopg.connect(postgresql.new_database().dsn, autocommit=True) as connection:
        connection.execute(ORDERS + OTHERS)
        yield connection


@dataclass(frozen=True)
class SharedFolder:
    """A folder that all machines have under its path, used as `s3` is."""

    path: Path
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    def new_bucket(self) -> str:
        return str(self.path)

    def filesystem(self) -> Any:
        return fsspec.filesystem("file")


class BucketPipe(Pipe):
    """A pipe whose lake and state are on S3, or in a folder that all share."""

    storage: Any

    def run(self, *flags: str, with_state: bool = True) -> Outcome:
        state = f"{self.target['bucket']}/.dataspoc/state/{self.target['pipeline']}/state.json"
        return super().run("--state", state, *flags, with_state=False)

    def files(self, stream: str) -> list[pq.ParquetFile]:
        files = self.storage.filesystem()
        found = files.glob(f"{self.target['bucket']}/raw/{stream}/**/*.parquet")
        return [pq.ParquetFile(files.open(path)) for path in found]

    def table(self, stream: str) -> pa.Table:
        return pa.concat_tables(
            [file.read() for file in self.files(stream)], promote_options="default"
        )

    def staged(self) -> list[str]:
        files = self.storage.filesystem()
        staging = f"{self.target['bucket'].removeprefix('s3://')}/.dataspoc/staging"
        return [path for path in files.find(staging) if not path.endswith(".keep")]


def pipe_on(
    folder: Path, connection: psycopg.Connection[Any], s3: Any, spark: dict[str, Any]
) -> BucketPipe:
    """A pipe from the tables of the schema `public`."""
    facts = connection.info
    tap = {
        "jdbc_url": f"jdbc:postgresql://{facts.host}:{facts.port}/{facts.dbname}",
        "user": facts.user,
        "password": facts.password,
        "incremental_tables": [
            "public.events:id:integer!append",
            "public.orders:changed_at:datetime!upsert",
        ],
        "schemas": ["public"],
        "slice_rows": 1000,
        "storage_options": s3.storage_options,
        "spark": spark,
    }
    target = {
        "bucket": f"{s3.new_bucket()}/lake",
        "storage_options": s3.storage_options,
        "spark": spark,
    }
    pipe = BucketPipe(folder, tap, target)
    pipe.storage = s3
    return pipe


def first_run_here(pipe: BucketPipe) -> None:
    """Loads all tables for the first time, on this machine: the runs that follow have something to
    add to.
    """
    spark = pipe.tap["spark"]
    pipe.tap["spark"] = pipe.target["spark"] = {"master": "local[2]"}
    first = pipe.run().succeeded()
    assert "Done! 6200 records in 4 stream(s)" in first.target_errors
    pipe.tap["spark"] = pipe.target["spark"] = spark


def assert_equal_to_source(
    pipe: BucketPipe,
    connection: psycopg.Connection[Any],
    *,
    tables: Mapping[str, list[str]] = TABLES,
) -> None:
    """The lake's tables hold what the source's do; NaN by its name, for it equals nothing."""
    connection.execute("set timezone to 'UTC'")
    for table, columns in tables.items():
        loaded = pipe.table(f"public-{table}").select(columns).to_pylist()
        found = sorted(repr(tuple(row.values())) for row in loaded)
        rows = connection.execute(f"select {', '.join(columns)} from {table}").fetchall()
        wanted = pa.table({name: [row[n] for row in rows] for n, name in enumerate(columns)})
        assert found == sorted(repr(tuple(row.values())) for row in wanted.to_pylist()), table
