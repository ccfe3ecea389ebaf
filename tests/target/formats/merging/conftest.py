"""Merges on both engines: for modules whose tests use the fixture `engine`."""

from __future__ import annotations

import pytest

from target import loading
from target_spark_lake.formats import merge_engine, spark_merge
from target_spark_lake.stage import arrow_staging
from target_spark_lake.table import lake_parquet


@pytest.fixture(params=["local", "local in pieces", "spark in pieces"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What decides and rewrites: all at once, or some ranges of keys, small row groups, and in
    Spark a task a file.

    Both engines decide by the same functions, so Spark runs most tests in pieces only; the test
    against a dict also runs it all at once.
    """
    name = str(request.param)
    monkeypatch.setitem(loading.DEFAULTS, "engine", name.split()[0])
    if "pieces" in name:
        monkeypatch.setattr(merge_engine, "KEYS_AT_ONCE", 3)
        monkeypatch.setattr(merge_engine, "SAMPLED", 2)
        monkeypatch.setattr(spark_merge, "divided", lambda files, _: [[file] for file in files])
        small_row_groups(monkeypatch)
    return name


def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a few rows, copied if they are unchanged."""
    for module in (arrow_staging, lake_parquet):
        monkeypatch.setattr(module, "ROW_GROUP_BYTES", 600)
    monkeypatch.setattr(lake_parquet, "BATCH_ROWS", 5)
    for name in ("FEW_ROWS", "FEW_BYTES"):
        monkeypatch.setattr(lake_parquet, name, 0)
