"""Many streams: the next ones are read while one is sent, and what is sent does not show that."""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from singer_spark.errors import SkippedStreamsError
from tap.batch_output import batch_config, unbatched
from tap.in_process import Sent, run_tap, send, tap_of
from tap.opened import login
from tap_spark_jdbc.extract.run_state import OpeningState
from tap_spark_jdbc.send.stream_reading import StreamReading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = 9
SESSIONS = """
select state, query from pg_stat_activity
where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid()
"""


def rows_of(number: int) -> int:
    """None, one, and more than one slice of five rows."""
    return (0, 1, 17)[number % 3]


def script(schema: str = "") -> str:
    lines = []
    for number in range(TABLES):
        name = f"{schema}t{number:02d}"
        lines.append(f"create table {name} (id integer primary key, k integer not null);")
        # SQLite's indexes have a name.
        lines.append(f"create index i{number:02d} on {name} (k);")
        values = ", ".join(f"({n}, {number * 100 + n // 2})" for n in range(rows_of(number)))
        lines.append(f"insert into {name} values {values};" if values else "")
    return "\n".join(lines)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.executescript(script())
    yield connection
    connection.close()


def config_of(folder: Path, **settings: Any) -> dict[str, Any]:
    by_key = {"default_replication_method": "INCREMENTAL", "default_replication_key": "k"}
    return {
        "jdbc_url": f"jdbc:sqlite:{folder / 'shop.db'}",
        "slice_rows": 5,
        "n_jobs": 2,
        **by_key,
        **settings,
    }


def check_order(sent: Sent, stream: Callable[[int], str] = lambda number: f"t{number:02d}") -> None:
    """Streams one after another, each SCHEMA before its rows, and no STATE ahead of what precedes
    it.
    """
    seen: list[str] = []
    greatest: dict[str, int] = {}
    rows: Counter[str] = Counter()
    for message in unbatched(sent.messages):
        if message["type"] == "SCHEMA":
            seen.append(message["stream"])
        elif message["type"] == "RECORD":
            name = message["stream"]
            assert seen[-1] == name
            rows[name] += 1
            greatest[name] = max(greatest.get(name, 0), message["record"]["k"])
        else:
            for name, bookmark in message["value"]["bookmarks"].items():
                # All rows below a bookmark precede it, and at its own value as many as its boundary
                # knows.
                number = int(name[-2:])
                value, at_value = bookmark["replication_key_value"], bookmark["boundary"]["rows"]
                below = sum(number * 100 + n // 2 < value for n in range(rows_of(number)))
                assert rows[name] == below + at_value, (name, bookmark)
    assert seen == sorted(seen) == [stream(number) for number in range(TABLES)]
    assert {name: count for name, count in rows.items()} == {
        stream(number): rows_of(number) for number in range(TABLES) if rows_of(number)
    }


@pytest.mark.parametrize("way", ["records", "batches"])
def test_many_streams_keep_order_and_state(
    shop: sqlite3.Connection, tmp_path: Path, way: str
) -> None:
    """Many streams are sent in their order, and no state is ahead of its rows."""
    config = config_of(tmp_path)
    if way == "batches":
        config["batch_config"] = batch_config(tmp_path / "batches")
    sent = run_tap(config).succeeded()
    check_order(sent)

    idle = run_tap(config, sent.final["value"]).succeeded()
    assert not [message for message in idle.messages if message["type"] in ("RECORD", "BATCH")]
    assert idle.final["value"] == sent.final["value"]


def test_each_postgresql_stream_has_its_own_snapshot(
    spark: SparkSession, postgresql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL each stream is read in its own snapshot, and all are released."""
    database = postgresql.new_database()
    snapshots: dict[str, str | None] = {}
    make = StreamReading.begin

    def watched(reading: Any) -> None:
        make(reading)
        snapshots[reading.plan.stream] = reading.context.snapshots.source.snapshot

    monkeypatch.setattr(StreamReading, "begin", watched)
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(script("public."))
        config = config_of(Path(), **login(database))
        tap = tap_of(config, OpeningState({}, "first"))
        sent = send(tap).succeeded()
        check_order(sent, lambda number: f"public-t{number:02d}")
        # A server takes a moment to see that a client has left.
        give_up = time.monotonic() + 60
        while still_open := connection.execute(SESSIONS).fetchall():
            assert time.monotonic() < give_up, still_open
    assert None not in snapshots.values()
    assert len(set(snapshots.values())) == TABLES


@pytest.mark.parametrize("fails_at", ["its bounds", "its rows"])
def test_stream_failing_early_fails_at_its_turn(
    shop: sqlite3.Connection, tmp_path: Path, fails_at: str
) -> None:
    """A stream that fails before its turn ends the run in its place."""
    failing = "t05"
    tap = tap_of({**config_of(tmp_path), "tables": ["*", failing]}, OpeningState({}, "first"))
    assert len(tap.streams) == TABLES
    shop.execute(
        f"drop table {failing}"
        if fails_at == "its bounds"
        else f"alter table {failing} rename id to other"
    )

    sent = send(tap)

    assert re.match(rf"TAP-00[34] stream {failing}: ", sent.failed())
    before = [f"t{number:02d}" for number in range(5)]
    for number, stream in enumerate(before):
        assert sent.values(stream, "id") == Counter(range(rows_of(number)))
    # All in front are whole, and the last STATE says so.
    *_, last = [message for message in sent.messages if message["type"] == "STATE"]
    assert set(last["value"]["bookmarks"]) == {name for n, name in enumerate(before) if rows_of(n)}
    assert {message.get("stream") for message in sent.messages} <= {None, *before, failing}
    assert not [
        message
        for message in sent.messages
        if message["type"] == "RECORD" and message["stream"] == failing
    ]


def test_skip_leaves_out_streams_failing_early(shop: sqlite3.Connection, tmp_path: Path) -> None:
    """Under skip, streams that fail before their turn are left out and all others arrive."""
    failing = ["t02", "t03", "t05", "t08"]
    tap = tap_of(config_of(tmp_path, on_stream_error="skip"), OpeningState({}, "first"))
    assert len(tap.streams) == TABLES
    for number, stream in enumerate(failing):
        shop.execute(
            f"drop table {stream}" if number % 2 else f"alter table {stream} rename id to other"
        )

    sent = send(tap)

    assert isinstance(sent.error, SkippedStreamsError)
    assert sent.final["skipped"] == failing
    for number in range(TABLES):
        stream = f"t{number:02d}"
        wanted = 0 if stream in failing else rows_of(number)
        assert sent.values(stream, "id") == Counter(range(wanted)), stream
        assert (stream in sent.final["value"]["bookmarks"]) == bool(wanted)


@pytest.mark.usefixtures("short_pauses")
def test_streams_are_sequential_without_connections(
    spark: SparkSession, postgresql: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """If the server has no more connections, the streams are read one after another."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(script("public."))
        # For the bounds, the snapshot, and two readers: where a second stream is begun, none is
        # left to read by.
        connection.execute("create role few login password 'few' connection limit 4")
        connection.execute(
            "grant usage on schema public to few; grant select on all tables in schema public to "
            "few"
        )
        try:
            config = config_of(Path(), **{**login(database), "user": "few", "password": "few"})
            sent = run_tap(config).succeeded()
        finally:
            connection.execute("drop owned by few; drop role few")
    check_order(sent, lambda number: f"public-t{number:02d}")
    assert "each stream begins after the one before" in caplog.text
