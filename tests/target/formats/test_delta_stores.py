"""delta-rs reaches a table on each store by the lake's own storage options."""

from __future__ import annotations

import json

from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.s3 import S3
from singer_spark.store.storage import Storage
from target_spark_lake.delta_log.snapshot import open_table

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}
ENTRIES = (
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "1",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(SCHEMA),
            "partitionColumns": [],
            "configuration": {},
            "createdTime": 0,
        }
    },
)


def test_delta_rs_opens_table_on_each_store(store: S3 | GoogleStore | AzureStore) -> None:
    storage = Storage(f"{store.new_bucket()}/some lake", store.storage_options)
    assert open_table(storage, "raw/points") is None
    log = "\n".join(map(json.dumps, ENTRIES)).encode()
    assert storage.create("raw/points/_delta_log/00000000000000000000.json", log)
    table = open_table(storage, "raw/points")
    assert table is not None
    assert table.version() == 0
