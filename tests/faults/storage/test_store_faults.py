"""Faults of a store as a client meets them: answers that get lost, a busy store, silence, a store
that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.small_lake import SmallLake, dead_process
from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.proxy import ANSWER_LOST, GONE, SILENT, SLOW_DOWN, Proxy, running
from servers.s3 import S3
from shared.store.patience import never_again, short_of_patience
from singer_spark.core.identity import Process
from singer_spark.errors import SingerSparkError

Store = S3 | GoogleStore | AzureStore
CHANGES, LOOKS = frozenset({"PUT", "POST", "DELETE"}), frozenset({"GET", "HEAD"})
ROUNDS_A_LAKE = 8  # what the checks read grows with each


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    with running(store.endpoint) as proxy:
        yield proxy


def through(proxy: Proxy, store: Store, url: str) -> SmallLake:
    """The lake as it is seen through the proxy."""
    return SmallLake(url, store.options_at(proxy.endpoint))


@pytest.fixture(scope="module")
def passed() -> dict[type[Store], list[str]]:
    """The methods of a run's requests to each store: counted once."""
    return {}


@pytest.fixture
def requests(proxy: Proxy, store: Store, passed: dict[type[Store], list[str]]) -> list[str]:
    if type(store) not in passed:
        lake = through(proxy, store, store.new_bucket())
        lake.sync()
        proxy.passed.clear()
        lake.sync()
        passed[type(store)] = [request.method for request in proxy.passed]
    return passed[type(store)]


def cases(*faults: tuple[str, int], elsewhere: tuple[str, int]) -> pytest.MarkDecorator:
    """These faults occur every few requests on S3, and one of them on the other stores: they share
    all of the code but the requests themselves. test_object_storage retries each store, and has a
    busy one refuse every kind of request.
    """
    found = [("s3", *fault) for fault in faults]
    found += [(store, *elsewhere) for store in ("google", "azure")]
    return pytest.mark.parametrize(("store", "fault", "each"), found, indirect=["store"])


@cases(
    (ANSWER_LOST, 3),
    (GONE, 3),
    (SILENT, 6),
    (SLOW_DOWN, 6),
    elsewhere=(ANSWER_LOST, 9),
)
def test_http_write_fault_loses_and_repeats_nothing(
    proxy: Proxy,
    store: Store,
    requests: list[str],
    fault: str,
    each: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = sum(method in CHANGES for method in requests)
    assert changes > 15
    go_through(proxy, store, fault, CHANGES, range(1, changes + 1, each), monkeypatch)


@cases((GONE, 9), (SILENT, 9), elsewhere=(SILENT, 18))
def test_http_read_fault_loses_and_repeats_nothing(
    proxy: Proxy,
    store: Store,
    requests: list[str],
    fault: str,
    each: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = sum(method in LOOKS for method in requests)
    assert looks > 15
    go_through(proxy, store, fault, LOOKS, range(1, looks + 1, each), monkeypatch)


def go_through(
    proxy: Proxy,
    store: Store,
    fault: str,
    methods: frozenset[str],
    at: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run with the fault at each of these requests, and a good one after it."""
    dead = dead_process()
    if fault == GONE:
        never_again(monkeypatch)
    if fault == SILENT:
        short_of_patience(monkeypatch)
    for turn, nth in enumerate(at):
        if turn % ROUNDS_A_LAKE == 0:
            lake = SmallLake(store.new_bucket(), store.storage_options)
            faulty = through(proxy, store, lake.url)
            lake.sync()
        committed = lake.committed_bound()
        proxy.fail(fault, nth, methods)
        bound = one_try(faulty, dead)
        proxy.fail(None)
        if fault in (ANSWER_LOST, SLOW_DOWN) and methods == CHANGES:
            assert bound, "what happens once to a change is overcome by asking again"
        lake.check_readers_see_committed_rows()
        assert lake.committed_bound() >= max(committed, bound)
        # Where the store was gone, what was left undone at the end is the next run's to do.
        lake.check_exact(bound if bound and fault != GONE else lake.sync())


def one_try(lake: SmallLake, process: Process) -> int:
    """What a run saved, 0 where it failed."""
    try:
        return lake.sync(process=process)
    except SingerSparkError:
        return 0
