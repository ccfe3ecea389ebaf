"""What a test needs of the machine."""

from __future__ import annotations

import os

import pytest


def need(lacking: str | None) -> None:
    """Skip the test because of this; in CI, the test continues and fails."""
    if lacking and not os.environ.get("CI"):
        pytest.skip(lacking)
