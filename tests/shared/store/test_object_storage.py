"""Storage in the clouds, looked at from the wire: what is read, in which pieces, and what is asked
for again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servers.azure import AzureStore
from servers.google import GoogleStore
from servers.proxy import (
    ANSWER_LOST,
    CONFLICT,
    GONE,
    SILENT,
    SLOW_DOWN,
    TOO_LARGE,
    TOO_MANY,
    Proxy,
    running,
)
from servers.s3 import S3
from shared.store.patience import never_again, short_of_patience, without_pauses
from shared.store.watched_store import WRITES, Store, bytes_on_the_wire
from singer_spark.errors import StorageError
from singer_spark.store import google_bucket, obstore_bucket
from singer_spark.store.bucket import PIECE_BYTES
from singer_spark.store.parquet_footer import rows_of
from singer_spark.store.storage import Storage


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


def test_large_file_moves_unread_and_is_seekable(
    storage: Storage, proxy: Proxy, large: Path
) -> None:
    """A large file is uploaded in pieces, moved unread and read from any position."""
    storage.upload(large, "staging/part")
    assert storage.size("staging/part") == large.stat().st_size
    assert max(request.sent for request in proxy.passed) == PIECE_BYTES
    proxy.passed.clear()
    storage.move("staging/part", "raw/part")
    assert bytes_on_the_wire(proxy.passed) < 10_000
    assert storage.size("staging/part") is None
    content = large.read_bytes()
    assert storage.read("raw/part") == content
    with storage.open("raw/part") as file:
        for place, size in (
            (0, 10),
            (10, 5 << 20),
            (3, 7),
            (len(content) - 9, 100),
            (7 << 20, 9 << 20),
            (1 << 20, 1),
        ):
            assert file.seek(place) == place
            assert file.read(size) == content[place : place + size]
        file.seek(0)
        assert file.read() == content
        assert file.read(1) == b""


def test_upload_memory_is_independent_of_file_size(
    store: Store, bucket: str, tmp_path: Path
) -> None:
    storage = Storage(bucket, store.storage_options)
    storage.replace("first", b"1")  # what every program needs is loaded
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(104 << 20)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = peak_bytes()
    storage.upload(tmp_path / "sparse", "part")
    assert peak_bytes() - before < 10 * PIECE_BYTES
    assert storage.size("part") == 104 << 20


def peak_bytes() -> int:
    """The greatest memory of this process so far."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) << 10


def test_streamed_file_appears_on_close(storage: Storage, proxy: Proxy, large: Path) -> None:
    content = large.read_bytes()
    for path, size in (("small", 1234), ("large", len(content))):
        stream = storage.open_writer(path)
        for start in range(0, size, 3 << 20):
            stream.write(content[start : min(start + (3 << 20), size)])
        assert stream.tell() == size
        assert storage.read(path) is None
        stream.close()
        assert storage.read(path) == content[:size]
    assert max(request.sent for request in proxy.passed) == PIECE_BYTES


def test_large_object_is_extended_inside_the_store(
    storage: Storage, proxy: Proxy, large: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large object is extended inside the store where the store supports it."""
    monkeypatch.setattr("singer_spark.store.s3_bucket.COPY_BYTES", 8 << 20)
    storage.upload(large, "raw/a%20b/part")
    proxy.passed.clear()
    storage.extend("raw/a%20b/part", b"tail", "staging/a%20b/part")
    if isinstance(store, AzureStore):
        assert max(max(request.sent, request.received) for request in proxy.passed) <= PIECE_BYTES
    else:
        assert bytes_on_the_wire(proxy.passed) < 20_000
    assert storage.read("staging/a%20b/part") == large.read_bytes() + b"tail"
    assert [file.path for file in storage.list("staging")] == ["staging/a%20b/part"]


def test_interrupted_upload_leaves_nothing(
    opened: Callable[[], Storage],
    proxy: Proxy,
    large: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An upload or an extension that is interrupted leaves nothing."""
    opened().upload(large, "raw/part")
    # There the second request is the last one: its work is done.
    first = 1 if isinstance(store, GoogleStore) else 2
    never_again(monkeypatch)
    storage = opened()
    for change in (
        lambda: storage.upload(large, "staging/part"),
        lambda: storage.extend("raw/part", b"x", "staging/x"),
    ):
        proxy.fail(GONE, first, WRITES)
        with pytest.raises(StorageError, match=r"RUN-052 .*staging/"):
            change()
        proxy.fail(None)
    assert [file.path for file in storage.list("") if "tail" not in file.path] == ["raw/part"]


def test_upload_survives_lost_responses(storage: Storage, proxy: Proxy, large: Path) -> None:
    proxy.passed.clear()
    storage.upload(large, "staging/probe")
    requests = sum(request.method in WRITES for request in proxy.passed)
    for nth in (1, 2, requests):
        proxy.fail(ANSWER_LOST, nth, WRITES)
        storage.upload(large, f"staging/{nth}")
        proxy.fail(None)
        assert storage.size(f"staging/{nth}") == large.stat().st_size


@pytest.mark.parametrize("fault", [ANSWER_LOST, SLOW_DOWN, TOO_MANY, CONFLICT])
def test_failed_request_is_retried(
    storage: Storage, proxy: Proxy, store: Store, fault: str
) -> None:
    def faulty(change: Callable[[], Any]) -> Any:
        proxy.fail(fault, 1)
        result = change()
        proxy.fail(None)
        return result

    assert faulty(lambda: storage.create("lock", b"mine"))
    assert storage.read("lock") == b"mine"
    if fault == CONFLICT:
        return
    storage.replace("state", b"1")
    assert faulty(lambda: storage.exchange("state", b"1", b"2"))
    assert storage.read("state") == b"2"
    faulty(lambda: storage.replace("state", b"3"))
    faulty(lambda: storage.move("state", "moved"))
    assert [file.path for file in storage.list("")] == ["lock", "moved"]
    assert faulty(lambda: storage.read("moved")) == b"3"
    assert faulty(lambda: storage.size("moved")) == 1
    faulty(lambda: storage.delete("moved"))
    assert [file.path for file in faulty(lambda: storage.list(""))] == ["lock"]


@pytest.mark.parametrize("fault", [SLOW_DOWN, TOO_MANY])
def test_busy_store_is_asked_for_minutes(
    opened: Callable[[], Storage], proxy: Proxy, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A store that refuses many requests in a row, more than a client asks again by itself, loses
    nothing.
    """
    monkeypatch.setattr(obstore_bucket, "RETRIES", 1)
    monkeypatch.setattr(google_bucket, "TRIES", 2)
    storage = opened()
    for request, expected in (
        (lambda: storage.create("lock", b"mine"), True),
        (lambda: storage.read("lock"), b"mine"),
        (lambda: [file.path for file in storage.list("")], ["lock"]),
        (lambda: storage.delete("lock"), None),
        (lambda: storage.size("lock"), None),
    ):
        proxy.fail(fault, times=8)
        assert request() == expected
        proxy.fail(None)


def test_silent_request_times_out_and_is_retried(
    opened: Callable[[], Storage], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_of_patience(monkeypatch)
    storage = opened()
    proxy.fail(SILENT, 1)
    assert storage.create("lock", b"mine")
    proxy.fail(SILENT, 1)
    assert storage.read("lock") == b"mine"


def test_row_count_reads_only_parquet_footer(
    storage: Storage, proxy: Proxy, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": range(100_000)}), tmp_path / "file")
    storage.upload(tmp_path / "file", "raw/file")
    proxy.passed.clear()
    assert rows_of(storage, "raw/file") == 100_000
    # Azure knows no range that is counted from the end.
    assert [request.method for request in proxy.passed] in (["GET"], ["HEAD", "GET"])
    assert bytes_on_the_wire(proxy.passed) < 80_000


@pytest.mark.parametrize("store", ["s3", "google"], indirect=True)  # Azure's pages are of 5,000
def test_long_listings_and_removals_are_complete(
    store: Store, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listings of more than one page are complete, and so is their removal."""
    from concurrent.futures import ThreadPoolExecutor

    ask = google_bucket.GoogleBucket._ask

    def by_tens(self: Any, method: str, url: str, query: dict[str, str], **given: Any) -> Any:
        pages = {"maxResults": "10"} if url.endswith("/o") else {}
        return ask(self, method, url, query | pages, **given)

    monkeypatch.setattr(google_bucket.GoogleBucket, "_ask", by_tens)
    storage = Storage(bucket, store.storage_options)
    # A page of S3 is of 1,000.
    paths = [f"t/{number:05d}" for number in range(1_103 if isinstance(store, S3) else 23)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda path: storage.replace(path, b"1"), paths))
    storage.replace("tt", b"1")
    assert [file.path for file in storage.list("t")] == paths
    storage.delete_all("t")
    assert [file.path for file in storage.list("")] == ["tt"]


def test_too_large_s3_object_is_copied_in_parts(
    s3: S3, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An S3 object too large for one copy request is copied in parts."""
    monkeypatch.setattr("singer_spark.store.s3_bucket.COPY_BYTES", 8 << 20)
    with running(s3.endpoint) as proxy:
        storage = Storage(s3.new_bucket(), s3.options_at(proxy.endpoint))
        storage.upload(large, "staging/part")
        proxy.passed.clear()
        proxy.fail(TOO_LARGE, 1, frozenset({"PUT"}))
        storage.move("staging/part", "raw/part")
        copies = [
            request for request in proxy.passed if "x-amz-copy-source-range" in request.headers
        ]
        assert len(copies) == 3
        assert bytes_on_the_wire(proxy.passed) < 20_000
        assert storage.read("raw/part") == large.read_bytes()
        assert [file.path for file in storage.list("")] == ["raw/part"]


def test_spark_folder_markers_are_removed(s3: S3) -> None:
    storage = Storage(s3.new_bucket(), s3.storage_options)
    bucket = storage.url.removeprefix("s3://")
    files = s3.filesystem()
    for key in (
        "staging/run/",
        "staging/run/lines/_temporary/0/",
        "staging/run/lines/part",
        "staging/runner",
    ):
        files.call_s3("put_object", Bucket=bucket, Key=key, Body=b"")
    assert [file.path for file in storage.list("staging/run")] == ["staging/run/lines/part"]
    storage.delete_all("staging/run")
    assert s3.keys(storage.url) == ["staging/runner"]
