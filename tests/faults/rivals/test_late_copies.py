"""A copy inside an object store continues when its process stalls, and may end when the file is
long retired.
"""

from __future__ import annotations

from faults.faulty import Counting
from faults.small_lake import LAYOUT, NO_BEATS, SmallLake
from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.s3 import S3
from singer_spark.state.run_log import PUBLISHED, RunEntry, last_committed
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.commit.publish import RETIRED_LOOKED_AT, remove_late_copies


def test_late_copy_of_a_retired_file_is_removed(
    store: S3 | GoogleStore | AzureStore,
) -> None:
    """A copy that finishes after its file was retired is removed at the next start."""
    lake = SmallLake(store.new_bucket(), store.storage_options)
    lake.sync()
    storage = lake.storage()
    kept = {file.path: storage.read(file.path) for file in storage.list(LAYOUT.table("whole"))}
    bound = lake.sync()
    for path, data in kept.items():
        assert data is not None
        storage.replace(path, data)
    open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS).fail(RuntimeError("only recovered"))
    lake.check_exact(bound)


def test_start_checks_few_retired_files(s3: S3) -> None:
    """A start makes the same few calls however many files were retired."""
    lake = SmallLake(s3.new_bucket(), s3.storage_options)
    lake.sync()
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    old = [
        f"raw/whole/day={number % 7}/2020{number:04d}T000000000000Z-0-00001.parquet"
        for number in range(2000)
    ]
    newest = old[-1]
    lake.storage().replace(newest, b"late")
    counting = Counting()
    storage = lake.faulty_files(counting)
    body = {**entry.body, "retire": sorted(old)}
    remove_late_copies(storage, RunEntry(entry.run_id, PUBLISHED, None, None, body))
    assert counting.calls == ["size"] * RETIRED_LOOKED_AT + ["delete"]
    assert not lake.storage().exists(newest)
