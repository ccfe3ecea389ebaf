"""Who may write which table: one pipeline with one stream, which claims it before its commit."""

from __future__ import annotations

import pytest

from faults.small_lake import PIPELINE, STEP, SmallLake
from singer_spark.errors import (
    ConfigurationError,
    StorageError,
)
from singer_spark.store.storage import Storage
from target.commit.opened_runs import lake, opened
from target_spark_lake.layout import TABLES, Layout
from target_spark_lake.table.changes import Commit, StagedFile, TableChange
from target_spark_lake.table.table_record import TableRecord

__all__ = ["lake"]


def test_table_belongs_to_one_pipeline_and_stream(lake: SmallLake) -> None:
    lake.sync()
    other = opened(lake, Layout("another"))
    with pytest.raises(ConfigurationError, match=rf"LAKE-050 .*{PIPELINE}.*grows"):
        other.table_record("grows", "raw/grows")
    with pytest.raises(ConfigurationError, match="LAKE-050") as refused:
        record = TableRecord("another", "grows", {"id": "bigint"})
        other.commit(Commit((TableChange("grows", "raw/grows", (), record=record),), {}))
    other.fail(refused.value)
    lake.check_exact(STEP)


def test_second_claim_of_a_new_table_is_refused(
    lake: SmallLake,
) -> None:
    """The claim is made before the commit; a run that then fails gives it back."""
    first, second = opened(lake), opened(lake, Layout("another"))
    lost = StagedFile(f"{first.staging_path('t')}/lost", 1, 1)
    record = TableRecord(PIPELINE, "t", {"id": "bigint"})
    with pytest.raises(StorageError):
        first.commit(Commit((TableChange("t", "raw/t", (lost,), record=record),), {}))
    mine = TableRecord("another", "t", {"id": "bigint"}, "append-only")
    second.commit(Commit((TableChange("t", "raw/t", (), record=mine),), {}))
    with pytest.raises(ConfigurationError, match="LAKE-050"):
        first.commit(
            Commit(
                (
                    TableChange("u", "raw/u", (), record=record),
                    TableChange("t", "raw/t", (), record=record),
                )
            )
        )
    first.fail(RuntimeError("refused"))
    assert second.table_record("u", "raw/u") is None
    kept = opened(lake, Layout("another")).table_record("t", "raw/t")
    assert kept is not None
    assert (kept.columns, kept.load_method, kept.claimed_by) == (
        {"id": "bigint"},
        "append-only",
        second.run_id,
    )


def test_streams_sharing_table_are_refused(lake: SmallLake) -> None:
    run = opened(lake)
    changes = (TableChange("a", "raw/t"), TableChange("b", "raw/t"))
    with pytest.raises(ConfigurationError, match="LAKE-050"):
        run.commit(Commit(changes))
    run.fail(RuntimeError("refused"))


def test_store_losing_claims_fails_run(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run fails instead of retrying the claim forever."""
    create = Storage.create
    monkeypatch.setattr(
        Storage,
        "create",
        lambda self, path, data: not path.startswith(TABLES) and create(self, path, data),
    )
    with pytest.raises(StorageError, match=r"LAKE-062 .*raw"):
        lake.sync()
