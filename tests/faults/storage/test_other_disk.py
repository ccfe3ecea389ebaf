"""The data root lies on another disk than the lake's own folder: mounted, or behind a link."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from faults.faulty import FAULTS, Died, Faulty
from faults.small_lake import SmallLake, dead_process
from singer_spark.errors import SingerSparkError


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_two_disk_lake_loses_and_repeats_nothing(tmp_path: Path, fault: str) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        if Path(elsewhere).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is no other disk")
        (tmp_path / "raw").symlink_to(elsewhere)
        lake = SmallLake(str(tmp_path), {})
        lake.check_exact(lake.sync())
        for nth in range(1, 4):
            storage = lake.faulty_files(
                partial(Faulty, nth=nth, fault=fault, only=frozenset({"move"}))
            )
            with suppress(SingerSparkError, Died):
                lake.sync(storage, dead_process())
            lake.check_exact(lake.sync())
