"""Changes from the binlog through the whole pipe: batches first, lines later, and what is asked of
it in between.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pymysql
import pytest

from end_to_end.here import run_here
from end_to_end.pipe import Pipe
from servers.mariadb import MariaDB
from tap.in_process import tap_of
from tap_spark_jdbc.dry_run import describe
from tap_spark_jdbc.extract.run_state import OpeningState
from target_spark_lake.ops.spark_lake import command

TABLE = """create table orders (id int primary key, note varchar(60) character set latin1,
  body text, amount
decimal(12,2), moment datetime(6), seen timestamp(6) null) character set utf8mb4"""
FILL = (
    "insert into orders values (%s, %s, %s, %s, '2025-01-20 15:30:00.123456', '2025-01-20 "
    "15:30:00.5')"
)
COLUMNS = "id, note, body, amount, moment"


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> MariaDB:
    """Either server."""
    found: MariaDB = request.getfixturevalue(request.param)
    return found


def pipe_of(server: MariaDB, folder: Path, **settings: Any) -> tuple[Pipe, pymysql.Connection]:
    """A pipeline of one log-based table with 200 rows, and a connection to its database."""
    database = server.new_database()
    connection = database.connect()
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        cursor.executemany(
            FILL, [(each, "old é", "x漢😀" * 50, each / 4) for each in range(1, 201)]
        )
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    given = {
        "schemas": [database.name],
        "stream_options": {"*": {"replication_method": "LOG_BASED"}},
    }
    return Pipe(folder, {**login, **given, "spark": {"master": "local[2]"}, **settings}), connection


def change(connection: pymysql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("update orders set note = 'new ß', amount = amount + 1 where id % 3 = 0")
        cursor.execute("delete from orders where id > 150")
        cursor.execute("update orders set id = 1000 where id = 1")
        cursor.execute("insert into orders values (500, 'more', null, -1, null, null)")


def in_source(connection: pymysql.Connection) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"select {COLUMNS} from orders order by id")
        return list(cursor.fetchall())


def in_lake(pipe: Pipe, stream: str, where: str = "true") -> list[tuple[Any, ...]]:
    files = pipe.bucket / "raw" / stream / "*.parquet"
    query = (
        f"select {COLUMNS} from read_parquet('{files}', union_by_name=true) where {where} "
        "order by id"
    )
    return duckdb.sql(query).fetchall()


def test_lake_follows_binlog(
    server: MariaDB,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Batches, then lines; `check`, `status`, `verify` and `log drop` know its position."""
    batches = {
        "encoding": {"format": "parquet"},
        "storage": {"root": str(tmp_path / "lake/.dataspoc/staging/batches")},
    }
    pipe, connection = pipe_of(server, tmp_path, batch_config=batches)
    pipe.target["hard_delete"] = True
    stream = f"{pipe.tap['schemas'][0]}-orders"
    monkeypatch.chdir(tmp_path)

    def answer(*words: str, exit_code: int = 0) -> Any:
        capsys.readouterr()
        assert command([*words, "--tap-config", "tap.json", "--json"]) == exit_code, (
            capsys.readouterr()
        )
        return json.loads(capsys.readouterr().out)

    def log_findings(exit_code: int = 0) -> list[str]:
        return [
            each["text"]
            for each in answer("check", exit_code=exit_code)["findings"]
            if each["about"] == "log"
        ]

    with connection:
        pipe.tap_command(), pipe.target_command()  # writes the configs
        assert "the server's log ends at binlog.0" in log_findings()[0]
        run_here(pipe)
        assert in_lake(pipe, stream) == in_source(connection)
        change(connection)
        tap = tap_of(pipe.tap, OpeningState(pipe.state, "saved"))
        assert f"stream {stream}: LOG_BASED, changes from binlog.0" in describe(tap)
        tap.progress.stop()
        tap.database.close()
        (status,) = answer("status")
        assert status["streams"][stream]["log_bytes_to_read"] > 1000
        run_here(pipe)
        assert in_lake(pipe, stream) == in_source(connection)
        assert any("continues at binlog.0" in each for each in log_findings())
        compared = answer("verify")["streams"][stream]
        assert (compared["source_rows"], compared["lake_rows"]) == (151, 151)
        assert not any(compared["counts"].values())

        state = pipe.state
        state["bookmarks"][stream]["position"] = "binlog.999999:4"
        pipe.state_path.write_text(json.dumps(state))
        assert any("the log was reset" in each for each in log_findings(exit_code=1))
        (lost,) = answer("status", exit_code=1)
        assert "the log was reset" in lost["streams"][stream]["log_lost"]
        assert answer("log", "drop") == {"removed": []}
        assert pipe.state["bookmarks"] == {}
