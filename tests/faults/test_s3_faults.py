"""Faults of S3 as a client meets them: answers that get lost, a busy store, silence, a store that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from faults.small_lake import SmallLake, dead_process
from servers.proxy import ANSWER_LOST, GONE, SILENT, SLOW_DOWN, Proxy, running
from servers.s3 import S3
from singer_spark.errors import SingerSparkError
from singer_spark.process.identity import Process

# s3fs tries again by itself, after a shorter wait than botocore.
ONE_ATTEMPT = {"retries": {"total_max_attempts": 1}}
SHORT_OF_PATIENCE = {**ONE_ATTEMPT, "read_timeout": 0.5}
CHANGES, LOOKS = frozenset({"PUT", "POST", "DELETE"}), frozenset({"GET", "HEAD"})
ROUNDS_A_LAKE = 8  # what the checks read grows with each


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    with running(s3.endpoint) as proxy:
        yield proxy


def through(proxy: Proxy, s3: S3, url: str, config: dict[str, Any] = ONE_ATTEMPT) -> SmallLake:
    """The lake as it is seen through the proxy."""
    return SmallLake(url, {**s3.storage_options, "endpoint_url": proxy.endpoint, "config_kwargs": config})


def requests_of_a_sync(proxy: Proxy, s3: S3, methods: frozenset[str]) -> int:
    lake = through(proxy, s3, s3.new_bucket())
    lake.sync()
    proxy.passed.clear()
    lake.sync()
    return sum(request.method in methods for request in proxy.passed)


# What is overcome by asking again is the same everywhere; lost answers and lost stores are not.
@pytest.mark.parametrize(("fault", "each"), [(ANSWER_LOST, 1), (GONE, 1), (SLOW_DOWN, 3), (SILENT, 3)])
def test_a_fault_of_http_at_any_change_loses_and_repeats_nothing(proxy: Proxy, s3: S3, fault: str, each: int) -> None:
    changes = requests_of_a_sync(proxy, s3, CHANGES)
    assert changes > 15
    go_through(proxy, s3, fault, CHANGES, range(1, changes + 1, each))


@pytest.mark.parametrize(("fault", "each"), [(GONE, 4), (SLOW_DOWN, 6), (SILENT, 6)])
def test_a_fault_of_http_at_any_look_loses_and_repeats_nothing(proxy: Proxy, s3: S3, fault: str, each: int) -> None:
    looks = requests_of_a_sync(proxy, s3, LOOKS)
    assert looks > 20
    go_through(proxy, s3, fault, LOOKS, range(1, looks + 1, each))


def go_through(proxy: Proxy, s3: S3, fault: str, methods: frozenset[str], at: range) -> None:
    """A run with the fault at each of these requests, and a good one after it."""
    dead = dead_process()
    for turn, nth in enumerate(at):
        if turn % ROUNDS_A_LAKE == 0:
            lake = SmallLake(s3.new_bucket(), s3.storage_options)
            faulty = through(proxy, s3, lake.url, SHORT_OF_PATIENCE if fault == SILENT else ONE_ATTEMPT)
            lake.sync()
        committed = lake.committed_bound()
        proxy.fail(fault, nth, methods)
        bound = one_try(faulty, dead, patient=fault != GONE)
        proxy.fail(None)
        if fault in (ANSWER_LOST, SLOW_DOWN) and methods == CHANGES:
            assert bound, "what happens once to a change is overcome by asking again"
        lake.check_readers_see_committed_rows()
        assert lake.committed_bound() >= max(committed, bound)
        # Where the store was gone, what was left undone at the end is the next run's to do.
        lake.check_exact(bound if bound and fault != GONE else lake.sync())


def one_try(lake: SmallLake, process: Process, *, patient: bool) -> int:
    """What a run saved, 0 where it failed; an impatient one asks for nothing twice."""
    lake.storage().files.filesystem.retries = 5 if patient else 1  # type: ignore[attr-defined]
    try:
        return lake.sync(process=process)
    except SingerSparkError:
        return 0
