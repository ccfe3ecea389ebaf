"""Connections that break in the middle of a run: what was asked is asked again, and each row comes
once.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.marked import SECONDS, until
from servers import postgresql as server
from servers.postgresql import Database, PostgreSQL
from singer_spark.errors import ConnectionLostError, SkippedStreamsError, SourceError
from tap.in_process import run_tap
from tap.opened import login
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source import connection_errors
from tap_spark_jdbc.source.connection_errors import again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2000
# A reader stops here while somebody holds the lock. It polls: sessions of the tap wait for a lock
# only a second.
WAIT = """
  while not pg_try_advisory_lock_shared(7) loop perform pg_sleep(0.01); end loop;
  perform pg_advisory_unlock_shared(7);
"""
SCRIPT = f"""
create table rows (id int, k int not null); insert into rows select n, n from generate_series(1,
  {ROWS}) n;
create function hold(id int) returns int language plpgsql volatile as $$
begin
  if id = {ROWS // 2} then {WAIT} end if;
  return id;
end $$;
create view a_held as select hold(id) as id from rows;
create table b_next as select * from rows; create index on b_next (k);
"""
EACH_ONCE = Counter(range(1, ROWS + 1))
BLOCKED = (
    "select pid from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
)


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Does something beside the test; what it fails with, the test fails with."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
    assert not failures, failures


def blocked(connection: psycopg.Connection[Any], seconds: float = SECONDS) -> int:
    """The process of the reader that waits in the middle of its slice."""
    (found,) = until(
        lambda: connection.execute(BLOCKED).fetchone(),
        "a reader at the row where it waits",
        seconds=seconds,
    )
    return int(found)


def config_of(database: Database, reader: str) -> dict[str, Any]:
    bounds = {"tables": ["a_held", "b_next"], "incremental_tables": ["public.b_next:k:integer"]}
    return login(database, **bounds, fetch_size=50, slice_rows=500, reader=reader)


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_broken_slice_is_read_again_without_repeats(
    spark: SparkSession, postgresql: Any, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    """A slice whose connection breaks is read again, and no row arrives twice."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(SCRIPT)
        connection.execute("select pg_advisory_lock(7)")

        def end_the_reader() -> None:
            connection.execute("select pg_terminate_backend(%s)", [blocked(connection)])
            connection.execute("select pg_advisory_unlock(7)")

        with meanwhile(end_the_reader):
            sent = run_tap(config_of(database, reader))

    sent.succeeded()
    for stream in ("public-a_held", "public-b_next"):
        assert sent.values(stream, "id") == EACH_ONCE
    assert sent.final["value"]["bookmarks"]["public-b_next"]["replication_key_value"] == ROWS
    assert "trying again in 0.2 s (1 of 6)" in caplog.text


@pytest.fixture(scope="module")
def own() -> Iterator[tuple[Path, PostgreSQL]]:
    """A server that may crash, and its folder."""
    # Not in a folder of pytest's: the server's account can't enter those.
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        # Tables made right before the crash are there after it.
        with server.running(Path(folder), synchronous_commit="on") as facts:
            yield Path(folder), PostgreSQL(**facts)


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_server_restart_fails_only_current_stream(
    spark: SparkSession,
    own: tuple[Path, PostgreSQL],
    monkeypatch: pytest.MonkeyPatch,
    reader: str,
) -> None:
    """A server that restarts during a stream fails only that stream, in one line."""
    folder, crashing = own
    monkeypatch.setattr(connection_errors, "PAUSES", (0.2,) * 100)
    database = crashing.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(SCRIPT)
        connection.execute("select pg_advisory_lock(7)")

        def crash() -> None:
            # The tap's own connection, for bounds, ends too.
            blocked(connection)
            server.restart(folder)

        with meanwhile(crash):
            sent = run_tap({**config_of(database, reader), "on_stream_error": "skip"})
    continued = run_tap(config_of(database, reader), sent.final["value"])

    # No reader sees the snapshot of the stream again.
    assert isinstance(sent.error, SkippedStreamsError)
    assert "1 of 2 streams did not arrive" in str(sent.error)
    assert "stream public-a_held: reading failed: the server has lost the snapshot" in str(
        sent.error
    )
    assert "run again" in str(sent.error)
    assert (sent.values("public-a_held", "id"), sent.values("public-b_next", "id")) == (
        {},
        EACH_ONCE,
    )
    continued.succeeded()
    assert (continued.values("public-a_held", "id"), continued.values("public-b_next", "id")) == (
        EACH_ONCE,
        {},
    )


def test_persistent_breaks_fail_with_growing_pauses() -> None:
    """A connection that stays broken fails after some attempts with growing pauses."""
    attempts, pauses = [], []

    def fail() -> None:
        attempts.append(1)
        raise ConnectionLostError(TapCode.CONNECTION_LOST, "the server is gone")

    with pytest.raises(ConnectionLostError, match="TAP-002"):
        again(fail, pauses.append)

    assert pauses == list(connection_errors.PAUSES) == sorted(set(pauses))
    assert len(attempts) == len(pauses) + 1


def test_refused_statement_is_not_retried() -> None:
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise SourceError(TapCode.GRANT_MISSING, "permission denied")

    with pytest.raises(SourceError):
        again(fail, lambda _: None)
    assert len(attempts) == 1


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_statement_timeout_is_one_line_with_remedy(
    spark: SparkSession, postgresql: Any, reader: str
) -> None:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            "create view endless as select n, cast(pg_sleep(3600) as text) as done from "
            "generate_series(1, 3) n"
        )
    config = login(database, tables=["endless"], reader=reader)

    error = run_tap(
        {**config, "jdbc_url": f"{database.jdbc_url}?options=-c%20statement_timeout=1000"}
    ).failed()

    assert error.startswith("TAP-009 stream public-endless: ")
    assert "canceling statement due to statement timeout" in error
    assert "give the statement more time" in error
    assert "\n" not in error
