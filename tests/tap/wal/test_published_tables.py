"""Tables whose changes the log would have in part, or in another way than they are read: refused,
with what to do.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from servers.postgresql import PostgreSQL
from tap.wal.piped import committed, piped, records, refused
from tap_spark_jdbc.dry_run import describe

DEFERRED = "create table orders (id int primary key deferrable, note text)"
PARTITIONED = """
create table orders (id int primary key, note text) partition by range (id);
create table low partition of orders for values from (0) to (100);
create table high partition of orders for values from (100) to (200);
"""


@pytest.mark.parametrize(
    ("script", "code", "reported"),
    [
        (
            "create table orders (id int primary key); create table more () inherits (orders)",
            "TAP-051",
            "inherit from",
        ),
        (DEFERRED, "TAP-052", "DEFERRABLE one"),
        (f"{DEFERRED}; alter table orders replica identity full", "TAP-052", "NOT DEFERRABLE"),
        (
            f"{PARTITIONED} alter table orders replica identity full",
            "TAP-052",
            "another REPLICA IDENTITY",
        ),
        (
            f"{PARTITIONED} alter table orders replica identity nothing",
            "TAP-052",
            "REPLICA IDENTITY NOTHING",
        ),
        (
            f"{PARTITIONED} create unique index other on orders (id, note); alter table orders "
            "alter note set not null;alter table orders replica identity using index other",
            "TAP-052",
            "another REPLICA IDENTITY",
        ),
        (
            f"{PARTITIONED} alter table high replica identity nothing",
            "TAP-052",
            "REPLICA IDENTITY NOTHING",
        ),
        (
            "create table orders (id int, note text) partition by range (id); alter table orders "
            "replica identity full;create table low partition of orders for values from (0) to "
            "(100); alter table low add primary key (id)",
            "TAP-052",
            "another REPLICA IDENTITY",
        ),
        (
            "create table orders (id int primary key) partition by range (id)",
            "TAP-051",
            "no partition yet",
        ),
        (
            f"{PARTITIONED} create unlogged table more partition of orders for values from (200) "
            "to (300)",
            "TAP-051",
            "more is a view, foreign, temporary or unlogged table",
        ),
    ],
)
def test_table_whose_log_differs_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, script: str, code: str, reported: str
) -> None:
    """A table whose log differs from its rows is refused before it is published."""
    settings = {
        "stream_options": {"*": {"replication_method": "LOG_BASED", "key_properties": ["id"]}}
    }
    with piped(postgresql, tmp_path, script, tables=["orders"]) as (pipe, connection):
        pipe.config |= settings
        line = refused(pipe)
        assert line.startswith(f"{code} stream public-orders: ")
        assert reported in line
        assert not connection.execute("select * from pg_publication").fetchall()


def test_later_child_table_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with piped(
        postgresql, tmp_path, "create table orders (id int primary key)", tables=["orders"]
    ) as (
        pipe,
        connection,
    ):
        committed(pipe)
        connection.execute("create table more () inherits (orders)")
        assert refused(pipe).startswith("TAP-051 stream public-orders: ")


def test_partitions_with_full_identity_are_read(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """Partitions with full replica identity under a root with a key are read."""
    script = (
        f"{PARTITIONED} alter table low replica identity full; alter table high replica "
        "identity full"
    )
    with piped(postgresql, tmp_path, script, tables=["orders"]) as (pipe, connection):
        committed(pipe)
        connection.execute("insert into orders values (1, 'a'), (2, 'b')")
        connection.execute("update orders set id = 101 where id = 1")
        connection.execute("delete from orders where id = 2")
        assert records(committed(pipe)) == [
            {"id": 1, "note": "a"},
            {"id": 2, "note": "b"},
            {"id": 1, "deleted": True},
            {"id": 101, "note": "a"},
            {"id": 2, "deleted": True},
        ]


def test_partition_attached_with_rows_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition that is attached with rows is refused, and a detached one is reported."""
    caplog.set_level(logging.WARNING)
    with piped(postgresql, tmp_path, PARTITIONED, tables=["orders"]) as (pipe, connection):
        committed(pipe)
        # Made as one, or attached empty: all its rows are in the log.
        connection.execute("create table third partition of orders for values from (200) to (300)")
        connection.execute("create table fourth (like orders including all)")
        connection.execute(
            "alter table orders attach partition fourth for values from (300) to (400)"
        )
        connection.execute("insert into orders values (201), (301)")
        assert committed(pipe).ids("public-orders") == {201: 1, 301: 1}
        assert not caplog.messages

        connection.execute("create table fifth (like orders including all)")
        connection.execute("insert into fifth values (401)")
        before = pipe.saved
        connection.execute(
            "alter table orders attach partition fifth for values from (400) to (500)"
        )
        line = refused(pipe)
        assert "partition fifth was attached with rows" in line
        assert "--full" in line
        # So says what `status` asks, before a run fails by it.
        tap = pipe.tap()
        assert f"can't continue: {line}" in describe(tap)
        tap.database.close()
        assert 401 in pipe.run(full=True).ids("public-orders")
        pipe.save(before or {})

        connection.execute("alter table orders detach partition fifth")
        connection.execute("drop table third")
        connection.execute("insert into orders values (302)")
        assert committed(pipe).ids("public-orders") == {302: 1}
        (warning,) = caplog.messages
        assert "1 partition(s) were detached or dropped" in warning
        caplog.clear()
        connection.execute("insert into orders values (303)")
        committed(pipe)
        assert not caplog.messages
