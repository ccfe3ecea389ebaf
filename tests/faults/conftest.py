"""What the runs that fail or die have in common."""

from __future__ import annotations

import pytest

from faults.small_lake import dead_process
from singer_spark.core.identity import Process
from target.fixtures import checkpoints_at_once, no_sign_of_life_from_the_dead, without_jvm

__all__ = ["checkpoints_at_once", "no_sign_of_life_from_the_dead", "without_jvm"]


@pytest.fixture(scope="module")
def dead() -> Process:
    """A process of this machine that has ended."""
    return dead_process()
