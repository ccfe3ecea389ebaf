"""Two commands and a pipe with the state in PostgreSQL, the password in the environment: always the
next rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.pipe import Pipe
from servers.postgresql import PostgreSQL
from target_spark_lake.ops.spark_lake import command


def test_pipe_with_state_in_postgresql(
    postgresql: PostgreSQL,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pipe runs with its state in PostgreSQL and its secrets in the environment; what is asked of
    the state is asked in this process.
    """

    def answer(question: str) -> Any:
        capsys.readouterr()
        assert (
            command(["state", question, "--config", str(tmp_path / "target.json"), "--json"]) == 0
        )
        return json.loads(capsys.readouterr().out)

    database = postgresql.new_database()
    monkeypatch.setenv("STATE_PASSWORD", database.password)
    monkeypatch.setenv("SHOP_JOBS", "2")
    uri = database.dsn.replace(database.password, "${STATE_PASSWORD}")
    tap = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": "${STATE_PASSWORD}",
        "n_jobs": "${SHOP_JOBS}",
        "tables": ["public.orders"],
        "incremental_tables": ["public.orders:id:integer"],
    }
    pipe = Pipe(tmp_path, tap, {"state_backend": {"uri": uri, "table_name": "ops.states"}})
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create schema ops; create table orders (id bigint primary key)")
        connection.execute("insert into orders select n from generate_series(1, 100) n")
        pipe.target_command()
        by_config = ("--state-from", str(tmp_path / "target.json"))
        outcome = pipe.run(*by_config, with_state=False).succeeded()
        said = outcome.tap_errors + outcome.target_errors
        assert "no state at postgresql://" in outcome.tap_errors
        assert "this is a first run" in outcome.tap_errors
        connection.execute("insert into orders select n from generate_series(101, 107) n")
        by_url = ("--state", f"{uri}?table=ops.states&pipeline=test")
        outcome = pipe.run(*by_url, with_state=False).succeeded()
        assert "sent 7 records" in outcome.tap_errors
        said += outcome.tap_errors + outcome.target_errors
        row = connection.execute("select pipeline, state, lake from ops.states").fetchone()
        assert row is not None
        assert (row[0], row[2]) == ("test", str(pipe.bucket))
        assert json.loads(row[1])["bookmarks"]["public-orders"]["replication_key_value"] == 107
        shown = answer("show")
        assert shown["bookmarks"]["public-orders"]["replication_key_value"] == 107
        assert len(answer("history")) == 2
        # A person sets it back.
        edited = row[1].replace("107", "50").replace('"boundary"', '"left"')
        connection.execute("update ops.states set state = %s", (edited,))
        assert answer("show")["run_id"] is None
    assert pipe.rows("public-orders", "id") == [(n,) for n in range(1, 108)]
    assert not pipe.state_path.exists()
    assert database.password not in said
