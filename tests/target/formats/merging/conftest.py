"""Merges on both engines: for modules whose tests use the fixture `engine`."""

from __future__ import annotations

import pytest

from target import loading


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who decides and rewrites."""
    monkeypatch.setitem(loading.DEFAULTS, "engine", request.param)
    return str(request.param)
