"""A hot standby as source: it shows no open transactions of its primary, and yet no row is lost or
repeated.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from end_to_end.marked import until
from servers.postgresql import PostgreSQL, standby
from singer_spark.errors import SourceError
from tap.dying import Pipe
from tap.opened import login

TABLE = """
create table orders (id bigint primary key, v text, at timestamp not null);
create index on orders (at);
insert into orders select n, 'row', timestamp '2025-01-01' + n * interval '1 second'
  from generate_series(1, 1000) n;
"""
SETTINGS = {
    "incremental_tables": ["public.orders:at:timestamp"],
    "slice_rows": 300,
    "reader": "arrow",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    # The server may run under an account of its own, which can't enter pytest's folders.
    with tempfile.TemporaryDirectory(prefix="standby-") as folder, standby(Path(folder)) as both:
        yield both


def catch_up(primary: psycopg.Connection[Any], follower: PostgreSQL) -> None:
    """Waits until the standby shows all that is committed on its primary."""
    primary.execute("set synchronous_commit = on")
    last = "select pg_current_xact_id()::text, pg_logical_emit_message(true, 'test', 'catch up')"
    ((transaction, _),) = primary.execute(last).fetchall()
    seen = f"select pg_snapshot_xmax(pg_current_snapshot()) > '{transaction}'::xid8"
    with psycopg.connect(follower.database("postgres").dsn, autocommit=True) as connection:
        until(lambda: connection.execute(seen).fetchall()[0][0], "the standby", seconds=60)


@pytest.mark.parametrize("first_by", ["primary", "standby"])
def test_row_committed_late_on_primary_arrives_once(
    spark: object, servers: tuple[PostgreSQL, PostgreSQL], tmp_path: Path, first_by: str
) -> None:
    """Also where the pipeline has moved from the primary to its standby."""
    database = servers[0].new_database()
    follower = servers[1].database(database.name)
    first_place = database if first_by == "primary" else follower
    with (
        psycopg.connect(database.dsn, autocommit=True) as primary,
        psycopg.connect(database.dsn) as slow,
    ):
        primary.execute(TABLE)
        slow.execute("insert into orders values (5001, 'late', '2025-01-01 00:00:05')")
        catch_up(primary, servers[1])
        pipe = Pipe(tmp_path / "lake", login(first_place, **SETTINGS))
        first = pipe.run()
        assert first.ids("public-orders") == Counter(range(1, 1001))

        pipe.save(first.final)
        pipe.config = login(follower, **SETTINGS)
        primary.execute("insert into orders values (5002, 'new', '2025-02-01')")
        catch_up(primary, servers[1])
        second = pipe.run()
        assert second.ids("public-orders") == Counter([5002])

        pipe.save(second.final)
        slow.commit()
        catch_up(primary, servers[1])
        third = pipe.run()
        assert third.ids("public-orders") == Counter([5001])

        pipe.save(third.final)
        assert pipe.run().ids("public-orders") == Counter()


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_slice_ended_by_replay_names_remedy(
    spark: object, servers: tuple[PostgreSQL, PostgreSQL], tmp_path: Path, reader: str
) -> None:
    """A standby that must replay a change ends the slice that reads what was changed."""
    database = servers[0].new_database()
    follower = servers[1].database(database.name)
    script = TABLE + "create view slow as select id, pg_sleep(0.1) is null as s from orders"
    with psycopg.connect(database.dsn, autocommit=True) as primary:
        primary.execute(script)
        catch_up(primary, servers[1])
        with psycopg.connect(follower.dsn, autocommit=True) as standing_by:
            standing_by.execute("alter system set max_standby_streaming_delay = 100")
            standing_by.execute("select pg_reload_conf()")

        def empty_table() -> None:
            reads = """
            select count(*) from pg_stat_activity
            where query like '%"slow"%' and pid <> pg_backend_pid()
            """
            with psycopg.connect(follower.dsn, autocommit=True) as watching:
                until(lambda: watching.execute(reads).fetchone() != (0,), "the tap's slice")
            primary.execute("truncate orders")

        emptying = Thread(target=empty_table)
        emptying.start()
        pipe = Pipe(tmp_path / "lake", login(follower, reader=reader, tables=["slow"]))
        with pytest.raises(SourceError, match=r"TAP-028 .*public-slow.*hot_standby_feedback"):
            pipe.run()
        emptying.join()
