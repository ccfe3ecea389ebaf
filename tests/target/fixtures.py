"""Fixtures for tests that load the target in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from target.batch_making import BatchRun
from target.loading import Lake
from target_spark_lake.commit.lock import RunLock
from target_spark_lake.load import checkpointing


@pytest.fixture
def without_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests' batches are plain, so a request for Spark is a mistake."""

    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("target_spark_lake.target.start_session", refuse)


@pytest.fixture(autouse=True)
def no_sign_of_life_from_the_dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run that died in this process leaves the thread of its lock: none outlives its test."""
    locks: list[RunLock] = []
    begin = RunLock.__init__

    def kept(lock: RunLock, *arguments: Any) -> None:
        begin(lock, *arguments)
        locks.append(lock)

    monkeypatch.setattr(RunLock, "__init__", kept)
    yield
    for lock in locks:
        lock.stop()


@pytest.fixture
def checkpoints_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are cut at each STATE, and each STATE that is staged is written as a checkpoint."""
    monkeypatch.setattr(checkpointing, "CUT_SECONDS", 0)
    monkeypatch.setattr(checkpointing, "WRITE_SECONDS", 0)
    monkeypatch.setattr(checkpointing, "CUTS_A_RUN", 1 << 62)
    monkeypatch.setattr(checkpointing, "WRITES_A_RUN", 1 << 62)


@pytest.fixture
def tap(lake: Lake) -> BatchRun:
    """The batches of a run of a tap into the lake of the test."""
    return BatchRun(lake.folder)
