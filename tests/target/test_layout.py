"""Where things lie in a bucket, as the contract spells it."""

from __future__ import annotations

import pytest

from singer_spark.errors import ConfigurationError
from target_spark_lake.layout import Layout, file_age, sort_prefix, written_by


def test_pipeline_paths_follow_contract() -> None:
    layout = Layout("dev:orders")
    assert layout.table("public-orders") == "raw/public-orders"
    assert layout.table("public-orders", "curated/sales") == "curated/sales/public-orders"
    assert layout.state == ".dataspoc/state/dev%3Aorders/state.json"
    assert layout.journal("R1") == ".dataspoc/runs/dev%3Aorders/R1.json"
    assert layout.rejected("R1", "a/b") == ".dataspoc/rejected/dev%3Aorders/R1/a%2Fb.jsonl"
    assert layout.staging("R1", "a/b") == ".dataspoc/staging/runs/dev%3Aorders/R1/a%2Fb"
    assert layout.table_record("raw/t") == ".dataspoc/tables/raw/t.json"


def test_final_file_is_named_after_its_run() -> None:
    """A final file is in its table or partition and named after its run."""
    layout = Layout("p", "/data/")
    assert layout.table("t") == "data/t"
    assert (
        layout.final_file("data/t", "", "R1", 7, "zstd.parquet") == "data/t/R1-00007.zstd.parquet"
    )
    assert (
        layout.final_file("data/t", "day=1/", "R1", 1, "zstd.parquet")
        == "data/t/day=1/R1-00001.zstd.parquet"
    )


def test_replacement_file_keeps_sort_position() -> None:
    """A replacement file sorts in the place of the original and names its writer."""
    layout = Layout("p")
    before, after = (layout.final_file("t", "", run, 1, "zstd.parquet") for run in ("R1", "R2"))
    files = [before]
    for run, codec in (("R8", "zstd"), ("R9", "none")):
        files.append(layout.final_file("t", "", run, 2, f"{codec}.parquet", sort_prefix(files[-1])))
    assert files[-1] == "t/R1-00001.R8-00002.R9-00002.none.parquet"
    assert sorted([after, *files], key=file_age)[-1] == after
    assert [written_by(path) for path in files] == ["R1-00001", "R8-00002", "R9-00002"]
    assert sort_prefix("t/a.parquet") == sort_prefix("t/day=1/a.zstd.parquet") == "a"


def test_staging_folders_are_private_to_pipelines() -> None:
    """No pipeline shares a staging folder with anything else."""
    for name in ("batches", "tmp", "runs"):
        assert Layout(name).pipeline_staging == f".dataspoc/staging/runs/{name}"


@pytest.mark.parametrize(
    "path",
    [
        "../elsewhere",
        "a/../../b",
        ".dataspoc",
        ".dataspoc/runs/",
        "./.dataspoc/runs",
        "a/./b",
        "a//b",
        ".",
    ],
)
def test_data_root_outside_bucket_is_refused(path: str) -> None:
    """A data root outside the bucket or in our own folder is refused."""
    with pytest.raises(ConfigurationError, match="LAKE-053"):
        Layout("p", path)
    with pytest.raises(ConfigurationError, match="LAKE-053"):
        Layout("p").table("t", path)
