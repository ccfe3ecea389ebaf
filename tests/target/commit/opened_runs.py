"""Runs on a small lake, opened without a sign of life of their own, and what their journals say."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.small_lake import LAYOUT, NO_BEATS, SmallLake
from singer_spark.state.run_log import decode
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.layout import Layout


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(f"{tmp_path}/lake", {})


def opened(lake: SmallLake, layout: Layout = LAYOUT) -> PipelineRun:
    return open_run(lake.storage(), layout, lock_ttl_seconds=NO_BEATS)


def journal_of(lake: SmallLake, run_id: str) -> dict[str, object]:
    data = lake.storage().read(LAYOUT.journal(run_id))
    assert data is not None
    return decode(data, run_id)
