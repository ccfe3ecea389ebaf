"""A pipe and `meltano run` on one pipeline whose state is in a database, from two project
folders.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from end_to_end.here import run_here
from end_to_end.meltano_project import (
    PIPELINE,
    PLUGINS,
    STATE_ID,
    TRADE,
    Project,
    new_project,
    new_shop,
)
from end_to_end.pipe import PHASE, Pipe
from servers.postgresql import PostgreSQL
from singer_spark.state.source import source_of_target


@pytest.mark.timeout(1200)
def test_pipe_and_suffixed_run_share_a_state(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A pipe and a run with a suffix and a selection take turns on a state in a database."""
    states = {"uri": postgresql.new_database().dsn}
    shared, shop = tmp_path / "shared", new_shop(postgresql.new_database())
    places = {
        **shop.variables(),
        "TARGET_SPARK_LAKE_BUCKET": str(shared),
        "TARGET_SPARK_LAKE_STATE_BACKEND": json.dumps(states),
        "MELTANO_STATE_BACKEND_URI": f"lake+file://{shared}",
        "MELTANO_STATE_BACKEND_LAKE_STATE_BACKEND": json.dumps(states),
    }
    here, there = (
        new_project(tmp_path / "here", **places),
        new_project(tmp_path / "there", **places),
    )
    pipe = Pipe(
        tmp_path / "pipe",
        shop.tap,
        {"bucket": str(shared), "pipeline": f"{PIPELINE}.eu", "state_backend": states},
    )
    lake = Project(tmp_path)
    rows = "select count(*), count(distinct id), max(id), count(amount) from orders"

    run_here(pipe)
    assert lake.query(rows, "shared") == [(340, 340, 340, 340)]
    shop.do(TRADE)
    said = here.run(
        "run",
        "--state-id-suffix=eu",
        *PLUGINS,
        TAP_SPARK_JDBC__SELECT='["public-orders.id", "public-orders.updated_at", '
        '"public-customers.*"]',
        TARGET_SPARK_LAKE_SPARK='{"conf": {"spark.sql.shuffle.partitions": 2}}',
    )
    assert f"{STATE_ID}:eu" in said
    assert "public-orders: 4 records loaded" in said
    assert len([line for line in said.splitlines() if not PHASE.search(line)]) < 16, said
    assert not re.search("Warning|METRIC|Skipping parse|does not see", said)
    # Of the columns that were not selected the new rows have nothing.
    assert lake.query(rows, "shared") == [(344, 343, 343, 340)]
    assert lake.query(
        "select count(customer_id), count(state), count(updated_at) from orders", "shared"
    ) == [(340, 340, 344)]
    # The next pipe would continue from it, as would the other machine.
    saved = source_of_target(pipe.target).saved
    known = json.loads(there.meltano("state", "get", f"{STATE_ID}:eu").stdout)["singer_state"]
    assert saved is not None and saved.value == known
    assert (
        known["bookmarks"]["public-orders"]["replication_key_value"] == "2025-01-20T10:11:00.000000"
    )
    assert not list(shared.rglob("state.json"))
