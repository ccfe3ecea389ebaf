"""What a server or a user lacks, or the server dropped, is said with what helps, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from servers.postgresql import PostgreSQL
from singer_spark.errors import ConfigurationError, SourceError
from tap.opened import filled
from tap.wal.served import asked, served, slot_of
from tap_spark_jdbc.wal import publication, slot
from tap_spark_jdbc.wal.log_source import LogTable, log_server
from tap_spark_jdbc.wal.slot import LogSlot


@pytest.fixture
def reader(postgresql: PostgreSQL) -> Iterator[tuple[LogSlot, psycopg.Connection[Any]]]:
    """The slot of a user that may only read, and a superuser's connection."""
    with filled(postgresql, "create table orders (id int primary key)") as (database, connection):
        user = f"Reader {database.name}"
        connection.execute(
            f'create role "{user}" login password \'x\'; grant select on orders to "{user}"'
        )
        parts = (
            f"host={database.host} port={database.port} dbname={database.name} password=x "
            f"user='{user}'"
        )
        try:
            with asked(parts) as asking:
                yield slot_of(asking, database.name), connection
        finally:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
            )
            connection.execute(f'drop owned by "{user}"')
            connection.execute(f'drop role "{user}"')


@pytest.mark.slow
def test_insufficient_wal_level_is_refused() -> None:
    with served(wal_level="replica") as dsn, asked(dsn) as database:
        with pytest.raises(ConfigurationError, match=r"TAP-050 .*ALTER SYSTEM SET.*wal_level"):
            log_server(database)


def test_missing_right_error_names_statement_to_run(
    reader: tuple[LogSlot, psycopg.Connection[Any]],
) -> None:
    ours, superuser = reader
    user = f'"Reader {ours.slot}"'
    ((oid,),) = superuser.execute("select cast(cast('orders' as regclass) as int)").fetchall()
    orders = LogTable("public-orders", '"public"."orders"', str(oid))
    with pytest.raises(SourceError, match="TAP-058") as raised:
        ours.publication.publish([orders])
    superuser.execute(str(raised.value).rpartition("run: ")[2])
    assert ours.publication.publish([orders])["public-orders"].columns == {"id"}

    statement = f"ALTER ROLE {user} REPLICATION"
    with pytest.raises(SourceError, match=r"could not be created: .*" + statement):
        ours.make()
    superuser.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (ours.slot,))
    assert ours.look()
    superuser.execute("insert into orders values (1)")
    with pytest.raises(SourceError, match=r"could not be moved: .*" + statement):
        ours.advance(ours.end_of_log())
    assert statement in str(ours.refused("read", "no"))

    superuser.execute(statement)
    allowed = LogSlot(ours._database, log_server(ours._database), ours.slot, ours.publication)
    assert allowed.look()
    allowed.advance(allowed.end_of_log())
    assert "ALTER ROLE" not in str(allowed.refused("read", "no"))


def test_slot_of_another_database_is_refused(postgresql: PostgreSQL) -> None:
    """Slots are the server's: one of this name may be another database's."""
    with (
        filled(postgresql, "") as (theirs, superuser),
        filled(postgresql, "") as (ours, _),
        asked(ours.dsn) as asking,
    ):
        name = (theirs.name,)
        superuser.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", name)
        try:
            with pytest.raises(ConfigurationError, match=f"TAP-056 .*database {theirs.name}"):
                slot_of(asking, theirs.name).look()
        finally:
            superuser.execute("select pg_drop_replication_slot(%s)", name)


@pytest.fixture(scope="module")
def own() -> Iterator[str]:
    """The DSN of a server that can send its log, and soon drops it."""
    small = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with served(max_wal_senders="2", **small) as dsn:
        yield dsn


@pytest.mark.slow
def test_dropped_log_is_never_skipped(own: str) -> None:
    """Write-ahead log that the server has dropped is reported and never skipped."""
    with asked(own) as database:
        ours = slot_of(database, "abandoned")
        ours.make()
        assert ours.look()
        for _ in range(4):
            database.connection.rows(
                "select pg_switch_wal(), pg_logical_emit_message(false, 'x', repeat('x', 1000))"
            )
        database.connection.execute("checkpoint")
        for waits in (True, False):
            with pytest.raises(
                SourceError, match=r"TAP-054 .*max_slot_wal_keep_size.*spark-lake log drop.*--full"
            ):
                ours.look(waits=waits)
        assert ours.drop() == ["slot abandoned"]


@pytest.mark.slow
def test_run_waits_for_active_slot(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot may be held by the server process of a killed tap, or by another program."""

    def clock(wait: Callable[[float], None], *times: float) -> None:
        left = iter(times)
        monkeypatch.setattr(
            slot, "time", SimpleNamespace(monotonic=lambda: next(left, 0.0), sleep=wait)
        )

    with asked(own) as database:
        ours = slot_of(database, "shared")
        ours.make()
        with psycopg.connect(f"{own}?replication=database", autocommit=True) as other:
            options = "(proto_version '1', publication_names 'published')"
            other.pgconn.exec_(f"START_REPLICATION SLOT shared LOGICAL 0/0 {options}".encode())
            waited: list[float] = []
            clock(waited.append, 0.0, 1.0, 61.0)
            with pytest.raises(SourceError, match=r"TAP-055 .*log_slot"):
                ours.look()
            assert len(waited) == 1
            with pytest.raises(SourceError, match=r"TAP-057 .*log_slot"):
                ours.advance(ours.end_of_log() + 1)
            clock(lambda seconds: other.close())
            assert ours.look()


def test_unpublished_table_is_forgotten_late(
    older_postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old minor version would continue with what it remembers of the transaction that wrote
    before.
    """
    with filled(older_postgresql, "create table orders (id int primary key)") as (
        database,
        connection,
    ):
        with asked(database.dsn) as asking, psycopg.connect(database.dsn) as late:
            ours = slot_of(asking, database.name)
            ((oid,),) = connection.execute(
                "select cast(cast('orders' as regclass) as int)"
            ).fetchall()
            orders = LogTable("public-orders", '"public"."orders"', str(oid))
            late.execute("insert into orders values (1)")
            ours.publication.publish([orders])
            options = (
                "select xmin, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot from "
                "pg_publication"
            )
            (before,) = connection.execute(options).fetchall()
            waits = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: late.commit())
            monkeypatch.setattr(publication, "time", waits)
            ours.publication.wait_for_writers([orders])
            (after,) = connection.execute(options).fetchall()
            assert after[0] != before[0]
            assert after[1:] == before[1:]
            # Nobody was waited for.
            ours.publication.wait_for_writers([orders])
            assert connection.execute(options).fetchall() == [after]
