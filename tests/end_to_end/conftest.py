"""Programs under test that may be killed: none outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.marked import Marked


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    """Starts programs; after the test they, and all that they started, must be gone."""
    programs = Marked(tmp_path / "temporary")
    try:
        yield programs
        programs.leave_nothing()
    finally:
        programs.end_all()
