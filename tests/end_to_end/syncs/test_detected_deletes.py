"""Rows that are deleted in a real database, through the real pipe: the table follows, or the run
changes nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.live_pipe import TAP, LivePipe, Victim
from end_to_end.pipe import Pipe
from end_to_end.relay import Moment
from end_to_end.round_trip import RoundTrip
from singer_spark.errors import RecordError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = """
create table orders (region text, id bigint, note text, updated_at timestamp not null,
  primary key (region, id));
insert into orders select 'r' || n % 3, n, 'order ' || n,
  timestamp '2025-01-01' + n * interval '1 second'
  from generate_series(1, 3000) n;
create index on orders (updated_at);
"""
COLUMNS = "region, id, note"


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgresql.new_database().dsn, autocommit=True) as connection:
        connection.execute(CREATE)
        yield connection


@pytest.fixture
def pipe(connection: psycopg.Connection[Any], tmp_path: Any) -> Pipe:
    facts = connection.info
    tap = {
        "jdbc_url": f"jdbc:postgresql://{facts.host}:{facts.port}/{facts.dbname}",
        "user": facts.user,
        "password": facts.password,
        "incremental_tables": ["public.orders:updated_at:timestamp!upsert"],
        "stream_options": {"public-orders": {"detect_deletes": True}},
        "slice_rows": 500,
    }
    return Pipe(tmp_path, tap, {"hard_delete": True})


def source(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(
        f'select {COLUMNS} from orders order by region collate "C", id'
    ).fetchall()


def test_deletes_are_applied_after_death_among_keys(
    spark: SparkSession, connection: psycopg.Connection[Any], pipe: Pipe
) -> None:
    """Only the two runs around the death are processes; the others run in this one."""
    trip = RoundTrip(pipe.bucket, pipe.tap)
    trip.run(with_state=True, **pipe.target)
    assert pipe.rows("public-orders", COLUMNS) == source(connection)
    connection.execute("delete from orders where id % 50 = 7")
    connection.execute(
        "update orders set note = 'changed', updated_at = '2025-02-01' where id % 100 = 3"
    )
    connection.execute("insert into orders values ('r9', 1, 'new', '2025-02-02')")
    # 31 records, and then keys.
    with LivePipe(
        pipe, "--state", str(pipe.state_path), moment=Moment(records=1000), victims=(Victim(TAP),)
    ) as live:
        ended = live.wait()
    assert ended.codes == (-signal.SIGKILL, 1), ended.outcome
    assert len(pipe.rows("public-orders", COLUMNS)) == 3000
    rest = pipe.run().succeeded()
    assert "2941 keys sent" in rest.tap_errors
    assert pipe.rows("public-orders", COLUMNS) == source(connection)
    assert [path.name for path in (pipe.bucket / "raw").iterdir()] == ["public-orders"]
    assert list(pipe.state["bookmarks"]) == ["public-orders"]
    before = pipe.state
    connection.execute("delete from orders where region = 'r1'")
    with pytest.raises(RecordError, match=r"LAKE-025 .*2941"):
        trip.run(with_state=True, **pipe.target)
    assert (pipe.state, len(pipe.rows("public-orders"))) == (before, 2941)
