"""The target on S3, Google and Azure: tables of every format, quarantine, checkpoints, and what a
run costs there.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.proxy import running
from servers.s3 import S3
from singer_spark.errors import ProtocolError
from singer_spark.state.source import open_state_source
from singer_spark.store.storage import Storage
from target.loading import JSON, record, schema, staging_ended, state, to_bytes, with_resume
from target_spark_lake.iceberg_log.lake_catalog import io_properties
from target_spark_lake.target import TargetSparkLake

pytestmark = pytest.mark.usefixtures("without_jvm")

Store = S3 | GoogleStore | AzureStore
POINTS = schema("points", {"id": {"type": "integer"}, "x": {"type": ["integer", "null"]}}, ("id",))
STATE = ".dataspoc/state/test/state.json"
# Requests of the target alone: of a run without news, with one file, and of each stream with a file
# more. A few come only now and then.
IDLE, ONE_FILE, A_STREAM, NOW_AND_THEN = 33, 42, {"s3": 9, "gs": 9, "az": 11}, 3


class Bucket:
    """A lake in a bucket, loaded in this process."""

    def __init__(self, store: Store, **settings: Any) -> None:
        self.url = f"{store.new_bucket()}/some lake"
        self.store = store
        self.lake = Storage(self.url, store.storage_options)
        self.settings = settings

    def load(self, *messages: JSON | bytes, endpoint: str = "") -> None:
        options = self.store.options_at(endpoint or self.store.endpoint)
        place = {"bucket": self.url, "pipeline": "test", "storage_options": options}
        with staging_ended():
            TargetSparkLake(config={**place, **self.settings}).listen(
                io.BytesIO(to_bytes(*messages))
            )

    def saved(self) -> Any:
        return json.loads(self.lake.read(STATE) or b"null")

    def checkpoint(self) -> Any:
        return open_state_source(f"{self.url}/{STATE}", self.store.storage_options).checkpoint

    def rows(self) -> list[int]:
        """As the table's own library has them; of Parquet, as any plain reader does."""
        if self.settings.get("format") == "delta":
            files = DeltaTable(
                self.lake.delta_url("raw/points"), storage_options=self.lake.delta_options()
            ).file_uris()
            return self.ids([f"raw/points/{uri.rpartition('/')[2]}" for uri in files])
        if self.settings.get("format") == "iceberg":
            catalog = load_catalog("lake", **io_properties(self.lake), **self.settings["catalog"])
            found = catalog.load_table(("raw", "points")).scan().to_arrow()
            catalog.close()
            return sorted(found["id"].to_pylist())
        return self.ids([file.path for file in self.lake.list("raw/points")])

    def ids(self, paths: list[str]) -> list[int]:
        tables = [pq.read_table(io.BytesIO(self.lake.read(path) or b"")) for path in paths]
        return sorted(each for table in tables for each in table["id"].to_pylist())


# A log is committed and read by each store's own options; plain files are written as the state is.
@pytest.mark.parametrize(
    ("store", "chosen"),
    [
        *((store, log) for store in ("s3", "google", "azure") for log in ("delta", "iceberg")),
        ("s3", "parquet"),
    ],
    indirect=["store"],
)
def test_tables_and_checkpoints_on_each_store(store: Store, chosen: str, tmp_path: Path) -> None:
    """Tables, quarantine and checkpoints work on each store."""
    settings: JSON = {"format": chosen, "on_invalid_record": "quarantine"}
    if chosen == "iceberg":
        settings["catalog"] = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    bucket = Bucket(store, **settings)
    broken = {"type": "RECORD", "stream": "points", "record": {"id": "no number"}}
    bucket.load(POINTS, record("points", id=1), broken, record("points", id=2), state(done=2))
    assert (bucket.rows(), bucket.saved()) == ([1, 2], {"done": 2})
    (rejected,) = bucket.lake.list(".dataspoc/rejected")
    assert json.loads(bucket.lake.read(rejected.path) or b"")["record"] == {"id": "no number"}

    # The tap dies after its second STATE; another one continues from there, and its lines are in
    # the table once.
    body = [POINTS, record("points", id=3), state(done=3), record("points", id=4), state(done=4)]
    opening = {"type": "STATE", "final": False, "value": {"done": 2}, "start": "saved"}
    with pytest.raises(ProtocolError, match="LAKE-005"):
        bucket.load(opening, *with_resume(body)[:3])
    assert (bucket.rows(), bucket.saved()) == ([1, 2], {"done": 2})
    checkpoint = bucket.checkpoint()
    assert (checkpoint.state, checkpoint.resume["sent"]) == ({"done": 3}, 2)
    opening |= {"value": checkpoint.state, "start": "resume", "resume": checkpoint.resume}
    bucket.load(opening, POINTS, *with_resume(body)[3:], {**body[-1], "final": True})
    assert (bucket.rows(), bucket.saved()) == ([1, 2, 3, 4], {"done": 4})
    assert bucket.checkpoint() is None
    assert bucket.lake.list(".dataspoc/staging") == []


def test_run_requests_stay_within_budget(store: Store) -> None:
    bucket = Bucket(store)
    streams = [schema(f"s{n}", {"id": {"type": "integer"}}, ("id",)) for n in range(6)]

    def requests(number: int, files: int) -> int:
        lines = [
            line for each in streams[:files] for line in (each, record(each["stream"], id=number))
        ]
        with running(store.endpoint) as proxy:
            bucket.load(*(lines or streams[:1]), state(done=number), endpoint=proxy.endpoint)
            return len(proxy.passed)

    requests(1, 6)
    counted = idle, one, six = requests(2, 0), requests(3, 1), requests(4, 6)
    assert idle <= IDLE + NOW_AND_THEN, counted
    assert one <= ONE_FILE + NOW_AND_THEN, counted
    assert six <= ONE_FILE + NOW_AND_THEN + 5 * A_STREAM[bucket.lake.kind], counted
