"""Where the log has less than the table: late writers, publications and bookmarks that others
change, timelines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.postgresql import PostgreSQL
from tap.wal.piped import TABLE, committed, piped, records, refused
from tap_spark_jdbc.wal import publication

PUBLICATION = '"the tap\'s"'


def other(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    return psycopg.connect(connection.info.dsn, password=connection.info.password)


@pytest.mark.parametrize("by_superuser", [False, True])
def test_writers_before_publication_are_awaited(
    spark: object,
    postgresql: PostgreSQL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_superuser: bool,
) -> None:
    """However often the run is tried, and whichever user published the table."""
    with piped(postgresql, tmp_path, TABLE + "create table items (id int primary key)") as (
        pipe,
        connection,
    ):
        pipe.config["tables"] = ["orders"]
        committed(pipe)
        pipe.config["tables"] = ["orders", "items"]
        monkeypatch.setattr(publication, "WRITERS_SECONDS", 0)
        with other(connection) as late:
            late.execute("insert into items values (1)")
            if by_superuser:
                connection.execute(f"alter publication {PUBLICATION} add table items")
            for _ in range(2):
                assert refused(pipe).startswith("TAP-059 stream public-items: ")
            late.commit()
        connection.execute("insert into items values (2)")
        assert committed(pipe).ids("public-items") == {1: 1, 2: 1}
        # That holds from now on: what is written now is in the log.
        with other(connection) as late:
            late.execute("insert into items values (3)")
            assert pipe.run(full=True).ids("public-items") == {1: 1, 2: 1}
            late.commit()
        assert records(committed(pipe)) == [{"id": 3}]


def test_handwritten_bookmark_retains_log(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """A bookmark written by hand holds the slot back until its stream is read."""
    with piped(postgresql, tmp_path, TABLE + "create table items (id int primary key)") as (
        pipe,
        connection,
    ):
        state = committed(pipe).final
        by_hand = {
            "replication_method": "LOG_BASED",
            "lsn": state["bookmarks"]["public-items"]["lsn"],
        }
        state["bookmarks"]["public-items"] = by_hand
        pipe.save(state)
        connection.execute("insert into items values (1)")
        pipe.config["tables"] = ["orders"]
        committed(pipe)
        committed(pipe)
        pipe.config["tables"] = ["orders", "items"]
        assert records(committed(pipe)) == [{"id": 1}]
        committed(pipe)
        assert pipe.saved is not None
        # From then on it is like any other.
        assert (
            pipe.saved["bookmarks"]["public-items"].keys()
            == pipe.saved["bookmarks"]["public-orders"].keys()
        )


@pytest.mark.parametrize(
    ("made", "out", "back"),
    [
        (
            f"create publication {PUBLICATION} for tables in schema public",
            "drop tables in schema public",
            True,
        ),
        (
            f"create publication {PUBLICATION} for tables in schema public",
            "drop tables in schema public",
            False,
        ),
        (f"create publication {PUBLICATION} for table orders, items", "drop table orders", False),
    ],
)
def test_table_removed_from_publication_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, made: str, out: str, back: bool
) -> None:
    """It is refused even if it has been added again, because changes were missed."""
    script = (
        f"{TABLE} create table items (id int primary key); {made} with "
        "(publish_via_partition_root = true)"
    )
    with piped(postgresql, tmp_path, script, tables=["orders"]) as (pipe, connection):
        committed(pipe)
        connection.execute(f"alter publication {PUBLICATION} {out}")
        connection.execute("update orders set note = 'missed'")
        if back:
            again = out.replace("drop", "add")
            connection.execute(f"alter publication {PUBLICATION} {again}")
        line = refused(pipe)
        assert "publication" in line
        assert "--full" in line
        assert set(records(pipe.run(full=True))[0].values()) >= {"missed"}


def test_publication_newer_than_slot_is_refused(
    spark: object, older_postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """The server can't decode changes logged before the publication existed."""
    with piped(older_postgresql, tmp_path, TABLE) as (pipe, connection):
        committed(pipe)
        connection.execute(f"drop publication {PUBLICATION}")
        connection.execute("update orders set note = 'new'")
        assert "spark-lake log drop" in refused(pipe)
        assert not connection.execute("select * from pg_publication").fetchall()
        connection.execute(
            f"create publication {PUBLICATION} for table orders with (publish_via_partition_root = "
            "true)"
        )
        assert "taken out of the publication" in refused(pipe)
        pipe.save(pipe.run(full=True).final)
        connection.execute("update orders set note = 'newer'")
        assert "spark-lake log drop" in refused(pipe)


def test_other_timeline_needs_a_complete_slot(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """Another timeline is refused unless the slot has everything from the bookmark on."""
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        committed(pipe)
        connection.execute("update orders set note = 'new'")
        state = committed(pipe).final
        state["bookmarks"]["public-orders"]["timeline"] = "000000FF"
        pipe.save(state)
        line = refused(pipe)
        assert "timeline 000000FF" in line
        assert "--full" in line
        connection.execute(
            "select pg_replication_slot_advance(current_database(), %s)",
            (state["bookmarks"]["public-orders"]["lsn"],),
        )
        connection.execute("insert into orders values (9)")
        assert committed(pipe).ids("public-orders") == {9: 1}


def test_bookmark_without_timeline_or_key_continues(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        state = committed(pipe).final
        bookmark = state["bookmarks"]["public-orders"]
        for name in ("timeline", "published", "key"):
            del bookmark[name]
        pipe.save(state)
        connection.execute("insert into orders values (9)")
        assert committed(pipe).ids("public-orders") == {9: 1}
        pipe.save(state)
        connection.execute(f"alter publication {PUBLICATION} drop table orders")
        assert "not in publication the tap's any more" in refused(pipe)


def test_key_different_from_log_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """Older rows in the log are identified by another key, so only a full run helps."""
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        state = committed(pipe).final
        del state["bookmarks"]["public-orders"]["key"]
        pipe.save(state)
        connection.execute("delete from orders where id = 1")
        connection.execute("alter table orders rename id to number")
        line = refused(pipe)
        assert "key number is not the key by which the log identifies older rows" in line
        assert "--full" in line
        pipe.save(pipe.run(full=True).final)
        connection.execute("delete from orders where number = 2")
        assert records(committed(pipe)) == [{"number": 2, "deleted": True}]


def test_malformed_bookmark_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """A malformed bookmark is refused, and a full run needs none."""
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        state = committed(pipe).final
        state["bookmarks"]["public-orders"]["lsn"] = "0/"
        pipe.save(state)
        assert "'0/' is not a position in the log" in refused(pipe)
        whole = pipe.run(full=True)
        assert whole.ids("public-orders") == {1: 1, 2: 1, 3: 1}
        # Nor does the run that continues after its death.
        assert pipe.resumed(whole.until(1)).start == "resume"
        pipe.save(whole.final)
        connection.execute("insert into orders values (9)")
        assert committed(pipe).ids("public-orders") == {9: 1}
