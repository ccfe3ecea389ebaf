"""The first sync, the next ones and the idle ones, on real databases, read back by DuckDB."""

from __future__ import annotations

import datetime as dt
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.pipe import Pipe

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
       date '2024-02-29' + n, timestamptz '2025-03-30 02:30:00+02' + n * interval '1 minute', n / 3.0,
       ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, decode(lpad(to_hex(n), 8, '0'), 'hex'),
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


def test_full_then_incremental_then_idle_gives_exactly_the_rows(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    pipe = orders_pipe(database, tmp_path)

    first = pipe.run().succeeded()
    assert "Done! 358 records in 2 stream(s)" in first.target_errors
    assert first.states == [pipe.state]
    assert len(pipe.rows("public-orders")) == 338
    assert len(pipe.rows("public-customers")) == 20

    # The group at the bookmark holds 335 to 338; 339 arrives with the same timestamp, 340 to 345 later.
    connection.execute(INSERT_ORDERS, (339, 345))
    connection.execute("update orders set note = 'changed under the same key' where id = 337")
    pipe.run().succeeded()
    ids = [row[0] for row in pipe.rows("public-orders", "id")]
    assert ids == sorted([*range(1, 346), 337])
    assert len(pipe.rows("public-customers")) == 20

    saved = pipe.state
    for _ in range(2):
        idle = pipe.run().succeeded()
        assert pipe.state == saved
        assert idle.states == [saved]
        assert len(pipe.rows("public-orders", "id")) == 346
        assert len(pipe.rows("public-customers")) == 20


def test_values_arrive_as_they_are(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    pipe = orders_pipe(database, tmp_path)
    pipe.run().succeeded()
    columns = "id, amount, big, note, vip, day, seen, price, code, raw, tags, doc, updated_at"
    source = connection.execute(
        "select id, amount, big, note, vip, day, seen at time zone 'UTC', price, code::text, raw, tags, doc::text, "
        "updated_at from orders order by id"
    ).fetchall()
    zoneless = columns.replace("seen", "seen at time zone 'UTC'").replace("code,", "code::varchar,")
    assert pipe.rows("public-orders", zoneless, "id") == source
    types = "typeof(amount), typeof(big), typeof(seen), typeof(updated_at), typeof(tags), typeof(vip)"
    assert pipe.rows("public-orders", f"distinct {types}") == [
        ("DECIMAL(12,2)", "DECIMAL(38,0)", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP", "INTEGER[]", "BOOLEAN")
    ]


def test_ties_at_the_boundary_arrive_and_nothing_comes_twice(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    connection.execute("create table ties (name text, moment timestamp)")
    connection.execute("insert into ties select 'twin', timestamp '2025-01-01 10:00' from generate_series(1, 3)")
    pipe = orders_pipe(database, tmp_path, tables=["public.ties"], incremental_tables=["public.ties:moment:timestamp"])
    pipe.run().succeeded()
    connection.execute("insert into ties values ('twin', timestamp '2025-01-01 10:00')")
    for _ in range(3):
        pipe.run().succeeded()
        assert pipe.rows("public-ties", "name, moment") == [("twin", dt.datetime(2025, 1, 1, 10))] * 4


def test_full_takes_everything_again_and_replaces_the_state_after_success(shop: Any, tmp_path: Path) -> None:
    database, _ = shop
    pipe = orders_pipe(database, tmp_path)
    pipe.run().succeeded()
    saved = pipe.state
    pipe.run("--full").succeeded()
    assert pipe.state == saved
    assert len(pipe.rows("public-orders")) == 2 * 338
    assert len(pipe.rows("public-customers")) == 20


def test_a_sqlite_database_flows_with_its_values(tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.executescript(
            "create table orders (id integer primary key, amount decimal(12,2), weight real, note text, "
            "updated_at timestamp);"
            "insert into orders values (1, '10.10', 0.1, 'é😀', '2025-01-20 15:30:00');"
            "insert into orders values (9223372036854775807, '0.07', 1e300, null, '2025-01-20 15:30:00.000001');"
        )
        connection.commit()
        pipe = Pipe(
            tmp_path / "run",
            {"jdbc_url": f"jdbc:sqlite:{database}", "incremental_tables": ["orders:updated_at:timestamp"]},
        )
        pipe.run().succeeded()
        connection.execute("insert into orders values (2, '5', 0, 'later', '2025-01-20 15:30:00.000001')")
        connection.commit()
        for _ in range(2):
            pipe.run().succeeded()
    connection.close()
    assert pipe.rows("orders", "id, amount, weight, note, updated_at", "id") == [
        (1, Decimal("10.10"), 0.1, "é😀", dt.datetime(2025, 1, 20, 15, 30)),
        (2, Decimal("5.00"), 0.0, "later", dt.datetime(2025, 1, 20, 15, 30, 0, 1)),
        (2**63 - 1, Decimal("0.07"), 1e300, None, dt.datetime(2025, 1, 20, 15, 30, 0, 1)),
    ]
