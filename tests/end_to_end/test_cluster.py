"""`tap | target` on a real standalone cluster whose two workers do not see the programs' disk; the lake is on S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from end_to_end.page import ROOT, Reader
from end_to_end.pipe import Outcome, Pipe
from servers.child import started
from servers.postgresql import free_port
from servers.standalone import Cluster

CREATE = """
create table events (id bigint primary key, tags text[] not null, level double precision, note text);
insert into events select n, array['t' || n % 7, 'é"\\'], n / 8.0, repeat('note ', 10) || n
  from generate_series(1, 3000) n;
update events set level = 'NaN' where id % 1000 = 5;
create table orders (id bigint primary key, total numeric(12, 2), changed_at timestamp not null);
insert into orders select n, n * 1.25, timestamp '2025-03-30 02:30:00' + n * interval '1 second'
  from generate_series(1, 2000) n;
create index on orders (changed_at);
create table places (code text primary key, at timestamptz);
insert into places select 'p' || n, timestamptz '2025-01-01 00:00:00+00' + n * interval '1 hour'
  from generate_series(1, 500) n;
"""
CHANGE = """
insert into events select n, array['later'], null, 'later' from generate_series(3001, 3010) n;
update orders set total = 0, changed_at = '2025-06-01' where id % 100 = 3;
insert into orders values (9001, 5, '2025-06-02');
delete from places where code like 'p1%';
"""
# The little time that these JVMs live is not worth what a second compiler makes of their code.
SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started("servers.standalone") as facts:
        yield Cluster(**facts)


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgresql.new_database().dsn, autocommit=True) as connection:
        connection.execute(CREATE)
        yield connection


class S3Pipe(Pipe):
    """A pipe whose lake and state are on S3."""

    storage: Any

    def run(self, *flags: str, with_state: bool = True) -> Outcome:
        state = f"{self.target['bucket']}/.dataspoc/state/{self.target['pipeline']}/state.json"
        return super().run("--state", state, *flags, with_state=False)

    def table(self, stream: str) -> pa.Table:
        files = self.storage.filesystem()
        found = files.glob(f"{self.target['bucket']}/raw/{stream}/**/*.parquet")
        return pa.concat_tables([pq.read_table(files.open(path)) for path in found], promote_options="default")

    def staged(self) -> list[str]:
        files = self.storage.filesystem()
        staging = f"{self.target['bucket'].removeprefix('s3://')}/.dataspoc/staging"
        return [path for path in files.find(staging) if not path.endswith(".keep")]


def pipe_on(folder: Path, connection: psycopg.Connection[Any], s3: Any, spark: dict[str, Any]) -> S3Pipe:
    facts = connection.info
    tap = {
        "jdbc_url": f"jdbc:postgresql://{facts.host}:{facts.port}/{facts.dbname}",
        "user": facts.user,
        "password": facts.password,
        "incremental_tables": ["public.events:id:integer!append", "public.orders:changed_at:datetime!upsert"],
        "slice_rows": 1000,
        "storage_options": s3.storage_options,
        "spark": spark,
    }
    target = {"bucket": f"{s3.new_bucket()}/lake", "storage_options": s3.storage_options, "spark": spark}
    pipe = S3Pipe(folder, tap, target)
    pipe.storage = s3
    return pipe


def assert_equal_to_source(pipe: S3Pipe, connection: psycopg.Connection[Any]) -> None:
    """The lake's tables hold what the source's do; NaN by its name, for it equals nothing."""
    connection.execute("set timezone to 'UTC'")
    for table, columns in (
        ("events", ["id", "tags", "level", "note"]),
        ("orders", ["id", "total", "changed_at"]),
        ("places", ["code", "at"]),
    ):
        loaded = pipe.table(f"public-{table}").select(columns).to_pylist()
        found = sorted(repr(tuple(row.values())) for row in loaded)
        rows = connection.execute(f"select {', '.join(columns)} from {table}").fetchall()
        wanted = pa.table({name: [row[n] for row in rows] for n, name in enumerate(columns)})
        assert found == sorted(repr(tuple(row.values())) for row in wanted.to_pylist()), table


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
    conf = {"spark.executor.extraJavaOptions": SHORT, "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    pipe = pipe_on(tmp_path, connection, s3, {"master": cluster.master, "conf": conf})
    with most_cores(cluster) as most:
        first = pipe.run().succeeded()
        assert_equal_to_source(pipe, connection)
        connection.execute(CHANGE)
        # What the user says of the size counts; and each executor costs this test five seconds of CPU.
        conf["spark.dynamicAllocation.maxExecutors"] = "1"
        pipe.run().succeeded()
    assert "Done! 5500 records in 3 stream(s)" in first.target_errors
    assert_equal_to_source(pipe, connection)
    assert pipe.staged() == []
    assert most.keys() == {"tap-spark-jdbc", "target-spark-lake"}
    assert all(0 < cores <= 2 < cluster.told()["cores"] for cores in most.values()), most
    state = json.loads(s3.filesystem().cat(f"{pipe.target['bucket']}/.dataspoc/state/test/state.json"))
    assert state["bookmarks"]["public-events"]["replication_key_value"] == 3010


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
    conf = {"spark.executor.extraJavaOptions": SHORT, "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    conf["spark.dynamicAllocation.maxExecutors"] = "1"
    replacements = {
        "jdbc:postgresql://localhost:5432/shop": database.jdbc_url,
        '"reader"': json.dumps(database.user),
        '"secret"': json.dumps(database.password),
        "http://localhost:9000": s3.endpoint,
        "s3://lake": s3.new_bucket(),
        '"spark://master:7077"': f'{json.dumps(cluster.master)}, "conf": {json.dumps(conf)}',
    }
    keys = {"AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret}
    (tmp_path / "shop").mkdir()
    Reader(tmp_path / "shop", replacements, keys).do(ROOT / "docs/how-to/cluster.md")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not os.environ.get("CI"):
        pytest.importorskip("grpc", reason="the packages of singer-spark[connect] are not installed: make setup")
    with started("servers.connect") as facts:
        yield facts["remote"]


def test_the_same_pipe_runs_on_a_spark_connect_server(
    server: str, connection: psycopg.Connection[Any], s3: Any, tmp_path: Path
) -> None:
    """No program has a JVM of its own."""
    pipe = pipe_on(tmp_path, connection, s3, {"remote": server})
    first = pipe.run().succeeded()
    assert "Done! 5500 records in 3 stream(s)" in first.target_errors
    assert_equal_to_source(pipe, connection)
    connection.execute(CHANGE)
    second = pipe.run().succeeded()
    assert "Done! 420 records in 3 stream(s)" in second.target_errors
    assert_equal_to_source(pipe, connection)
    assert pipe.staged() == []


def test_a_run_without_news_asks_a_spark_connect_server_little(
    server: str, connection: psycopg.Connection[Any], s3: Any, tmp_path: Path
) -> None:
    """The tap has six questions: tables, greatest key, server, transactions, size of what is new, rows at the bookmark.

    Spark opens three connections for each. The target does not attach to the server at all.
    """
    pipe = pipe_on(tmp_path, connection, s3, {"remote": server})
    pipe.tap |= {"tables": ["public.orders"], "incremental_tables": ["public.orders:changed_at:datetime"]}
    pipe.run().succeeded()
    sessions = "select pg_stat_clear_snapshot(), sessions from pg_stat_database where datname = current_database()"
    before = connection.execute(sessions).fetchall()[0][1]
    pipe.target["spark"] = {"remote": f"sc://127.0.0.1:{free_port()}"}
    second = pipe.run().succeeded()
    assert "Done! 0 records in 0 stream(s)" in second.target_errors
    assert 0 < connection.execute(sessions).fetchall()[0][1] - before <= 6 * 3


ASKING = """
import json, sys
from tap_spark_jdbc.database import Database
from tap_spark_jdbc.settings import TapSettings
database = Database(TapSettings.from_config(json.loads(sys.argv[1])))
for sql in sys.argv[2:]:
    print(json.dumps(database.connection.rows(sql)))
"""
ANSWERS = {
    "SELECT COUNT(*) AS n, 'é' AS a, NULL AS b FROM events": [["3000", "é", None]],
    "SELECT CAST(1.5 AS numeric(6, 3)) AS a, true AS b, CAST('x' AS char(3)) AS c": [["1.500", "t", "x  "]],
    "SELECT CAST('1e50' AS numeric) AS a": [["1" + 50 * "0"]],
    "SELECT code AS a FROM places WHERE 1=0": [],
}


def test_questions_by_a_spark_connect_server_are_answered_by_the_drivers_own_texts(
    server: str, connection: psycopg.Connection[Any], s3: Any, tmp_path: Path
) -> None:
    """Also where Spark's text would be another one, or where it has no type for the value."""
    tap = pipe_on(tmp_path, connection, s3, {"remote": server}).tap
    command = [sys.executable, "-c", ASKING, json.dumps(tap), *ANSWERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert [json.loads(line) for line in done.stdout.splitlines()] == list(ANSWERS.values()), done.stderr
