"""What this project relies on in PyIceberg that is not public; if a new version lacks it, this
names it.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path

import pytest
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.update.snapshot import (
    _ManifestMergeManager,
    _OverwriteFiles,
    _SnapshotProducer,
)

from target.iceberg_lake import IcebergLake
from target.loading import record, schema
from target_spark_lake.iceberg_log import producer


def test_pyiceberg_version_was_reviewed() -> None:
    assert version("pyiceberg") == "0.12.0", (
        "read its producers again, then name the new version here"
    )


def test_producers_have_required_members() -> None:
    made = list(inspect.signature(_SnapshotProducer.__init__).parameters)
    assert {"operation", "transaction", "io", "snapshot_properties"} <= set(made)
    assert "_process_manifests" in vars(_SnapshotProducer)
    assert issubclass(_OverwriteFiles, _SnapshotProducer)
    assert {"append_data_file", "delete_data_file", "commit", "snapshot_id"} <= set(
        dir(_SnapshotProducer)
    )
    merging = list(inspect.signature(_ManifestMergeManager.__init__).parameters)
    assert merging[1:] == [
        "target_size_bytes",
        "min_count_to_merge",
        "merge_enabled",
        "snapshot_producer",
    ]
    assert hasattr(_ManifestMergeManager, "merge_manifests")
    assert list(inspect.signature(Transaction._apply).parameters) == [
        "self",
        "updates",
        "requirements",
    ]
    assert isinstance(Transaction.table_metadata, property)
    # Without producers it tries once, and deletes nothing.
    source = inspect.getsource(Transaction.commit_transaction)
    assert "or not self._snapshot_producers or" in source
    assert "for producer in self._snapshot_producers:" in source
    assert "create_table_transaction" in vars(MetastoreCatalog)
    assert Snapshot.model_config["frozen"]
    assert SnapshotLogEntry.model_config["frozen"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
def test_manifests_stay_few_after_many_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 5
    monkeypatch.setattr(producer, "MOST_MANIFESTS", most)
    lake = IcebergLake(tmp_path / "lake")
    message = schema("s", {"id": {"type": "integer"}}, ("id",))
    replacing = schema(
        "s",
        {"id": {"type": "integer"}},
        ("id",),
        **{"x-load-method": "overwrite", "x-extent": "full"},
    )
    for number in range(most + 4):
        lake.load(message, record("s", id=number))
    table = lake.table("s")
    current = table.metadata.current_snapshot()
    assert current is not None
    assert len(current.manifests(table.io)) < most
    for number in range(3):
        lake.load(replacing, record("s", id=number))
    table = lake.table("s")
    current = table.metadata.current_snapshot()
    assert current is not None
    assert len(current.manifests(table.io)) == 2
    assert lake.rows("s", "id") == [(2,)]
