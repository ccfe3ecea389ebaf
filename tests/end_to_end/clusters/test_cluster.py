"""`tap | target` on a real standalone cluster whose two workers do not see the programs' disk; the lake is on S3."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.cluster import CHANGE, assert_equal_to_source, first_run_here, new_source, pipe_on, small
from end_to_end.executors import disks, holding, kill_executors
from end_to_end.page import ROOT, Reader
from servers.child import started
from servers.clusters.standalone import Cluster
from servers.postgresql import client_ports
from servers.ssh import Ssh
from tap.reading.test_retries import WAIT, blocked, meanwhile

# PySpark asks for pandas where Python runs in its tasks.
pytestmark = pytest.mark.usefixtures("with_pandas")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started("servers.clusters.standalone") as facts:
        yield Cluster(**facts)


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with new_source(postgresql) as connection:
        yield connection


@contextmanager
def most_cores(cluster: Cluster) -> Iterator[dict[str, int]]:
    """The most cores that each program has had at a time."""
    most: dict[str, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            for application in cluster.told()["activeapps"]:
                most[application["name"]] = max(most.get(application["name"], 0), application["cores"])

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield most
    finally:
        over.set()
        looker.join()


def test_the_same_pipe_runs_on_a_cluster_by_shared_storage_alone(
    cluster: Cluster, connection: psycopg.Connection[Any], s3: Any, tmp_path: Path
) -> None:
    """Drivers and connector go to executors; append, upsert and overwrite; neither program takes all of the cluster."""
    pipe = pipe_on(tmp_path, connection, s3, {"master": cluster.master, "conf": small()})
    first_run_here(pipe)
    connection.execute(CHANGE)
    with most_cores(cluster) as most:
        done = pipe.run().succeeded()
    assert "Done! 2611 records in 4 stream(s)" in done.target_errors
    assert_equal_to_source(pipe, connection)
    assert pipe.staged() == []
    assert most.keys() == {"tap-spark-jdbc", "target-spark-lake"}
    assert all(0 < cores <= 2 < cluster.told()["cores"] for cores in most.values()), most
    state = json.loads(s3.filesystem().cat(f"{pipe.target['bucket']}/.dataspoc/state/test/state.json"))
    assert state["bookmarks"]["public-events"]["replication_key_value"] == 4501


def test_every_command_of_the_page_about_clusters_runs(
    cluster: Cluster, postgresql: Any, s3: Any, tmp_path: Path
) -> None:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key, updated_at timestamp not null)")
        connection.execute(
            "insert into orders select n, timestamp '2025-01-20 10:00' - n * interval '1 minute' "
            "from generate_series(0, 999) n"
        )
    conf = small()
    conf["spark.dynamicAllocation.maxExecutors"] = "1"
    replacements = {
        "jdbc:postgresql://localhost:5432/shop": database.jdbc_url,
        '"reader"': json.dumps(database.user),
        '"password": "secret"': f'"password": {json.dumps(database.password)}',
        "http://localhost:9000": s3.endpoint,
        "s3://lake": s3.new_bucket(),
        ', "conf": {"spark.pyspark.python": "/opt/python/bin/python3"}': "",
        '"spark://master:7077"': f'{json.dumps(cluster.master)}, "conf": {json.dumps(conf)}',
    }
    keys = {"AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret}
    (tmp_path / "shop").mkdir()
    Reader(tmp_path / "shop", replacements, keys).do(ROOT / "docs/use/how-to/cluster.md")


# Plain columns: the executors' files become the table's without a JVM of the target's.
LEDGER = """
create table ledger (id bigint primary key, total numeric(20, 4), level double precision, note text);
insert into ledger select n, 900719925474099 + n / 10000.0, n / 8.0, repeat('note ', 10) || n || ' é"\\\\'
  from generate_series(1, 3000) n;
"""
LATER = "insert into ledger select n, n / 3.0, null, 'note note ' || n from generate_series(3001, 3010) n"
# What each row of it holds.
ROW = b"note note"
# A reader of places comes to a stop in the middle of them, while somebody holds the lock.
HOLD = f"""
create schema kept; alter table places set schema kept;
create function held(code text) returns text language plpgsql volatile as $$
begin
  if code = 'p250' then {WAIT} end if;
  return code;
end $$;
create view places as select held(code) as code, at from kept.places;
select pg_advisory_lock(7)
"""


def test_batches_load_on_a_cluster_and_an_executor_killed_in_the_middle_of_a_file_loses_and_repeats_nothing(
    cluster: Cluster,
    connection: psycopg.Connection[Any],
    s3: Any,
    ssh: Ssh,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first run whose one executor is killed, then an increment; no row lies on a disk of programs or workers.

    All of them reach the database by a tunnel that the tap holds open at an address of its machine.
    """
    workers = disks(cluster)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    connection.execute(LEDGER)
    tables = {"ledger": ["id", "total", "level", "note"], "places": ["code", "at"]}
    conf = {**small(), "spark.dynamicAllocation.maxExecutors": "1"}
    pipe = pipe_on(tmp_path, connection, s3, {"master": cluster.master, "conf": conf})
    pipe.tap["batch_config"] = {
        "encoding": {"format": "parquet"},
        "storage": {"root": f"{pipe.target['bucket']}/.dataspoc/staging/batches"},
    }
    pipe.tap |= {"tables": list(tables), "incremental_tables": ["public.ledger:id:integer!append"]}
    # Of the slice that waits the executor has read and written rows by then.
    pipe.tap |= {"fetch_size": 50, "reader": "jdbc", "ssh_tunnel": ssh.settings(bind_address="127.0.0.4")}

    connection.execute(HOLD)

    def reads_by_the_tunnel() -> None:
        blocked(connection, 240)
        clients = client_ports(connection)
        assert clients and clients <= ssh.ports()

    def kill_the_writer() -> None:
        try:
            reads_by_the_tunnel()
            assert holding(tmp_path, ROW) == []
            assert kill_executors(cluster, "tap-spark-jdbc") == 1
        finally:
            connection.execute("select pg_advisory_unlock(7)")

    with meanwhile(kill_the_writer):
        first = pipe.run().succeeded()
    assert "Done! 3500 records in 2 stream(s)" in first.target_errors
    assert_equal_to_source(pipe, connection, tables=tables)
    assert pipe.staged() == []
    files = [file for table in tables for file in pipe.files(f"public-{table}")]
    assert all(file.metadata.created_by.startswith("parquet-mr") for file in files), "not written by the executors"

    connection.execute(LATER)
    pipe.tap["reader"] = "arrow"
    second = pipe.run().succeeded()
    assert "Done! 510 records in 2 stream(s)" in second.target_errors
    assert_equal_to_source(pipe, connection, tables=tables)
    assert all("parquet-cpp-arrow" in file.metadata.created_by for file in pipe.files("public-places"))
    if cluster.apart:
        assert len(workers) == 2
        assert [path for place in (tmp_path, *workers) for path in holding(place, ROW)] == []
