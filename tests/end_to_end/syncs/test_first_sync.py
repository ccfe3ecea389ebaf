"""The first sync, the next ones and the idle ones, on a real database, read back from the lake."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.here import run_here
from end_to_end.pipe import PHASE, Pipe
from end_to_end.round_trip import RoundTrip
from tap.opened import login

CREATE_ORDERS = """
create table orders (
  id bigint primary key, amount numeric(12,2), big numeric(38,0), note text, vip boolean, day date,
  seen timestamptz, price double precision, code uuid, raw bytea, tags integer[], doc jsonb,
  updated_at timestamp not null
);
create index on orders (updated_at);
create table customers (id integer primary key, name text not null);
insert into customers select n, 'customer ' || n from generate_series(1, 20) n;
"""
INSERT_ORDERS = """
insert into orders
select n, n * 1.37, 10::numeric ^ 37 + n,
       case when n %% 7 = 0 then null else E'l1\\nl2 "' || n || '" é😀' end, n %% 2 = 0,
       date '2024-02-29' + n, timestamptz '2025-03-30 02:30:00+02' + n * interval '1 minute',
         n / 3.0,
       ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, decode(lpad(to_hex(n), 8, '0'),
         'hex'),
       array[n, null, n + 1], jsonb_build_object('n', n),
       timestamp '2025-03-30 02:30:00' + (n / 5) * interval '1 second'
from generate_series(%s::int, %s::int) n
"""


@pytest.fixture
def shop(postgresql: Any) -> Any:
    """A database with orders (incremental) and customers (whole), and its pipe's config."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(CREATE_ORDERS)
        connection.execute(INSERT_ORDERS, (1, 338))
        yield database, connection


def orders_pipe(database: Any, folder: Path, **settings: Any) -> Pipe:
    tap = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
        "schemas": ["public"],
        "incremental_tables": ["public.orders:updated_at:timestamp"],
        **settings,
    }
    return Pipe(folder, tap)


def test_first_sync_and_following_runs_are_exact(spark: Any, shop: Any, tmp_path: Path) -> None:
    """The first run is a pipe of two programs; the others run in this process."""
    database, connection = shop
    pipe = orders_pipe(database, tmp_path)
    trip = RoundTrip(pipe.bucket, pipe.tap)

    first = pipe.run().succeeded()
    assert "Done! 358 records in 2 stream(s)" in first.target_errors
    said = [
        line
        for line in (first.tap_errors + first.target_errors).splitlines()
        if not PHASE.search(line) and "archive of Spark's classes" not in line
    ]
    # The archive is built once for an installation. Beside these a line comes every five seconds.
    assert len(said) <= 6, "\n".join(said)
    assert first.states == [pipe.state]
    assert len(pipe.rows("public-orders")) == 338
    assert len(pipe.rows("public-customers")) == 20

    # The group at the bookmark holds 335 to 338; 339 arrives with the same timestamp, 340 to 345
    # later.
    connection.execute(INSERT_ORDERS, (339, 345))
    connection.execute("update orders set note = 'changed under the same key' where id = 337")
    run_here(pipe)
    ids = [row[0] for row in pipe.rows("public-orders", "id")]
    assert ids == sorted([*range(1, 346), 337])
    assert len(pipe.rows("public-customers")) == 20

    saved = pipe.state
    trip.run(with_state=True, add_record_metadata=True)
    assert pipe.state == saved
    assert len(pipe.rows("public-orders", "id")) == 346
    assert len(pipe.rows("public-customers")) == 20

    # Everything again, and the state only replaced after success.
    trip.run(full=True, add_record_metadata=True)
    assert without_snapshots(pipe.state) == without_snapshots(saved)
    assert len(pipe.rows("public-orders", "id")) == 346 + 345
    assert len(pipe.rows("public-customers")) == 20


def without_snapshots(state: Any) -> Any:
    """Which transactions a run could see is its own."""
    bookmarks = state["bookmarks"].items()
    return {
        stream: {name: each for name, each in mark.items() if name != "snapshot"}
        for stream, mark in bookmarks
    }


def test_boundary_ties_arrive_exactly_once(spark: Any, postgresql: Any, tmp_path: Path) -> None:
    database = postgresql.new_database()
    trip = RoundTrip(tmp_path, login(database, incremental_tables=["public.ties:moment:timestamp"]))
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table ties (name text, moment timestamp)")
        connection.execute(
            "insert into ties select 'twin', timestamp '2025-01-01 10:00' from generate_series(1, "
            "3)"
        )
        trip.run(with_state=True)
        connection.execute("insert into ties values ('twin', timestamp '2025-01-01 10:00')")
        for _ in range(3):
            trip.run(with_state=True)
            assert (
                trip.table("public-ties").to_pylist()
                == [{"name": "twin", "moment": dt.datetime(2025, 1, 1, 10)}] * 4
            )
