"""A bucket of each store behind a proxy, which reports what goes over the wire."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.proxy import Passed, Proxy, running
from servers.s3 import S3
from singer_spark.store.bucket import PIECE_BYTES
from singer_spark.store.storage import Storage

Store = S3 | GoogleStore | AzureStore
WRITES = frozenset({"PUT", "POST"})


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    with running(store.endpoint) as proxy:
        yield proxy


@pytest.fixture
def bucket(store: Store) -> str:
    return store.new_bucket()


@pytest.fixture
def opened(store: Store, proxy: Proxy, bucket: str) -> Callable[[], Storage]:
    """Opens the bucket through the proxy."""
    return lambda: Storage(bucket, store.options_at(proxy.endpoint))


@pytest.fixture
def storage(opened: Callable[[], Storage]) -> Storage:
    return opened()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(2 * PIECE_BYTES + 1234))
    return path


def bytes_on_the_wire(passed: list[Passed]) -> int:
    return sum(request.sent + request.received for request in passed)
