"""Transactions that end late or are large, and servers that are old or were restored."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from servers.postgresql import PostgreSQL
from tap.wal.piped import TABLE, committed, piped, records, refused
from tap_spark_jdbc.wal.change_log import lsn_of, lsn_text


def test_prepared_and_large_transactions_are_read(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """Prepared and large transactions arrive when they are committed."""
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        connection.execute(
            f"alter database {connection.info.dbname} set logical_decoding_work_mem = '64kB'"
        )
        committed(pipe)
        name = f"prepared in {connection.info.dbname}"
        with psycopg.connect(connection.info.dsn, password=connection.info.password) as other:
            other.execute("insert into orders values (4, 'prepared', null)")
            other.execute(f"prepare transaction '{name}'")
        connection.execute("insert into orders values (5, 'before', null)")
        assert records(committed(pipe)) == [{"id": 5, "note": "before", "body": None}]
        connection.execute(f"commit prepared '{name}'")
        assert records(committed(pipe)) == [{"id": 4, "note": "prepared", "body": None}]
        with connection.transaction():
            connection.execute(
                "insert into orders select i, 'large', repeat('y', 100) from generate_series(10, "
                "5009) i"
            )
            with connection.transaction() as inner:
                connection.execute("update orders set note = 'never' where id > 9")
                raise psycopg.Rollback(inner)
        spilled = (
            "select spill_count from pg_stat_replication_slots where slot_name = current_database()"
        )
        assert committed(pipe).ids("public-orders") == {each: 1 for each in range(10, 5010)}
        assert connection.execute(spilled).fetchall()[0][0] > 0


def test_time_limit_ends_run_at_commit(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        committed(pipe)
        for number in (4, 5):
            with connection.transaction():
                connection.execute(
                    "insert into orders select i, 'new' from generate_series(%s, 9999, 2) i",
                    (number,),
                )
        pipe.config["max_run_minutes"] = 1e-9
        runs = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tap_spark_jdbc.supply.columnar_query.BATCH_BYTES", 2000)
            while not runs or runs[-1]:
                runs.append({each["id"] for each in records(committed(pipe))})
        assert runs == [set(range(4, 10000, 2)), set(range(5, 10000, 2)), set()]


def test_restored_server_is_refused(spark: object, postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A server that was restored to an earlier moment is refused."""
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        state = committed(pipe).final
        bookmark = state["bookmarks"]["public-orders"]
        bookmark["lsn"] = lsn_text(lsn_of(bookmark["lsn"]) + 2**40)
        pipe.save(state)
        assert "restored to an earlier moment" in refused(pipe)
        confirmed = (
            "select confirmed_flush_lsn from pg_replication_slots where slot_name = "
            "current_database()"
        )
        before = connection.execute(confirmed).fetchall()
        refused(pipe)
        assert connection.execute(confirmed).fetchall() == before


def test_older_server_omits_only_computed_columns(
    spark: object, older_postgresql: PostgreSQL, tmp_path: Path
) -> None:
    script = """
    create table orders (id int, day date, note text, twice int generated always as (id * 2) stored,
      primary key (id, day)) partition by range (day);
    create table orders_2025 partition of orders for values from ('2025-01-01') to ('2026-01-01');
    create table orders_2026 partition of orders for values from ('2026-01-01') to ('2027-01-01');
    insert into orders values (1, '2025-01-01', 'old'), (2, '2025-01-01', 'old');
    """
    with piped(older_postgresql, tmp_path, script) as (pipe, connection):
        first = {"day": "2025-01-01", "note": "old"}
        assert records(committed(pipe)) == [{"id": 1, **first}, {"id": 2, **first}]
        connection.execute("update orders set note = 'new' where id = 1")
        connection.execute("update orders set day = '2026-01-01' where id = 2")
        connection.execute("delete from orders where id = 1")
        sent = committed(pipe)
        assert [
            each["record"]
            for each in sent.messages
            if each["type"] == "RECORD" and "twice" in each["record"]
        ] == []
        assert records(sent) == [
            {"id": 1, "day": "2025-01-01", "note": "new"},
            {"id": 2, "day": "2025-01-01", "deleted": True},
            {"id": 2, "day": "2026-01-01", "note": "old"},
            {"id": 1, "day": "2025-01-01", "deleted": True},
        ]
        connection.execute("truncate orders")
        assert "ACTIVATE_VERSION" in {each["type"] for each in committed(pipe).messages}
