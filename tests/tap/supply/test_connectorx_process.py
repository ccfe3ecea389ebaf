"""The process in which ConnectorX reads: how it ends with its tap, by signals, and beside a silent
server.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from end_to_end.marked import until
from servers.mariadb import MariaDatabase
from servers.processes import children
from servers.wire import relayed
from singer_spark.errors import ConnectionLostError
from tap.opened import login
from tap.supply.mariadb_shop import READER, execute, new_shop, query, run
from tap_spark_jdbc.source import connection_errors, open_connections
from tap_spark_jdbc.source.jdbc_source import JdbcSource
from tap_spark_jdbc.supply import connectorx_rows

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def shop(mariadb: Any) -> MariaDatabase:
    return new_shop(mariadb)


@pytest.mark.parametrize("when", ["silent", "reading"])
def test_signal_ends_run_despite_silent_server(
    shop: MariaDatabase, tmp_path: Path, when: str
) -> None:
    execute(
        shop,
        "create or replace view t2 as select 1 as id, sleep(600) as b"
        if when == "silent"
        else "select 1",
    )
    execute(
        shop, "create or replace view t3 as select seq as id, seq * 7 as b from seq_1_to_1000000000"
    )
    table = "t2" if when == "silent" else "t3"
    with started_tap(shop, tmp_path, table) as tap:
        wait_for_query(shop, table)
        below = psutil.Process(tap.pid).children(recursive=True)
        os.kill(tap.pid, signal.SIGTERM)
        assert tap.wait(timeout=60) == 143
        assert psutil.wait_procs(below, timeout=60)[1] == []


@contextmanager
def started_tap(
    database: MariaDatabase, folder: Path, table: str
) -> Iterator[subprocess.Popen[bytes]]:
    config = folder / "config.json"
    config.write_text(
        json.dumps(login(database, tables=[table], schemas=[database.name], reader="arrow"))
    )
    with subprocess.Popen(
        [Path(sys.executable).with_name("tap-spark-jdbc"), "--config", config],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as tap:  # fmt: skip
        threading.Thread(target=drain, args=(tap.stdout,), daemon=True).start()
        yield tap


def test_kill_9_leaves_no_process_and_no_half_result(shop: MariaDatabase, tmp_path: Path) -> None:
    """The kernel ends the child with the tap; the library would wait forever for a silent
    server.
    """
    execute(shop, "create view slow as select 1 as id, sleep(600) as b")
    with started_tap(shop, tmp_path, "slow") as tap:
        (reader,) = until(lambda: children(tap.pid, READER), "a reader", tap)
        wait_for_query(shop, "slow")
        below = psutil.Process(tap.pid).children(recursive=True)
        assert shop.password not in " ".join(reader.cmdline())
        tap.kill()
        assert tap.wait(timeout=60) == -signal.SIGKILL
        assert psutil.wait_procs(below, timeout=60)[1] == []


def test_killed_reader_s_slice_is_read_over_jdbc(shop: MariaDatabase) -> None:
    """A reader that is killed before it sent a row leaves its slice to JDBC."""
    killed: list[psutil.Process] = []
    held = "select seq as id, if(is_used_lock('held') is null, 0, sleep(1)) as b"
    execute(shop, f"create view slow as {held} from seq_1_to_10")

    def kill() -> None:
        killed.extend(until(lambda: children(os.getpid(), READER), "a reader"))
        wait_for_query(shop, "slow")
        killed[0].kill()
        cursor.execute("select release_lock('held')")

    with (
        shop.connect() as holder,
        holder.cursor() as cursor,
        ThreadPoolExecutor() as threads,
    ):
        cursor.execute("select get_lock('held', 0)")
        killing = threads.submit(kill)
        sent = run(shop, tables=["slow"]).succeeded()
        killing.result()
    assert sent.values(f"{shop.name}-slow", "id") == Counter(range(1, 11))
    assert not killed[0].is_running()


def test_late_process_death_blames_no_value(
    shop: MariaDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies after rows were sent fails the run and blames no value."""
    message, messages = connectorx_rows._Relay._message, list[int]()

    def dies(relay: connectorx_rows._Relay) -> Any:
        messages.append(1)
        if len(messages) == 4:  # behind the schema and two batches
            relay._child.kill()
        return message(relay)

    monkeypatch.setattr(connectorx_rows._Relay, "_message", dies)
    execute(shop, "create view lasting as select seq as id, seq * 7 as b from seq_1_to_1000000")
    sent = run(shop, tables=["lasting"])
    assert sent.values(f"{shop.name}-lasting", "id")
    said = sent.failed()
    assert "ConnectorX's process ended silently (signal 9); set reader to jdbc" in said
    assert "type_overrides" not in said


@pytest.mark.usefixtures("quick_watch")
def test_silent_server_fails_run(shop: MariaDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no rows arrive, the server is probed, and the run fails if it does not answer."""
    execute(
        shop,
        "create view slow as select seq as id, sleep(0.01) as b, repeat('x', 200) as c from "
        "seq_1_to_100000",
    )
    monkeypatch.setattr(connection_errors, "PAUSES", ())
    limited, found = JdbcSource.limited, list[Exception]()

    def hasty(self: JdbcSource) -> JdbcSource:
        assert self.dialect.alive is not None
        alive = replace(
            self.dialect.alive, properties={"connectTimeout": "500", "socketTimeout": "500"}
        )
        return limited(replace(self, dialect=replace(self.dialect, alive=alive)))

    monkeypatch.setattr(JdbcSource, "limited", hasty)
    with relayed(shop.host, shop.port) as wire:

        def ended(error: Exception) -> None:
            found.append(error)
            wire.end()

        def silence() -> None:
            until(lambda: wire.bytes > 100_000 or over.is_set(), "rows")
            wire.silence()

        monkeypatch.setattr(open_connections, "stop_by_error", ended)
        over, thread = threading.Event(), threading.Thread(target=silence, daemon=True)
        thread.start()
        url = f"jdbc:mariadb://127.0.0.1:{wire.port}/{shop.name}"
        run(shop, tables=["slow"], jdbc_url=url).failed()
        over.set()
        thread.join()
    assert isinstance(found[0], ConnectionLostError)


def test_connection_sets_socket_options(shop: MariaDatabase) -> None:
    """The kernel itself detects a dead connection."""
    with connectorx_rows._connected(query(shop, "").login) as opened:
        for level, option, value in open_connections.SOCKET_OPTIONS:
            assert opened.getsockopt(level, option) == value


def drain(file: Any) -> None:
    while file.read(1 << 20):
        pass


def wait_for_query(database: MariaDatabase, table: str) -> None:
    """Until the server executes what the library has prepared."""
    with database.connect() as connection, connection.cursor() as cursor:
        until(
            lambda: cursor.execute(
                "select id from information_schema.processlist where command = 'Execute' and info "
                "like %s",
                [f"%`{table}`%"],
            ),
            "the query",
        )
