"""RECORD lines that the columnar driver gives: the rows, bookmarks and refusals of Spark's, without
a session.
"""

from __future__ import annotations

import base64
import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_postgresql
import psycopg
import pyarrow as pa
import pytest

from tap.batch_output import JSON, batch_config, records_of
from tap.in_process import Sent, run_tap
from tap.opened import filled, login
from tap_spark_jdbc.send import stream_output, stream_reading
from tap_spark_jdbc.source import database as opened_database
from tap_spark_jdbc.supply import columnar_query, record_lines

pytestmark = pytest.mark.usefixtures("spark")

TABLE = """
    create table t (id int primary key, at timestamp, price float8, note text);
    create index on t (at);
    insert into t select n, timestamp '2026-01-01' + (n / 4) * interval '1 s', n * 1e10, 'row "'
      || n || E'\\\\\\t'
    from generate_series(1, 50) n;
    insert into t values (51, null, 'NaN', 'without');
"""


@pytest.fixture
def shop(postgresql: Any) -> Iterator[tuple[Any, psycopg.Connection[Any]]]:
    with filled(postgresql, TABLE) as opened:
        yield opened


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is not asked."""

    def needless(*given: Any) -> None:
        raise AssertionError("there is no need for it")

    monkeypatch.setattr(opened_database, "get_context", needless)
    monkeypatch.setattr(opened_database, "get_session", needless)


def run(database: Any, state: JSON | None = None, **settings: Any) -> Sent:
    return run_tap(login(database, **{"tables": ["t"], **settings}), state)


def records(sent: Sent) -> list[JSON]:
    found = [each["record"] for each in sent.messages if each["type"] == "RECORD"]
    return sorted(found, key=lambda each: each["id"])


@pytest.mark.parametrize("readers", [("arrow", "jdbc"), ("jdbc", "arrow")])
def test_reader_change_at_bookmark_loses_nothing(shop: Any, readers: tuple[str, str]) -> None:
    """No row is lost or repeated at the bookmark, whichever reader comes next."""
    database, connection = shop
    settings: JSON = {"incremental_tables": ["t:at:timestamp"], "slice_rows": 20}
    first = run(database, **settings, reader=readers[0]).succeeded()
    assert first.values("public-t", "id") == Counter(range(1, 52))
    connection.execute("insert into t values (60, '2026-01-01 00:00:12', 1e20, 'tie')")
    connection.execute("update t set note = 'changed' where id = 49")
    connection.execute(
        "insert into t select n, '2026-01-02', 0.1, 'new' from generate_series(100, 170) n"
    )
    second = run(database, first.final["value"], **settings, reader=readers[1]).succeeded()
    assert second.values("public-t", "id") == Counter([49, 51, 60, *range(100, 171)])
    third = run(database, second.final["value"], **settings, reader="jdbc").succeeded()
    assert third.values("public-t", "id") == Counter([51])


def test_both_readers_send_same_records(shop: Any) -> None:
    database, _ = shop
    by_arrow, by_jdbc = (
        records(run(database, reader=reader).succeeded()) for reader in ("arrow", "jdbc")
    )
    assert by_arrow == by_jdbc
    assert [each["note"] for each in by_arrow[:1]] == ['row "1\\\t']


@pytest.mark.usefixtures("alone")
def test_tables_views_and_queries_need_no_spark(shop: Any) -> None:
    """No Spark session starts where everything runs on this machine."""
    database, connection = shop
    connection.execute("create view seen as select * from t; create table heap as select * from t")
    queries = [{"name": "asked", "sql": "select id, at, note from t where id < 10"}]
    sent = run(database, tables=["t", "seen", "heap"], queries=queries).succeeded()
    for stream in ("public-t", "public-seen", "public-heap"):
        assert sent.values(stream, "id") == Counter(range(1, 52))
    assert sent.values("asked", "id") == Counter(range(1, 10))


@pytest.mark.usefixtures("alone")
def test_keys_for_detect_deletes_need_no_spark(shop: Any, tmp_path: Path) -> None:
    database, _ = shop
    settings: JSON = {
        "incremental_tables": ["t:at:timestamp!upsert"],
        "stream_options": {"*": {"detect_deletes": True}},
        "batch_config": batch_config(tmp_path / "batches"),
    }
    messages = run(database, **settings).succeeded().messages
    batches = [
        record["id"] for each in messages if each["type"] == "BATCH" for record in records_of(each)
    ]
    keys = [each["record"]["id"] for each in messages if each["type"] == "RECORD"]
    assert Counter(keys) == Counter(batches) == Counter(range(1, 52))


@pytest.mark.usefixtures("alone")
def test_bytes_come_in_base64_without_line_breaks(shop: Any) -> None:
    database, connection = shop
    connection.execute("alter table t add column data bytea")
    connection.execute("update t set data = decode(repeat('00ff', id * 10), 'hex') where id < 51")
    found = {
        each["id"]: each["data"] for each in records(run(database, reader="arrow").succeeded())
    }
    wanted = {number: base64.b64encode(b"\0\xff" * 10 * number).decode() for number in range(1, 51)}
    assert found == wanted | {51: None}


def test_missing_driver_uses_jdbc_or_is_an_error(
    shop: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is not installed falls back to JDBC, or is an error if asked for."""
    database, _ = shop
    monkeypatch.setattr(
        stream_reading, "find_spec", lambda name: None if name == "pyarrow" else name
    )
    refused = run(database, reader="arrow").failed()
    assert refused.startswith("TAP-029 stream public-t: ")
    assert "pyarrow is not installed" in refused
    with caplog.at_level("INFO"):
        assert len(records(run(database).succeeded())) == 51
    assert caplog.text.count("stream public-t: read over JDBC: pyarrow is not installed") == 1


def test_columnar_connection_failure_uses_jdbc(
    shop: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*given: Any) -> Any:
        raise columnar_query.Unreachable("no route")

    database, connection = shop
    connection.execute("create view seen as select * from t")
    monkeypatch.setattr(columnar_query, "_connected", connected)
    sent = run(database, tables=["t", "seen"], slice_rows=20).succeeded()
    assert (
        sent.values("public-t", "id") == sent.values("public-seen", "id") == Counter(range(1, 52))
    )
    assert caplog.text.count("read over JDBC from here on") == 1
    assert "no route" in run(database, reader="arrow").failed()


def test_rows_of_a_state_of_java_17_are_known(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1.0 printed floats by Java, and Java 17 prints more digits of some."""
    database, connection = shop
    connection.execute(
        "create table f (id integer primary key, k integer, small real, whole double precision)"
    )
    connection.execute(
        "insert into f select n, 1, 813694984 + n * 64, 22658735625207808 + n * 4 from "
        "generate_series(1, 3000) n"
    )
    settings: JSON = {"incremental_tables": ["f:k:integer!append"], "tables": ["f"]}
    with monkeypatch.context() as patched:
        patched.setattr(record_lines, "_spelled", record_lines._spelled_by_java_17)
        few = run(database, stream_options={"*": {"where": "id <= 900"}}, **settings).succeeded()
        many = run(database, **settings).succeeded()
    connection.execute("update f set small = small + 1024 where id in (5, 2000)")
    # As behind a restored dump: the server is another one, and says nothing of what was seen.
    for first, reader, options, sent in (
        (few, "arrow", {"where": "id <= 900"}, [5]),
        (many, "jdbc", {}, [5, 2000]),
        (many, "arrow", {}, [5, 2000]),
    ):
        state, again = first.final["value"], {**settings, "stream_options": {"*": options}}
        state["bookmarks"]["public-f"].pop("snapshot", None)
        second = run(database, state, reader=reader, **again).succeeded()
        found = second.values("public-f", "id")
        assert set(sent) <= set(found)
        assert len(found) < 100
        third = run(database, second.final["value"], **again).succeeded()
        assert third.values("public-f", "id") == Counter()


def test_started_scan_is_not_restarted(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a scan has sent lines, a value that does not fit is an error."""
    database, connection = shop
    connection.execute(
        "create view many as select n as id, repeat('x', 1000) as v from generate_series(1, 20000) "
        "n"
    )
    fitted, seen = columnar_query._fitted, list[int]()

    def fitted_at_first(column: pa.Array, kind: pa.DataType) -> pa.Array:
        seen.append(1)
        if len(seen) > 4:
            raise pa.ArrowInvalid("it does not fit")
        return fitted(column, kind)

    monkeypatch.setattr(columnar_query, "_fitted", fitted_at_first)
    reported = run(database, tables=["many"]).failed()
    assert reported == (
        "TAP-004 stream public-many: column id holds a value that does not fit: it does not fit; "
        "set its type_overrides to text (reader jdbc names the value)"
    )
    seen.extend([1] * 4)
    assert run(database, tables=["many"]).succeeded().values("public-many", "id") == Counter(
        range(1, 20_001)
    )


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("timestamp", "infinity", "it is infinite, or lies outside of the years 1 to 9999"),
        ("numeric(10, 2)", "NaN", "The string 'NaN' is not a valid decimal128 number"),
    ],
)
def test_value_no_lake_holds_is_refused_in_a_scan(
    shop: Any, kind: str, value: str, why: str
) -> None:
    """A value that no lake can hold is refused by its column in a scan too."""
    database, connection = shop
    # At the end of the table, when lines are on their way.
    odd = f"cast(case n when 20000 then '{value}' end as {kind}) as odd, repeat('x', 500) as v"
    connection.execute(
        f"create table many as select n as id, {odd} from generate_series(1, 20000) n"
    )
    reported = run(database, tables=["many"]).failed()
    assert reported == (
        f"TAP-004 stream public-many: column odd holds a value that does not fit: {why}; "
        "set its type_overrides to text (reader jdbc names the value)"
    )


@pytest.mark.parametrize("table", ["t", "seen"])
def test_full_spool_disk_is_one_line_error(
    shop: Any, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    def opened(self: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    database, connection = shop
    connection.execute("create view seen as select * from t")
    monkeypatch.setattr(record_lines.RecordLines, "_opened", opened)
    assert "no space left on the disk for " in run(database, tables=[table]).failed()


def test_retried_connection_repeats_no_line(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that breaks is retried, and its lines arrive once."""
    database, connection = shop
    connection.execute(
        "insert into t select n, null, 1, repeat('long ', 2000) from generate_series(100, 3000) n"
    )
    opened, begun = record_lines.RecordLines._opened, tmp_path / "begun"

    def opened_once(self: Any) -> Any:
        if not begun.exists():
            begun.touch()
            with psycopg.connect(database.dsn, autocommit=True) as killer:
                killer.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where query like "
                    "'COPY%'"
                )
        return opened(self)

    monkeypatch.setattr(record_lines.RecordLines, "_opened", opened_once)
    sent = run(database, reader="arrow", slice_rows=30_000).succeeded()
    assert sent.values("public-t", "id") == Counter([*range(1, 52), *range(100, 3001)])
    assert caplog.text.count("trying again in 0.2 s (1 of 6)") == 1


def test_connection_test_reads_one_row(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    database, _ = shop
    asked: list[str] = []
    read = columnar_query.read

    def reading(query: Any, *given: Any) -> Any:
        asked.append(query.sql)
        return read(query, *given)

    monkeypatch.setattr(columnar_query, "read", reading)
    monkeypatch.setattr(stream_output.LineReading, "_limit", 1)
    assert len(records(run(database))) == 1
    assert asked
    assert all(each.endswith(" LIMIT 1") for each in asked)


def test_database_is_opened_once_per_run(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    database, connection = shop
    connection.execute("create table other as select * from t")
    opened: list[str] = []
    connect = adbc_driver_postgresql.connect

    def connecting(uri: str) -> Any:
        opened.append(uri)
        return connect(uri)

    monkeypatch.setattr(adbc_driver_postgresql, "connect", connecting)
    for runs in (1, 2):
        sent = run(database, tables=["t", "other"], slice_rows=20).succeeded()
        assert (
            sent.values("public-t", "id")
            == sent.values("public-other", "id")
            == Counter(range(1, 52))
        )
        assert len(opened) == runs
