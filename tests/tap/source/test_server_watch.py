"""No connection waits forever for a server that is gone, and none is taken from a slow query."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from end_to_end.marked import until
from servers.wire import Wire, relayed
from singer_spark.engine.spark_jvm import jvm_process_id
from singer_spark.errors import ConnectionLostError, SourceError
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.source import open_connections
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.source.libpq import conninfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVERS = ["postgresql", "mariadb", "mysql"]
SLOW = {
    "postgresql": "select count(*) from (select pg_sleep(1.5)) s",
    **dict.fromkeys(["mariadb", "mysql"], "select 1 + sleep(1.5)"),
}
HASTE = {
    "postgresql": {"loginTimeout": "1", "socketTimeout": "1"},
    **{name: {"connectTimeout": "1000", "socketTimeout": "1000"} for name in ("mariadb", "mysql")},
}
# The kernel's timers, in `/proc/net/tcp`: 2 is the one of keepalives, in hundredths of a second.
KEEPALIVE, LONGEST = "02", 100 * open_connections.KEEPALIVE_SECONDS


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def wired(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession, quick_watch: None
) -> Iterator[tuple[Wire, Database]]:
    """A watched source behind a wire."""
    database = request.getfixturevalue(kind).new_database()
    with relayed(database.host, database.port) as wire:
        url = database.jdbc_url.replace(f":{database.port}", f":{wire.port}")
        login = {"jdbc_url": url, "user": database.user, "password": database.password}
        source = Database(TapSettings.from_config(login))
        alive = replace(source.source.dialect.alive, properties=HASTE[kind])
        source.source = replace(source.source, dialect=replace(source.source.dialect, alive=alive))
        yield wire, source
    # The relay is gone, and with it all that waited.
    source.close()


def test_silent_server(wired: tuple[Wire, Database], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers nothing any more, and no new connection, ends the run by an error that
    says so.
    """
    wire, source = wired
    found: list[Exception] = []
    monkeypatch.setattr(open_connections, "stop_by_error", found.append)
    source.snapshot_connection.rows("select 1")
    wire.silence()

    def ask() -> None:
        with suppress(SourceError):
            source.snapshot_connection.rows("select 2")

    threading.Thread(target=ask, daemon=True).start()
    until(lambda: found, "the end of the run")
    assert isinstance(found[0], ConnectionLostError)


def test_cut_connection(wired: tuple[Wire, Database]) -> None:
    """A question whose connection was cut without a word, as by a firewall, is asked again over a
    new one.
    """
    wire, source = wired
    source.connection.rows("select 1")
    wire.cut()
    assert source.connection.rows("select 2") == [("2",)]


def test_slow_query(wired: tuple[Wire, Database], kind: str) -> None:
    """A query that takes many times as long as a silence may keeps its connection."""
    _, source = wired
    before = source.connection.session
    assert source.connection.rows(SLOW[kind]) == [("1",)]
    assert source.connection.session == before


def test_kernel_looks_at_connections(wired: tuple[Wire, Database]) -> None:
    """The kernel looks after each connection of the JVM soon, not after two hours."""
    wire, source = wired
    source.connection.rows("select 1")

    def timers() -> list[tuple[str, int]]:
        lines = Path(f"/proc/{jvm_process_id()}/net/tcp6").read_text().splitlines()[1:]
        lines += Path(f"/proc/{jvm_process_id()}/net/tcp").read_text().splitlines()[1:]
        words = [line.split() for line in lines]
        return [
            (kind, int(when, 16))
            for kind, _, when in (
                each[5].partition(":") for each in words if each[2].endswith(f":{wire.port:04X}")
            )
        ]

    until(
        lambda: any(kind == KEEPALIVE and 0 < when <= LONGEST for kind, when in timers()),
        "a keepalive's timer",
    )


def test_libpq_limits(postgresql: Any) -> None:
    """libpq gets the same limits in its connection string."""
    database = postgresql.new_database()
    words = conninfo(
        Database(TapSettings.from_config({"jdbc_url": database.jdbc_url, "user": "u"})).source
    )
    for word in (
        "keepalives_idle='30'",
        "keepalives_interval='10'",
        "keepalives_count='4'",
        "tcp_user_timeout='80000'",
    ):
        assert word in words
