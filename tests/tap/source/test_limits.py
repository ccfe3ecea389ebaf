"""What a run may ask of a database at a time: its connections, and how long a statement may
take.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from singer_spark.errors import ConfigurationError
from tap.batch_output import batch_config
from tap.in_process import run_tap
from tap.opened import filled, login
from tap.source.mariadb_pipes import counted
from tap_spark_jdbc.config.settings import TapSettings

if TYPE_CHECKING:
    from servers.mariadb import MariaDatabase

SCRIPT = "".join(
    f"create table t{n} (id int primary key, note text);"
    f"insert into t{n} select i, repeat('x', 100) from generate_series(1, 2000) i;"
    for n in range(5)
)


def most_at_once(dsn: str, over: threading.Event, seen: list[int]) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        mine = connection.info.backend_pid
        while not over.is_set():
            query = (
                "select count(*) from pg_stat_activity where datname = current_database() and "
                "pid <> %s"
            )
            row = connection.execute(query, [mine]).fetchone()
            assert row is not None
            seen.append(row[0])
            over.wait(0.005)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("reader", "most", "slice_rows"), [("arrow", 3, 250), ("jdbc", 5, 1000)])
def test_run_respects_connection_limit(
    postgresql: Any, tmp_path: Path, reader: str, most: int, slice_rows: int
) -> None:
    with filled(postgresql, SCRIPT) as (database, _):
        over, seen = threading.Event(), list[int]()
        watch = threading.Thread(target=most_at_once, args=(database.dsn, over, seen))
        watch.start()
        try:
            settings: dict[str, Any] = {
                "reader": reader,
                "n_jobs": 6,
                "slice_rows": slice_rows,
                "max_connections": most,
            }
            run_tap(login(database, **settings, batch_config=batch_config(tmp_path))).succeeded()
        finally:
            over.set()
            watch.join()
    # The one that filled the tables is there, too, and a server counts one that was just closed for
    # a moment.
    assert 2 < max(seen) - 1 <= most + 1


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_slow_statement_is_ended_by_postgresql(postgresql: Any, reader: str) -> None:
    script = """
        create table t as select 1 as id;
        create function slow(int) returns int language sql volatile as 'select 1 from pg_sleep(60)';
        create view v as select slow(id) as id from t;
    """
    with filled(postgresql, script) as (database, _):
        failed = run_tap(
            login(database, reader=reader, tables=["v"], statement_timeout=0.5)
        ).failed()
    assert "canceling statement due to statement timeout" in failed


@pytest.mark.usefixtures("spark")
def test_statement_timeout_applies_on_mariadb(database: MariaDatabase) -> None:
    """MariaDB and MySQL both abort a statement after `statement_timeout` seconds."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"create view v as select seq + sleep(1) as id from {counted(60)}")
    failed = run_tap(
        login(database, schemas=[database.name], tables=["v"], statement_timeout=0.5)
    ).failed()
    limit = "maximum statement execution time" if database.is_mysql else "max_statement_time"
    assert f"{limit} exceeded" in failed


@pytest.mark.usefixtures("spark")
def test_server_checks_client_connection(postgresql: Any) -> None:
    """PostgreSQL checks every ten seconds that the reading client is still connected."""
    script = """
        create function interval_of() returns text language sql volatile as
            'select current_setting(''client_connection_check_interval'')';
        create view v as select interval_of() as found;
    """
    with filled(postgresql, script) as (database, _):
        for reader in ("arrow", "jdbc"):
            assert run_tap(login(database, reader=reader, tables=["v"])).succeeded().values(
                "public-v", "found"
            ) == {"10s": 1}


@pytest.mark.parametrize(
    ("url", "settings", "said"),
    [
        ("jdbc:postgresql://h/d", {"max_connections": 2}, "must be at least 3 for postgresql"),
        ("jdbc:mariadb://h/d", {"max_connections": 1}, "must be at least 2"),
        ("jdbc:sqlite:d", {"statement_timeout": 1}, "not supported for sqlite"),
    ],
)
def test_unenforceable_limits_are_refused(url: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        TapSettings.from_config({"jdbc_url": url, **settings})
    assert said in str(raised.value)
