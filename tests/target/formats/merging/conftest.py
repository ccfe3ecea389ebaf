"""Merges on both engines: for modules whose tests use the fixture `engine`."""

from __future__ import annotations

import pytest

from target import loading
from target_spark_lake.formats.merging import arrow_merge


@pytest.fixture(params=["local", "local in ranges", "spark"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who decides and rewrites; in this process, all keys at once or some ranges of them after each other."""
    name = str(request.param)
    monkeypatch.setitem(loading.DEFAULTS, "engine", name.split()[0])
    if "ranges" in name:
        monkeypatch.setattr(arrow_merge, "KEYS_AT_ONCE", 3)
        monkeypatch.setattr(arrow_merge, "SAMPLED", 2)
    return name
