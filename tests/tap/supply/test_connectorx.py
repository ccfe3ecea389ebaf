"""MariaDB's rows by ConnectorX: the rows, bookmarks and refusals of JDBC, and what the library
itself does not do.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from servers.mariadb import MariaDatabase
from servers.processes import children
from tap.batch_output import JSON, batch_config
from tap.in_process import Sent
from tap.opened import login, source_of
from tap.supply.arrow_runs import made_by, sent_ids
from tap.supply.mariadb_shop import READER, execute, new_shop, query, records, run
from tap_spark_jdbc.send import stream_reading
from tap_spark_jdbc.source.mariadb_login import MariaDbLogin, login_of
from tap_spark_jdbc.supply import columnar_source, connectorx_rows, jdbc_reader
from tap_spark_jdbc.supply.connectorx_rows import RowQuery, SupplyError

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def shop(mariadb: Any) -> MariaDatabase:
    return new_shop(mariadb)


@pytest.fixture
def only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row comes over JDBC."""

    def needless(*given: Any, **named: Any) -> None:
        raise AssertionError("a slice was read over JDBC")

    monkeypatch.setattr(jdbc_reader.JdbcReader, "read", needless)


@pytest.mark.parametrize(
    ("readers", "batches"), [(("arrow", "jdbc"), False), (("jdbc", "arrow"), True)]
)
def test_reader_change_at_bookmark_loses_nothing(
    shop: MariaDatabase, tmp_path: Path, readers: tuple[str, str], batches: bool
) -> None:
    """No row is lost or repeated at the bookmark, whichever reader comes next."""
    settings: JSON = {"incremental_tables": ["t:at:timestamp"], "slice_rows": 20}
    if batches:
        settings["batch_config"] = batch_config(tmp_path / "batches")

    def ids(sent: Sent) -> Counter[int]:
        return sent_ids(sent) if batches else sent.values(f"{shop.name}-t", "id")

    first = run(shop, **settings, reader=readers[0]).succeeded()
    assert ids(first) == Counter(range(1, 52))
    execute(
        shop,
        "insert into t values (60, '2026-01-01 00:00:12', 1e20, 'tie', null)",
        "update t set note = 'changed' where id = 49",
        "insert into t select seq, '2026-01-02', 0.1, 'new', null from seq_100_to_170",
    )
    second = run(shop, first.final["value"], **settings, reader=readers[1]).succeeded()
    assert ids(second) == Counter([49, 51, 60, *range(100, 171)])
    third = run(shop, second.final["value"], **settings, reader="jdbc").succeeded()
    assert ids(third) == Counter([51])


def test_auto_takes_it_where_there_are_rows_enough(
    shop: MariaDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings: JSON = {"reader": "auto", "batch_config": batch_config(tmp_path / "batches")}
    caplog.set_level("INFO")
    assert made_by(run(shop, **settings).succeeded()) == {"jdbc"}
    assert caplog.text.count("read over JDBC: fewer than 50,000 rows") == 1
    monkeypatch.setattr(columnar_source, "FEW_ROWS", 10)
    sent = run(shop, **settings).succeeded()
    assert made_by(sent) == {"arrow"}
    assert sent_ids(sent) == Counter(range(1, 52))
    assert caplog.text.count(f"stream {shop.name}-t: read by connectorx") == 1


def test_missing_connectorx_uses_jdbc(
    shop: MariaDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = stream_reading.find_spec
    monkeypatch.setattr(
        stream_reading, "find_spec", lambda name: None if name == "connectorx" else found(name)
    )
    caplog.set_level("INFO")
    assert len(records(run(shop, reader="auto").succeeded())) == 51
    assert caplog.text.count("read over JDBC: connectorx is not installed") == 1
    assert "connectorx is not installed" in run(shop).failed()


def test_spark_s_engine_reads_over_jdbc(
    shop: MariaDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert len(records(run(shop, reader="auto", engine="spark").succeeded())) == 51
    assert "connectorx" not in caplog.text


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ("sslMode=verify-full", "sslmode"),
        ("sslMode=trust", "sslmode"),
        ("localSocket=/tmp/socket", "localsocket"),
        ("keyStore=/tmp/keys", "keystore"),
        ("sessionVariables=time_zone='%2B01:00'", "sessionVariables"),
        ("socketTimeout=600", "sockettimeout"),
        ("unheardOf=1", "unheardof"),
    ],
)
def test_jdbc_only_connection_is_left_to_jdbc(mariadb: Any, parameters: str, says: str) -> None:
    """TLS is never weaker than asked for."""
    config = login(
        mariadb.database("shop"), jdbc_url=f"jdbc:mariadb://127.0.0.1:3306/shop?{parameters}"
    )
    with pytest.raises(ValueError, match=says):
        login_of(source_of(config))


def test_unsupported_url_option_uses_jdbc(
    shop: MariaDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the option that only the JDBC driver supports."""
    caplog.set_level("INFO")
    url = f"{shop.jdbc_url}?socketTimeout=600000"
    assert len(records(run(shop, reader="auto", jdbc_url=url).succeeded())) == 51
    assert "read over JDBC: sockettimeout is set to what only the JDBC driver can do" in caplog.text
    assert "sockettimeout" in run(shop, jdbc_url=url).failed()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("jdbc:mariadb://db.example:3307/shop", ("db.example", 3307, "shop")),
        ("jdbc:mysql://[::1]/", ("::1", 3306, "")),
        ("jdbc:mariadb://127.0.0.1/a-b?sslMode=disable&user=me", ("127.0.0.1", 3306, "a-b")),
    ],
)
def test_url_is_resolved_as_by_jdbc(url: str, place: tuple[str, int, str]) -> None:
    found = login_of(source_of({"jdbc_url": url, "user": "me", "password": "p"}))
    assert (found.host, found.port, found.database) == place
    assert found.isolation == "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


@pytest.mark.parametrize("url", ["jdbc:mariadb://one,two/shop", "jdbc:mariadb:replication://a,b/x"])
def test_several_servers_are_left_to_jdbc(url: str) -> None:
    with pytest.raises(ValueError, match="names the server"):
        login_of(source_of({"jdbc_url": url, "user": "me"}))


def test_any_password_logs_in(shop: MariaDatabase, mariadb: Any, only_here: None) -> None:
    password = "p@ss:w/ö?rd#%2F&=+ '\""
    with mariadb.database("mysql").connect() as connection, connection.cursor() as cursor:
        cursor.execute("create or replace user 'odd user'@'127.0.0.1' identified by %s", [password])
        cursor.execute(f"grant select on {shop.name}.* to 'odd user'@'127.0.0.1'")
    assert len(records(run(shop, user="odd user", password=password).succeeded())) == 51


def test_refused_login_shows_no_password(shop: MariaDatabase) -> None:
    """A refused login is reported at once, before any row is read."""
    with (
        pytest.raises(SupplyError, match="Access denied") as caught,
        rows_of(query(shop, "select 1", password="x!")),
    ):
        pass
    assert (caught.value.state, caught.value.lost, caught.value.began) == ("28000", True, False)
    assert "x!" not in repr(query(shop, "select 1", password="x!"))


@pytest.mark.parametrize("resets", [False, True])
def test_refused_login_is_reported_after_disconnect(resets: bool) -> None:
    """The error is the refusal, not a timeout while waiting for a connection, nor that the server
    reset the connection when the client said goodbye.
    """
    waits = [sys.executable, "-c", "input()"]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
        connectorx_rows._Relay(near, listener, child, may_ask_key=True) as relay,
        socket.create_connection(listener.getsockname()) as client,
    ):
        far, _ = server.accept()
        with far:
            far.sendall(b"\x16\x00\x00\x02\xff\x15\x04#28000Access denied")
            if resets:
                far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                far.close()
            client.sendall(b"\x01\x00\x00\x00\x01")
            if not resets:
                client.shutdown(socket.SHUT_WR)
            with pytest.raises(SupplyError, match="Access denied") as caught:
                list(relay.batches())
            child.kill()
    assert (caught.value.state, caught.value.began) == ("28000", False)


def test_unparsable_address_shows_no_password() -> None:
    """An address that the library can't read shows no password."""
    order = {"conn": "mysql://me:secret@127.0.0.1:port/x", "query": "select 1"}
    command = [sys.executable, "-m", "tap_spark_jdbc.supply.connectorx_child"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(json.dumps(order).encode() + b"\n")
        child.stdin.flush()
        said = child.stderr.read().decode()
    assert said
    assert "secret" not in said


@contextmanager
def rows_of(asked: RowQuery) -> Iterator[Iterator[Any]]:
    with connectorx_rows.rows(asked) as batches:
        yield islice(batches, 1)
        list(batches)


def test_unreachable_server_switches_run_to_jdbc(
    shop: MariaDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(login: MariaDbLogin) -> socket.socket:
        raise SupplyError("no route", lost=True)

    monkeypatch.setattr(connectorx_rows, "_connected", refused)
    monkeypatch.setattr(columnar_source, "FEW_ROWS", 0)
    assert len(records(run(shop, reader="auto").succeeded())) == 51
    assert "as the columnar driver can't read the database: no route" in caplog.text
    assert "can't read the database: no route" in run(shop).failed()


@pytest.mark.parametrize("kill", ["kill connection", "kill query"])
def test_truncated_row_stream_is_error(shop: MariaDatabase, kill: str) -> None:
    """A killed query or connection must not look like the regular end of the rows."""
    asked = query(shop, "select seq as a, repeat('x', 1000) as b from seq_1_to_10000000")
    with pytest.raises(SupplyError) as caught, connectorx_rows.rows(asked) as batches:
        next(batches)
        with shop.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "select id from information_schema.processlist where info like 'select seq as a%'"
            )
            ((number,),) = cursor.fetchall()
            cursor.execute(f"{kill} {number}")
        list(batches)
    assert (caught.value.lost, caught.value.state) in (
        (True, "70100"),
        (True, ""),
        (False, "70100"),
    )
    assert caught.value.lost == (kill == "kill connection")


def test_lost_connection_is_retried(
    shop: MariaDatabase, only_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = iter([True])
    connected = connectorx_rows._connected

    def cut(login: MariaDbLogin) -> socket.socket:
        opened = connected(login)
        if next(cuts, False):
            opened.shutdown(socket.SHUT_RDWR)
        return opened

    works = columnar_source.ColumnarSource.__init__

    def known(self: Any, *given: Any, **named: Any) -> None:
        works(self, *given, **named)
        self.worked.add(False)

    monkeypatch.setattr(columnar_source.ColumnarSource, "__init__", known)
    monkeypatch.setattr(connectorx_rows, "_connected", cut)
    sent = run(shop, incremental_tables=["t:at:timestamp"], slice_rows=20)
    assert sent.values(f"{shop.name}-t", "id") == Counter(range(1, 52))


def test_library_panic_is_one_line_without_trace(shop: MariaDatabase, capfd: Any) -> None:
    asked = query(
        shop,
        "select cast(9 as decimal(65, 0)) * 1e0 as a, cast(repeat('9', 60) as decimal(65, 0)) as b",
    )
    with pytest.raises(SupplyError) as caught, connectorx_rows.rows(asked) as batches:
        list(batches)
    assert (caught.value.state, caught.value.lost) == ("", False)
    assert "\n" not in str(caught.value)
    assert "backtrace" not in str(caught.value).lower()
    assert capfd.readouterr().err == ""


def test_panicking_slice_is_read_over_jdbc(
    shop: MariaDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panics(*given: Any) -> Any:
        raise SupplyError("it panicked")

    monkeypatch.setattr(connectorx_rows, "_connected", panics)
    sent = run(shop, batch_config=batch_config(tmp_path / "batches")).succeeded()
    assert made_by(sent) == {"jdbc"}
    assert sent_ids(sent) == Counter(range(1, 52))


@pytest.mark.parametrize(
    ("native_type", "value"),
    [
        ("datetime", "0000-00-00"),
        ("date", "2026-02-31"),
        ("datetime", "0000-01-01"),
    ],
)
def test_impossible_date_is_refused(shop: MariaDatabase, native_type: str, value: str) -> None:
    """The library panics on it; the error from JDBC names column and value."""
    execute(
        shop,
        "set sql_mode = 'ALLOW_INVALID_DATES'",
        f"alter table t add d {native_type}",
        f"update t set d = '{value}' where id = 50",
    )
    assert re.search(rf"column d \({native_type}\) .*type_overrides.*{value}", run(shop).failed())


@pytest.mark.parametrize("masks", [{}, {"n": "redact"}])
def test_late_panic_shows_no_masked_value(shop: MariaDatabase, masks: dict[str, str]) -> None:
    """A panic after rows were sent shows no value where a column is masked."""
    execute(
        shop,
        "set sql_mode = 'ALLOW_INVALID_DATES'",
        "create table z (id int, d date)",
        "insert into z values (40000, '2026-02-31')",
        "create view late as select s.seq as n, coalesce(z.d, date '2026-01-01') as d "
        "from seq_1_to_50000 s left join z on z.id = s.seq",
    )
    said = run(shop, tables=["late"], stream_options={"*": {"mask": masks}}).failed()
    assert ("2026-02-31" in said) == (not masks)
    assert "set reader to jdbc" in said


def test_unconsumed_rows_are_not_read_ahead(shop: MariaDatabase) -> None:
    """Memory stays flat: the library alone would queue the whole table."""
    asked = query(shop, "select seq as a, repeat('x', 1000) as b from seq_1_to_150000", 1000)
    with connectorx_rows.rows(asked) as batches:
        first = next(batches)
        (child,) = children(os.getpid(), READER)
        sizes = [child.memory_info().rss for _ in islice(batches, 100)]
        assert max(sizes) < 160 << 20
        assert first.num_rows + 100 * 1000 + sum(each.num_rows for each in batches) == 150_000


ODD = st.text(alphabet=st.sampled_from("a:b?'\"`\\#-/* \n{}%_;"), max_size=12)


COMMENTS = ("", " /* it's :n */", " -- don't 'mind' :me\n")
HARD = ["a:b?'\"`#-/*", " \n{}%_;:"]


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(ODD, min_size=1, max_size=4), comment=st.sampled_from(COMMENTS))
@example(HARD, COMMENTS[0])
@example(HARD, COMMENTS[1])
@example(HARD, COMMENTS[2])
def test_literals_and_comments_stay_unchanged(
    shop: MariaDatabase, texts: list[str], comment: str
) -> None:
    """The library must not take `:name` in a literal or comment for a parameter."""
    parts = [f"{text_literal(each)} as c{place}" for place, each in enumerate(texts)]
    sql = f"select {', '.join(parts)}{comment}"
    asked = query(shop, sql)
    asked = replace(asked, statements=("set sql_mode = 'NO_BACKSLASH_ESCAPES'",))
    try:
        with connectorx_rows.rows(asked) as batches:
            assert [list(row.values()) for batch in batches for row in batch.to_pylist()] == [texts]
    except SupplyError as error:
        # The library asks for the types before the session is set: the slice is read over JDBC.
        assert not error.lost
        assert "\\" in sql


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_too_wide_rows_are_left_to_jdbc(
    shop: MariaDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectorx_rows, "MOST_BYTES", 1 << 16)
    execute(shop, "alter table t modify note longtext", "update t set note = repeat('w', 100000)")
    with (
        pytest.raises(SupplyError, match="too wide"),
        connectorx_rows.rows(query(shop, "select * from t")) as batches,
    ):
        list(batches)
    assert {len(each["note"]) for each in records(run(shop).succeeded())} == {100_000}
