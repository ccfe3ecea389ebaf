"""The lake that these taps continue to fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from target.increment import lake_with_two_rows
from target.loading import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_with_two_rows(tmp_path / "lake")
