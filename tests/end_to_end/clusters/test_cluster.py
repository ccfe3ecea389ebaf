"""`tap | target` on a real standalone cluster whose two workers are hosts of their own.

The lake is on S3. The workers see neither the programs' disk nor this machine's loopback. Databases
and S3 are reached at an address.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.cluster import (
    HOLD,
    OTHERS,
    TABLES,
    BucketPipe,
    assert_equal_to_source,
    new_source,
    pipe_on,
    small,
)
from end_to_end.executors import disks, holding, kill_executors, kill_worker
from end_to_end.marked import until
from end_to_end.page import ROOT, Reader
from servers.child import started
from servers.clusters.hosts import LOOPBACK
from servers.clusters.standalone import Cluster
from servers.mariadb import MariaDatabase, MariaDB
from servers.postgresql import PostgreSQL, client_ports
from servers.s3 import S3
from servers.ssh import Ssh
from servers.wire import relayed
from tap.opened import login
from tap.source.mariadb_pipes import run
from tap.supply.test_retries import blocked, meanwhile

# PySpark asks for pandas where Python runs in its tasks.
pytestmark = pytest.mark.usefixtures("with_pandas")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started("servers.clusters.standalone") as facts:
        yield Cluster(**facts)


@contextmanager
def reached_at(here: str, port: int) -> Iterator[None]:
    """A server of this machine's loopback is there for workers, too, at the same port."""
    if here == LOOPBACK:
        yield
    else:
        with relayed(LOOPBACK, port, at=(here, port)):
            yield


@pytest.fixture(scope="module")
def postgresql(cluster: Cluster, postgresql: PostgreSQL) -> Iterator[PostgreSQL]:
    with reached_at(cluster.here, postgresql.port):
        yield replace(postgresql, host=cluster.here)


@pytest.fixture(scope="module")
def mariadb(cluster: Cluster, mariadb: MariaDB) -> Iterator[MariaDB]:
    with reached_at(cluster.here, mariadb.port):
        yield replace(mariadb, host=cluster.here)


@pytest.fixture(scope="module")
def s3(cluster: Cluster, s3: S3) -> Iterator[S3]:
    host, port = s3.endpoint.removeprefix("http://").split(":")
    with reached_at(cluster.here, int(port)):
        yield replace(s3, endpoint=s3.endpoint.replace(host, cluster.here))


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with new_source(postgresql) as connection:
        yield connection


@contextmanager
def most_cores(cluster: Cluster) -> Iterator[dict[str, int]]:
    """The most cores that each program has had at a time, and those that each worker has given."""
    most: dict[str, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            reported = cluster.report()
            given = {
                each["host"]: each["coresused"] for each in reported["workers"] if each["coresused"]
            }
            for name, cores in [
                *((each["name"], each["cores"]) for each in reported["activeapps"]),
                *given.items(),
            ]:
                most[name] = max(most.get(name, 0), cores)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield most
    finally:
        over.set()
        looker.join()


@pytest.fixture(scope="module")
def of_page(
    cluster: Cluster, postgresql: Any, s3: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """The page about clusters, done: its source, and its bucket."""
    database, bucket = postgresql.new_database(), s3.new_bucket()
    conf = {**small(cluster.here), "spark.dynamicAllocation.maxExecutors": "1"}
    replacements = {
        "jdbc:postgresql://db.internal:5432/shop": database.jdbc_url,
        '"reader"': json.dumps(database.user),
        '"password": "secret"': f'"password": {json.dumps(database.password)}',
        "http://minio.internal:9000": s3.endpoint,
        "s3://lake": bucket,
        ', "conf": {"spark.pyspark.python": "/opt/python/bin/python3"}': "",
        '"spark://master:7077"': f'{json.dumps(cluster.master)}, "conf": {json.dumps(conf)}',
    }
    # As `with_pandas` has it for a test.
    found = [
        each
        for each in os.environ["PYTHONPATH"].split(os.pathsep)
        if Path(each).name != "as_installed"
    ]
    variables = {
        "AWS_ACCESS_KEY_ID": s3.key,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "PYTHONPATH": os.pathsep.join(found),
    }
    folder = tmp_path_factory.mktemp("page") / "shop"
    folder.mkdir()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(PAGE)
        Reader(folder, replacements, variables).do(
            ROOT / "docs/engines.md", "A first run on a cluster"
        )
        yield connection, bucket


PAGE = """
create table orders (id bigint primary key, updated_at timestamp not null);
insert into orders select n, timestamp '2025-01-20 10:00' - n * interval '1 minute'
  from generate_series(0, 999) n
"""
# Of the page's table another column, a tie at the bookmark, a newer row, and newer versions; and
# tables beside it.
CHANGE = f"""
alter table orders add total numeric(12, 2);
insert into orders values (9001, '2025-01-20 10:00', 1), (9002, '2025-06-02', 5);
update orders set total = 0.5, updated_at = '2025-06-01' where id % 100 = 3;
{OTHERS}
"""


def test_clusters_page_commands_run(of_page: tuple[psycopg.Connection[Any], str], s3: Any) -> None:
    _, bucket = of_page
    state = json.loads(s3.filesystem().cat(f"{bucket}/.dataspoc/state/shop/state.json"))
    assert state["bookmarks"].keys() == {"public-orders"}


def test_pipe_runs_on_cluster_via_shared_storage(
    cluster: Cluster, of_page: tuple[psycopg.Connection[Any], str], s3: Any, tmp_path: Path
) -> None:
    """Append, upsert and overwrite work, and neither program takes the whole cluster."""
    connection, bucket = of_page
    connection.execute(CHANGE)
    pipe = pipe_on(
        tmp_path, connection, s3, {"master": cluster.master, "conf": small(cluster.here)}
    )
    pipe.target |= {"bucket": bucket, "pipeline": "shop"}
    pipe.tap["incremental_tables"] = [
        "public.events:id:integer!append",
        "public.orders:updated_at:timestamp!upsert",
    ]
    with most_cores(cluster) as most:
        done = pipe.run().succeeded()
    assert "Done! 4212 records in 4 stream(s)" in done.target_errors
    assert_equal_to_source(
        pipe, connection, tables={**TABLES, "orders": ["id", "total", "updated_at"]}
    )
    assert pipe.staged() == []
    programs = {"tap-spark-jdbc", "target-spark-lake"}
    # Each on both hosts: what one executor has for the other passes from host to host.
    assert most.keys() == programs | {each["host"] for each in cluster.report()["workers"]}
    assert all(0 < most[name] <= 2 < cluster.report()["cores"] for name in programs), most
    state = json.loads(s3.filesystem().cat(f"{bucket}/.dataspoc/state/shop/state.json"))
    assert state["bookmarks"]["public-events"]["replication_key_value"] == 3000
    assert (
        state["bookmarks"]["public-orders"]["replication_key_value"] == "2025-06-02T00:00:00.000000"
    )


# Plain columns: the executors' files become the table's without a JVM of the target's.
LEDGER = """
create table ledger (id bigint primary key, total numeric(20, 4), level double precision,
  note text);
insert into ledger select n, 900719925474099 + n / 10000.0, n / 8.0, repeat('note ', 10) || n
  || ' é"\\\\'
  from generate_series(1, 3000) n;
"""
# Nothing is known yet of the new table's size.
LATER = """
insert into ledger select n, n / 3.0, null, 'note note ' || n from generate_series(3001, 3010) n;
create table many as select n as id, n % 7 as kind from generate_series(1, 30000) n;
alter table many add primary key (id);
"""
# What each row of it holds.
ROW = b"note note"


def test_killed_executor_on_a_cluster_loses_no_batch(
    cluster: Cluster,
    connection: psycopg.Connection[Any],
    s3: Any,
    ssh: Ssh,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches load on a cluster: an executor killed within a file loses and repeats nothing.

    The one executor of a first run is killed, then come an increment and a table that it reads as
    Arrow. No row is on a disk of programs or workers. All of them reach the database by a tunnel
    that the tap holds open at an address of its machine.
    """
    workers = disks(cluster)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    connection.execute(LEDGER)
    tables = {"ledger": ["id", "total", "level", "note"], "places": ["code", "at"]}
    conf = {**small(cluster.here), "spark.dynamicAllocation.maxExecutors": "1"}
    pipe = pipe_on(tmp_path, connection, s3, {"master": cluster.master, "conf": conf})
    pipe.tap["batch_config"] = {
        "encoding": {"format": "parquet"},
        "storage": {"root": f"{pipe.target['bucket']}/.dataspoc/staging/batches"},
    }
    pipe.tap |= {"tables": list(tables), "incremental_tables": ["public.ledger:id:integer!append"]}
    # Of the slice that waits the executor has read and written rows by then.
    here = "127.0.0.4" if cluster.here == LOOPBACK else cluster.here
    pipe.tap |= {"fetch_size": 50, "reader": "jdbc", "ssh_tunnel": ssh.settings(bind_address=here)}
    # Where the database is for the host of the tunnel, and not for workers.
    direct = pipe.tap["jdbc_url"]
    pipe.tap["jdbc_url"] = direct.replace(cluster.here, LOOPBACK)

    connection.execute(HOLD)
    connection.execute("select pg_advisory_lock(7)")

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

    connection.execute(LATER)
    tables["many"] = ["id", "kind"]
    del pipe.tap["ssh_tunnel"]
    pipe.tap |= {"reader": "arrow", "jdbc_url": direct, "tables": list(tables)}
    with most_cores(cluster) as most:
        second = pipe.run().succeeded()
    assert "Done! 30510 records in 3 stream(s)" in second.target_errors
    assert_equal_to_source(pipe, connection, tables=tables)
    # All but the first of its rows are the executor's work.
    assert "tap-spark-jdbc" in most
    assert all(
        "parquet-cpp-arrow" in file.metadata.created_by for file in pipe.files("public-places")
    )
    if cluster.apart:
        assert len(workers) == 2
        assert [path for place in (tmp_path, *workers) for path in holding(place, ROW)] == []


# A reader of held comes to a stop in the middle of it, while somebody has the lock.
SHOP = [
    "create table ledger (id bigint primary key, total decimal(20, 4), note varchar(80) not null)",
    "insert into ledger select seq, 900719925474099 + seq / 10000, concat(repeat('note ', 10), "
    "seq) from seq_1_to_3000",
    "create table kept (code bigint primary key, line varchar(400) not null)",
    "insert into kept select seq, repeat(concat('note note ', seq), 20) from seq_1_to_2000",
    "create function passed(code bigint) returns bigint no sql begin if code = 1500 and "
    "get_lock('hold', 240) then do release_lock('hold'); end if; return code; end",
    "create view held as select passed(code) as code, line from kept",
]
HELD = (
    "select count(*) from information_schema.processlist where state = 'User lock' and db = "
    "database()"
)
GONE_SECONDS = 240


def differing(database: MariaDatabase, pipe: BucketPipe) -> list[str]:
    """The tables whose rows in the lake are not the source's."""
    found = []
    with database.connect() as connection, connection.cursor() as cursor:
        for table in ("ledger", "held"):
            cursor.execute(f"select * from {table}")
            columns = [each[0] for each in cursor.description]
            loaded = pipe.table(f"{database.name}-{table}").select(columns).to_pylist()
            if sorted(map(repr, cursor.fetchall())) != sorted(
                repr(tuple(row.values())) for row in loaded
            ):
                found.append(table)
    return found


def test_mariadb_load_survives_worker_death(
    cluster: Cluster, mariadb: MariaDB, s3: S3, tmp_path: Path
) -> None:
    """The worker of a first run over JDBC dies with its executor, and the one that is left loads
    the rest.

    This is the last test of the file, because the worker does not come back.
    """
    database = mariadb.new_database()
    run(database, *SHOP)
    spark = {
        "master": cluster.master,
        "conf": {**small(cluster.here), "spark.dynamicAllocation.maxExecutors": "1"},
    }
    bucket = f"{s3.new_bucket()}/lake"
    tap = login(
        database,
        schemas=[database.name],
        incremental_tables=[f"{database.name}.ledger:id:integer!append"],
    )
    tap |= {
        "tables": ["ledger", "held"],
        "fetch_size": 50,
        "storage_options": s3.storage_options,
        "spark": spark,
    }
    tap["batch_config"] = {
        "encoding": {"format": "parquet"},
        "storage": {"root": f"{bucket}/.dataspoc/staging/batches"},
    }
    pipe = BucketPipe(
        tmp_path, tap, {"bucket": bucket, "storage_options": s3.storage_options, "spark": spark}
    )
    pipe.storage = s3
    with database.connect() as holder, holder.cursor() as cursor:
        cursor.execute("select get_lock('hold', 0)")

        def kill_the_host() -> None:
            try:
                until(
                    lambda: cursor.execute(HELD) and cursor.fetchall() == ((1,),),
                    "a reader at the row where it waits",
                    seconds=GONE_SECONDS,
                )
                assert kill_worker(cluster, "tap-spark-jdbc") >= 1
            finally:
                cursor.execute("do release_lock('hold')")

        with meanwhile(kill_the_host):
            first = pipe.run().succeeded()
    assert "Done! 5000 records in 2 stream(s)" in first.target_errors
    assert (differing(database, pipe), pipe.staged()) == ([], [])
    assert cluster.report()["aliveworkers"] == 1
