"""Hundreds of rounds with real fsync are slow on a busy disk: these lakes live in memory where
there is a place.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.small_lake import dead_process
from singer_spark.core.identity import Process
from target.fixtures import checkpoints_at_once, no_sign_of_life_from_the_dead, without_jvm

__all__ = ["checkpoints_at_once", "no_sign_of_life_from_the_dead", "without_jvm"]

MEMORY_DISK = Path("/dev/shm")


@pytest.fixture(scope="module")
def dead() -> Process:
    """A process of this machine that has ended."""
    return dead_process()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder on a memory disk, else pytest's own."""
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
        yield Path(folder)
