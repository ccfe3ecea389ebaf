"""Rows whose key or values the log has in another way, and what changes while a run begins or after
it dies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from servers.postgresql import PostgreSQL
from singer_spark.errors import SourceError
from tap.wal.piped import TABLE, committed, piped, records, refused
from tap_spark_jdbc.plan.stream_plan import StreamPlan
from tap_spark_jdbc.wal.change_lines import rows_at
from tap_spark_jdbc.wal.log_run import LogRun

KEYED = """
create table orders (id text primary key, note text);
alter table orders alter id set storage external;
insert into orders values (repeat('k', 2500), 'old');
"""


@pytest.mark.parametrize("identity", ["default", "full"])
def test_key_stored_out_of_line_remains_key(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, identity: str
) -> None:
    script = f"{KEYED} alter table orders replica identity {identity}"
    with piped(postgresql, tmp_path, script) as (pipe, connection):
        committed(pipe)
        connection.execute("update orders set note = 'new'")
        assert records(committed(pipe)) == [{"id": "k" * 2500, "note": "new"}]
        connection.execute("update orders set id = 'short'")
        moved = records(committed(pipe))
        assert [(each["id"], each.get("deleted")) for each in moved] == [
            ("k" * 2500, True),
            ("short", None),
        ]


def test_row_entering_filter_keeps_large_values(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """The server sends this update as an insert without the unchanged large values."""
    script = TABLE + 'create publication "the tap\'s" for table orders where (id < 50) '
    with piped(postgresql, tmp_path, script + "with (publish_via_partition_root = true)") as (
        pipe,
        connection,
    ):
        connection.execute("insert into orders values (100, 'out', repeat('y', 5000))")
        committed(pipe)
        connection.execute("update orders set id = 10 where id = 100")
        connection.execute("insert into orders values (11, 'new', null)")
        assert records(committed(pipe)) == [
            {"id": 10, "note": "out", "body": "y" * 5000},
            {"id": 11, "note": "new", "body": None},
        ]


@pytest.mark.parametrize("died_at", [-2, 1])
def test_truncate_is_repeated_on_resume(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, died_at: int
) -> None:
    """Another stream was being read when the run died."""
    with piped(postgresql, tmp_path, TABLE + "create table whole (id int primary key)") as (
        pipe,
        connection,
    ):
        pipe.config["stream_options"]["public-whole"] = {"replication_method": "FULL_TABLE"}
        committed(pipe)
        connection.execute("truncate orders")
        connection.execute("insert into orders values (7, 'last', null)")
        sent = pipe.run()
        (activated,) = [each for each in sent.messages if each["type"] == "ACTIVATE_VERSION"]
        dead = sent.until(died_at % len(sent.states))
        assert "final" not in dead.states[-1]
        rest = pipe.resumed(dead)
        assert activated in rest.messages
        again = rest.until(len(rest.states) - 2)
        assert activated in pipe.resumed(again).messages
        # The state that is saved has no word of it: no later run says it again.
        assert "version" not in rest.final["bookmarks"]["public-orders"]
        assert "version" not in sent.final["bookmarks"]["public-orders"]
        pipe.save(rest.final)
        connection.execute("insert into orders values (8, 'after', null)")
        later = pipe.run()
        assert not [each for each in later.messages if each["type"] == "ACTIVATE_VERSION"]
        assert records(later) == [{"id": 8, "note": "after", "body": None}]


def test_column_added_while_a_run_begins_is_kept(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column that appears while a run begins is not skipped."""
    with piped(postgresql, tmp_path, TABLE) as (pipe, connection):
        prepare = LogRun.prepare

        def once(column: str) -> None:
            """Between what the run has found out of the table and the place to which it reads."""

            def altered(log: LogRun, plans: Sequence[StreamPlan]) -> None:
                monkeypatch.setattr(LogRun, "prepare", prepare)
                connection.execute(f"alter table orders add {column} int")
                connection.execute(f"insert into orders (id, {column}) values (nextval('ids'), 5)")
                prepare(log, plans)

            monkeypatch.setattr(LogRun, "prepare", altered)

        connection.execute("create sequence ids start 10")
        once("first")
        assert re.search("TAP-064 stream public-orders: .*first", refused(pipe))
        assert committed(pipe).values("public-orders", "first") == {None: 3, 5: 1}
        once("second")
        assert re.search("TAP-064 stream public-orders: .*second", refused(pipe))
        # One that is gone by now is of no use.
        connection.execute("alter table orders add gone int")
        connection.execute("insert into orders (id, gone) values (1000, 1)")
        connection.execute("alter table orders drop gone")
        assert records(committed(pipe)) == [
            {"id": 11, "note": None, "body": None, "first": None, "second": 5},
            {"id": 1000, "note": None, "body": None, "first": None, "second": None},
        ]


def test_rows_of_another_width_are_refused() -> None:
    """The log says how many columns a row has, and which its table has: both must agree."""
    row = np.frombuffer(b"\x00\x02nn", np.uint8)
    assert set(rows_at(row, np.array([0]), ["id", "note"]).columns) == {"id", "note"}
    with pytest.raises(SourceError, match="TAP-063"):
        rows_at(row, np.array([0]), ["id"])
