"""A pipe and `meltano run` on one pipeline whose state is in a database, from two project folders."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from end_to_end.meltano_project import PIPELINE, PLUGINS, STATE_ID, Project, new_project
from end_to_end.pipe import PHASE, Pipe
from servers.postgresql import PostgreSQL
from singer_spark.state.source import source_of_target


@pytest.mark.timeout(1200)
def test_a_pipe_and_runs_of_two_machines_take_turns_on_a_state_in_a_database(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    states = {"uri": postgresql.new_database().dsn}
    shared, shop = tmp_path / "shared", tmp_path / ".demo/shop.db"
    source, specs = f"jdbc:sqlite:{shop}", ["orders:updated_at:timestamp"]
    places = {
        "TAP_SPARK_JDBC_JDBC_URL": source,
        "TARGET_SPARK_LAKE_BUCKET": str(shared),
        "TARGET_SPARK_LAKE_STATE_BACKEND": json.dumps(states),
        "MELTANO_STATE_BACKEND_URI": f"lake+file://{shared}",
        "MELTANO_STATE_BACKEND_LAKE_STATE_BACKEND": json.dumps(states),
    }
    here, there = new_project(tmp_path / "here", **places), new_project(tmp_path / "there", **places)
    pipe = Pipe(
        tmp_path / "pipe",
        {"jdbc_url": source, "incremental_tables": specs},
        {"bucket": str(shared), "pipeline": PIPELINE, "state_backend": states},
    )
    from_target = ("--state-from", pipe.target_command()[-1])
    lake = Project(tmp_path)
    rows = "select count(*), count(distinct id), max(id) from orders"
    lake.shop()

    pipe.run(*from_target, with_state=False).succeeded()
    assert lake.query(rows, "shared") == [(340, 340, 340)]
    lake.shop("--change")
    said = here.run("run", *PLUGINS)
    assert "orders: 4 records loaded" in said
    assert len([line for line in said.splitlines() if not PHASE.search(line)]) < 15, said
    assert not re.search("Warning|METRIC|Skipping parse", said)
    assert lake.query(rows, "shared") == [(344, 343, 343)]
    with closing(sqlite3.connect(shop)) as connection, connection:
        connection.execute("insert into orders values (999, 1, 1, 'new', null, '2026-01-01 00:00:00')")
    there.run("run", "--full-refresh", *PLUGINS)
    assert lake.query(rows, "shared") == [(344 + 344, 344, 999)]
    # And the next pipe would go on from it.
    saved = source_of_target(pipe.target).saved
    known = json.loads(there.meltano("state", "get", STATE_ID).stdout)["singer_state"]
    assert saved is not None and saved.value == known
    assert known["bookmarks"]["orders"]["replication_key_value"] == "2026-01-01T00:00:00.000000"
    assert not list(shared.rglob("state.json"))
