"""A store that ignores conditional puts: refused when the pipeline is locked, unless the user takes
the risk.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from servers.proxy import Proxy, running
from servers.s3 import S3
from singer_spark.errors import StorageError
from singer_spark.store.storage import Storage
from target.loading import record, schema, state, to_bytes
from target_spark_lake.commit.lock import newest_entry, take_lock
from target_spark_lake.layout import Layout
from target_spark_lake.ops import spark_lake
from target_spark_lake.target import TargetSparkLake

ID = {"id": {"type": "integer"}}
LAYOUT = Layout("test")


@pytest.fixture(scope="module")
def loose(moto: S3) -> Iterator[Proxy]:
    """S3 as served by a store that knows no conditions and silently overwrites what is there."""
    with running(moto.endpoint, frozenset({"if-none-match", "if-match"})) as proxy:
        yield proxy


@pytest.fixture
def config(moto: S3, loose: Proxy) -> dict[str, Any]:
    options = {**moto.storage_options, "endpoint_url": loose.endpoint}
    return {"bucket": moto.new_bucket(), "pipeline": "test", "storage_options": options}


def load(config: dict[str, Any], *ids: int) -> None:
    lines = to_bytes(schema("s", ID), *(record("s", id=id) for id in ids), state(last=ids[-1]))
    TargetSparkLake(config=config).listen(io.BytesIO(lines))


def test_unconditional_store_refused_before_staging(
    config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A store without conditional writes is refused before staging, and the lock released."""
    with pytest.raises(StorageError, match=r"RUN-053 .*accept_unconditional_storage"):
        load(config, 1)
    storage = Storage(config["bucket"], config["storage_options"])
    assert [file.path for file in storage.list("")] == [f"{LAYOUT.locks}/000000000001.json"]
    entry = newest_entry(storage, LAYOUT)
    assert entry is not None
    assert entry.released
    assert capsys.readouterr().out == ""


def test_accepted_unconditional_store_loads_exactly(config: dict[str, Any], tmp_path: Path) -> None:
    config["accept_unconditional_storage"] = True
    load(config, 1, 2)
    load(config, 3)
    storage = Storage(config["bucket"], config["storage_options"])
    tables = [
        pyarrow.parquet.read_table(io.BytesIO(storage.read(file.path) or b""))
        for file in storage.list("raw/s")
    ]
    assert sorted(id for table in tables for id in table["id"].to_pylist()) == [1, 2, 3]
    assert json.loads(storage.read(LAYOUT.state) or b"") == {"last": 3}
    path = tmp_path / "target.json"
    path.write_text(json.dumps(config))
    assert spark_lake.command(["recover", "--config", str(path)]) == 0


def test_conditional_store_is_probed_and_keeps_lock(s3: S3) -> None:
    """A store with conditional writes is probed with two extra puts and keeps the lock."""
    with running(s3.endpoint) as proxy:
        storage = Storage(s3.new_bucket(), {**s3.storage_options, "endpoint_url": proxy.endpoint})
        lock = take_lock(storage, LAYOUT, 60)
        puts = [request for request in proxy.passed if request.method == "PUT"]
        assert len(puts) == 3
        assert newest_entry(storage, LAYOUT) == lock.entry
        lock.release()
