"""`tap | target` on a real YARN of two nodes, to a shared folder.

A kill costs time, not rows.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.cluster import (
    CHANGE,
    HOLD,
    TABLES,
    SharedFolder,
    assert_equal_to_source,
    new_source,
    pipe_on,
    small,
)
from end_to_end.executors import CONTAINER, containers, kill_containers, kill_masters, masters
from needed import need
from servers.child import started
from servers.clusters import yarn as yarn_server
from servers.clusters.standalone import SPARK, class_path, short_lived
from servers.clusters.yarn import Yarn
from tap.supply.test_retries import blocked, meanwhile

# PySpark asks for pandas where Python runs in its tasks.
pytestmark = pytest.mark.usefixtures("with_pandas")

END_SECONDS = 60
BETWEEN_LOOKS = 0.2


@pytest.fixture(scope="module")
def yarn() -> Iterator[Yarn]:
    need(yarn_server.missing())
    with started("servers.clusters.yarn") as facts:
        yield Yarn(**facts)


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with new_source(postgresql) as connection:
        yield connection


@pytest.fixture
def spark(yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The setting, and the cluster's settings where the programs find them."""
    monkeypatch.setenv("HADOOP_CONF_DIR", yarn.settings)
    conf = {
        **small(),
        "spark.dynamicAllocation.maxExecutors": "1",
        "spark.yarn.jars": f"local:{SPARK / 'jars' / '*'}",
        # Otherwise it begins with a folder of the container's, and the archive is of no use.
        "spark.executor.extraClassPath": class_path(),
        # For an answer of a master that was killed; its default is two minutes.
        "spark.rpc.askTimeout": "60s",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.yarn.am.extraJavaOptions": shlex.join(short_lived()),
    }
    return {"master": "yarn", "conf": conf}


def all_ended(yarn: Yarn, before: int, tmp_path: Path) -> list[dict[str, Any]]:
    """The applications since then, once they have ended: a client does not wait for the last report
    of its own.
    """
    give_up = time.monotonic() + END_SECONDS
    while True:
        own = sorted(yarn.applications(), key=lambda each: each["id"])[before:]
        if all(each["state"] == "FINISHED" for each in own) and not list(
            (tmp_path / "staging").rglob("application_*")
        ):
            return own
        assert time.monotonic() < give_up, own
        time.sleep(BETWEEN_LOOKS)


def replace_masters(yarn: Yarn) -> int:
    """Kills the application masters, and waits until YARN has started another one for each of
    their applications, which knows its driver again.
    """
    killed, give_up = kill_masters(yarn), time.monotonic() + END_SECONDS
    while True:
        running = {each["id"] for each in yarn.applications() if each["state"] == "RUNNING"}
        found = masters(yarn)
        if all(name in running and found.get(name, old) != old for name, old in killed.items()):
            return len(killed)
        assert time.monotonic() < give_up, (killed, found, running)
        time.sleep(BETWEEN_LOOKS)


def kill_in_the_middle(
    connection: psycopg.Connection[Any], kill: Callable[[], int]
) -> Callable[[], None]:
    """Kills something while the tap's executor has read and rendered half of a table."""
    connection.execute("select pg_advisory_lock(7)")

    def strike() -> None:
        try:
            blocked(connection, 240)
            assert kill() >= 1
        finally:
            connection.execute("select pg_advisory_unlock(7)")

    return strike


def test_yarn_kills_lose_and_repeat_nothing(
    yarn: Yarn, spark: dict[str, Any], connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """The executors of a first run by batches are killed, then the masters of a merge by lines.

    Both load into a folder that all nodes share. Plain files of batches need no application of the
    target's; the merge is two in the same queue. Nothing of them stays in the staging folder.
    """
    connection.execute(HOLD)
    tables = {name: TABLES[name] for name in ("orders", "places")}
    pipe = pipe_on(tmp_path, connection, SharedFolder(tmp_path / "shared"), spark)
    pipe.tap |= {
        "tables": list(tables),
        "incremental_tables": ["public.orders:changed_at:datetime!upsert"],
        "fetch_size": 50,
        "reader": "jdbc",
        "batch_config": {
            "encoding": {"format": "parquet"},
            "storage": {"root": f"{pipe.target['bucket']}/.dataspoc/staging/batches"},
        },
    }
    pipe.target["engine"] = "spark"
    before = len(yarn.applications())
    with meanwhile(kill_in_the_middle(connection, lambda: kill_containers(yarn, CONTAINER))):
        first = pipe.run().succeeded()
    assert "Done! 2500 records in 2 stream(s)" in first.target_errors
    assert_equal_to_source(pipe, connection, tables=tables)

    connection.execute(CHANGE.replace("from places", "from kept.places"))
    for name in ("reader", "batch_config"):
        del pipe.tap[name]
    with meanwhile(kill_in_the_middle(connection, lambda: replace_masters(yarn))):
        second = pipe.run().succeeded()
    assert "Done! 410 records in 2 stream(s)" in second.target_errors
    assert "is a folder: every executor of yarn must reach it" in second.target_errors
    assert_equal_to_source(pipe, connection, tables=tables)
    assert pipe.staged() == []
    own = all_ended(yarn, before, tmp_path)
    names = ["tap-spark-jdbc", "tap-spark-jdbc", "target-spark-lake"]
    assert sorted(each["name"] for each in own) == names
    assert {each["finalStatus"] for each in own} == {"SUCCEEDED"}
    assert containers(yarn, CONTAINER) == []
