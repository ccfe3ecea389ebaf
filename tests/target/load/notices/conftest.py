"""A receiver, and a lake whose runs notify it how they ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.webhook import Webhook, listening
from target.loading import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening() as found:
        yield found
