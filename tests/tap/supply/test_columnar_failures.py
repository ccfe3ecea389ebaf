"""The columnar reader while workers die, connections break, or a place takes no file: again, by
JDBC, or one line.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import adbc_driver_manager
import psycopg
import pytest

from tap.batch_output import JSON
from tap.supply.arrow_runs import made_by, makers, run, sent_ids
from tap_spark_jdbc.supply import batch_files, columnar_query, columnar_source

pytestmark = pytest.mark.usefixtures("spark")


def nowhere(source: Any) -> str:
    return "host=127.0.0.1 port=1 connect_timeout=2"


def without_arrow() -> Any:
    """Goes to the worker whole, as a nested function."""

    def reported(*given: Any) -> None:
        raise ModuleNotFoundError("No module named 'pyarrow'")

    return reported


def without_route() -> Any:
    def reported(*given: Any) -> Any:
        return {"state": "unreachable", "refused": "no route to the host"}, None

    return reported


def test_driver_connection_miscount_is_ignored(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver counts without a lock and may raise on close after all rows were read."""
    database, _ = shop
    closed: list[bool] = []

    class Miscounting(adbc_driver_manager.AdbcConnection):
        def close(self) -> None:
            super().close()
            closed.append(True)
            raise adbc_driver_manager.InternalError(
                "Open connection count underflowed",
                status_code=adbc_driver_manager.AdbcStatusCode.INTERNAL,
            )

    monkeypatch.setattr(adbc_driver_manager, "AdbcConnection", Miscounting)
    sent = run(database, tmp_path, reader="arrow", slice_rows=20).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert closed


@pytest.mark.usefixtures("tasks")
def test_workers_without_connection_leave_reading_to_jdbc(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database, _ = shop
    monkeypatch.setattr(columnar_source, "conninfo", nowhere)
    sent = run(database, tmp_path, reader="auto", slice_rows=20).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"jdbc"}
    assert caplog.text.count("read over JDBC from here on") == 1
    assert "can't read the database" in run(database, tmp_path).failed()


@pytest.mark.usefixtures("tasks")
def test_database_reached_by_tap_alone_is_read_by_jdbc(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slices that the tap itself has read do not make a failure of tasks a lost connection."""
    database, _ = shop
    monkeypatch.setattr(batch_files, "SMALL_ROWS", 20)
    monkeypatch.setattr(batch_files, "outcome_fields", without_route())
    settings: JSON = {"incremental_tables": ["t:id:integer"], "slice_rows": 20, "n_jobs": 1}
    sent = run(database, tmp_path, reader="auto", **settings).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert makers(sent) == ["arrow", "jdbc", "jdbc"]
    assert caplog.text.count("no route to the host") == 1


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("reader", ["auto", "arrow"])
def test_executors_without_pyarrow_are_one_line_error(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    database, _ = shop
    monkeypatch.setattr(batch_files, "outcome_fields", without_arrow())
    reported = run(database, tmp_path, reader=reader).failed()
    assert "TAP-065 stream public-t: " in reported
    assert "No module named 'pyarrow'" in reported
    assert "Traceback" not in reported


@pytest.mark.usefixtures("tasks")
def test_killed_worker_is_replaced(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that is killed in the middle of a file is replaced by another."""
    database, _ = shop
    begun = tmp_path / "begun"

    def opened(url: str, options: JSON) -> Any:
        Path(url).parent.mkdir(parents=True)
        file = Path(url).open("wb")
        if not begun.exists():
            file.write(b"PAR1")
            begun.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return file

    monkeypatch.setattr(batch_files, "_opened", opened)
    sent = run(database, tmp_path, slice_rows=20).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert begun.exists()
    assert "Python worker exited unexpectedly" in caplog.text


@pytest.mark.parametrize(
    ("place", "error", "says"),
    [
        ("tasks", PermissionError(errno.EACCES, "Access Denied"), "TAP-032 stream public-t: "),
        ("here", OSError(errno.ENOSPC, "No space left on device"), "RUN-015 "),
    ],
    indirect=["place"],
)
def test_unwritable_batch_location_is_one_line_error(
    shop: Any,
    place: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    says: str,
) -> None:
    database, _ = shop
    number, text = error.errno, error.strerror

    def opened(url: str, options: JSON) -> Any:
        raise OSError(number, text)

    monkeypatch.setattr(batch_files, "_opened", opened)
    reported = run(database, tmp_path).failed()
    assert says in reported
    assert f"{tmp_path}/batches" in reported
    assert "Traceback" not in reported


def test_connection_lost_between_batches_is_retried(
    shop: Any,
    place: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A connection that breaks between two batches is retried."""
    database, connection = shop
    connection.execute(
        "insert into t select n, null, repeat('long ', 2000) from generate_series(100, 3000) n"
    )
    begun, dsn = tmp_path / "begun", database.dsn

    def opened(url: str, options: JSON) -> Any:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        if not begun.exists():
            begun.touch()
            with psycopg.connect(dsn, autocommit=True) as killer:
                killer.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where query like "
                    "'COPY%'"
                )
        return Path(url).open("wb")

    monkeypatch.setattr(batch_files, "_opened", opened)
    monkeypatch.setattr(batch_files, "GROUP_BYTES", 1)
    sent = run(database, tmp_path).succeeded()
    assert sent_ids(sent) == Counter([*range(1, 52), *range(100, 3001)])
    assert made_by(sent) == {"arrow"}
    assert caplog.text.count("trying again in 0.2 s (1 of 6)") == 1
    assert begun.exists()


def test_brief_outage_does_not_switch_to_jdbc(
    shop: Any,
    place: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that is briefly unavailable is not abandoned for JDBC."""
    database, _ = shop
    calls, whole, away = tmp_path / "calls", columnar_query._connected, columnar_query.Unreachable

    def connected(*given: Any) -> Any:
        with calls.open("a") as file:
            file.write("x")
        if calls.read_text() == "xx":
            raise away("the database system is starting up")
        return whole(*given)

    monkeypatch.setattr(columnar_query, "_connected", connected)
    sent = run(database, tmp_path, reader="auto", slice_rows=20, n_jobs=1).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"arrow"}
    assert caplog.text.count("trying again in 0.2 s (1 of 6)") == 1


def test_slow_columnar_statement_names_remedy(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    connection.execute(
        "create function slow(id int) returns int language plpgsql volatile as "
        "$$ begin perform case when id = 40 then pg_sleep(5) end; return id; end $$; "
        "create view held as select slow(id) as id from t"
    )
    connection.execute(f"alter database {database.name} set statement_timeout = 1000")
    reported = run(database, tmp_path, tables=["held"]).failed()
    assert "canceling statement due to statement timeout" in reported
    assert "give the statement more time" in reported
