"""A pipeline on S3, Google and Azure: first sync, upserts by batches, a kill in the commit,
recovery.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

from end_to_end.here import load_here, send_here
from end_to_end.pipe import Pipe
from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.postgresql import PostgreSQL
from servers.proxy import SILENT, Proxy, running
from servers.s3 import S3
from singer_spark.store.storage import Storage
from tap.opened import login
from target_spark_lake.layout import Layout
from target_spark_lake.ops.spark_lake import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Store = S3 | GoogleStore | AzureStore
LAYOUT = Layout("test")
STATE = ".dataspoc/state/test/state.json"


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    with running(store.endpoint) as proxy:
        yield proxy


def rows(lake: Storage) -> list[tuple[int, str]]:
    tables = [
        pq.read_table(io.BytesIO(lake.read(file.path) or b""))
        for file in lake.list("raw/public-orders")
    ]
    return sorted((row["id"], row["note"]) for table in tables for row in table.to_pylist())


def test_pipeline_works_on_each_store(
    store: Store,
    proxy: Proxy,
    postgresql: PostgreSQL,
    spark: SparkSession,
    tmp_path: Path,
    caplog: Any,
) -> None:
    """It covers a first sync, upserts by batches, a kill in the commit, and recovery."""
    database, bucket = postgresql.new_database(), f"{store.new_bucket()}/some lake"
    options = {"storage_options": store.storage_options}
    batches = {
        "encoding": {"format": "parquet"},
        "storage": {"root": f"{bucket}/.dataspoc/staging/batches"},
    }
    tap = login(
        database,
        incremental_tables=["public.orders:changed:integer"],
        batch_config=batches,
        **options,
    )
    pipe = Pipe(tmp_path / "run", tap, {"bucket": bucket, "load_method": "append-only", **options})
    lake = Storage(bucket, store.storage_options)
    with psycopg.connect(database.dsn, autocommit=True) as source, caplog.at_level("INFO"):
        source.execute("create table orders (id integer primary key, note text, changed integer)")
        source.execute("insert into orders select n, 'note ' || n, n from generate_series(1, 50) n")

        def expected() -> list[tuple[int, str]]:
            return [
                (row[0], row[1])
                for row in source.execute("select id, note from orders order by id")
            ]

        def load(sent: bytes) -> None:
            load_here(pipe.target, sent)
            assert rows(lake) == expected()

        seen = ""
        if lake.kind == "s3":
            ran = pipe.run("--state", f"{bucket}/{STATE}", with_state=False).succeeded()
            seen = ran.tap_errors + ran.target_errors
            assert rows(lake) == expected()
        else:
            load(send_here(pipe).output)
        source.execute("insert into orders values (51, 'new', 51)")
        # The target is killed while its commit is published: the answer to the first copy of a file
        # never comes.
        killed_in_its_commit(pipe, store, proxy, lake, send_here(pipe).output)
        assert command(["recover", "--config", str(pipe.folder / "target.json")]) == 0
        assert rows(lake) == expected()
        source.execute("insert into orders values (52, 'newer', 53)")
        source.execute("update orders set note = 'changed', changed = 52 where id = 7")
        pipe.target["load_method"] = "upsert"
        load(send_here(pipe).output)
        seen += caplog.text
    assert (
        json.loads(lake.read(STATE) or b"")["bookmarks"]["public-orders"]["replication_key_value"]
        == 53
    )
    assert lake.list(".dataspoc/staging") == []
    for secret in filter(None, (store.storage_options.get("secret"), getattr(store, "key", None))):
        assert secret == "tester" or secret not in seen


def killed_in_its_commit(
    pipe: Pipe, store: Store, proxy: Proxy, lake: Storage, sent: bytes
) -> None:
    """A run of the target that sees the store through the proxy, and dies once its journal is
    there.
    """
    straight = pipe.target["storage_options"]
    pipe.target["storage_options"] = store.options_at(proxy.endpoint)
    proxy.fail(SILENT, 1, frozenset({"PUT", "POST", "DELETE"}), behind=LAYOUT.runs)
    with subprocess.Popen(
        pipe.target_command(), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as target:
        assert target.stdin is not None
        target.stdin.write(sent)
        target.stdin.close()
        while not proxy.silent.wait(0.1):
            assert target.poll() is None
        os.kill(target.pid, signal.SIGKILL)
    proxy.fail(None)
    killed = lake.list(LAYOUT.runs)[-1]
    journal = json.loads(lake.read(killed.path) or b"")
    assert journal["phase"] == "committed", journal["error"]
    pipe.target["storage_options"] = straight
    pipe.target_command()
