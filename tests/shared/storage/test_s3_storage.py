"""Storage on S3, looked at from the wire: what is read, in which pieces, and which stores are not to be trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servers.proxy import ANSWER_LOST, GONE, NOT_IMPLEMENTED, Passed, Proxy, running
from servers.s3 import S3
from singer_spark.errors import StorageError
from singer_spark.storage.object_files import PIECE_BYTES
from singer_spark.storage.parquet_footer import rows_of
from singer_spark.storage.storage import Storage

ONE_ATTEMPT = {"retries": {"total_max_attempts": 1}}
PUTS, POSTS = frozenset({"PUT"}), frozenset({"POST"})


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    with running(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def storage(proxy: Proxy, s3: S3) -> Storage:
    return Storage(s3.new_bucket(), options(proxy, s3))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(5 * PIECE_BYTES + 1234))
    return path


def options(proxy: Proxy, s3: S3) -> dict[str, Any]:
    return {**s3.storage_options, "endpoint_url": proxy.endpoint, "config_kwargs": ONE_ATTEMPT}


def test_a_large_file_is_uploaded_in_pieces_and_never_held_whole(storage: Storage, proxy: Proxy, large: Path) -> None:
    storage.upload(large, "staging/part")
    assert storage.size("staging/part") == large.stat().st_size
    assert storage.read("staging/part") == large.read_bytes()
    pieces = [request for request in proxy.passed if request.method == "PUT"]
    assert len(pieces) == 6
    assert max(request.sent for request in pieces) == PIECE_BYTES


def test_a_large_object_is_extended_inside_the_store(
    storage: Storage, proxy: Proxy, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("singer_spark.storage.s3_copy.COPY_BYTES", 12 << 20)
    storage.upload(large, "raw/a%20b/part")
    proxy.passed.clear()
    storage.extend("raw/a%20b/part", b"tail", "staging/a%20b/part")
    assert bytes_on_the_wire(proxy.passed) < 20_000
    assert storage.read("staging/a%20b/part") == large.read_bytes() + b"tail"


def test_an_extension_whose_last_answer_gets_lost_is_there_and_one_that_is_cut_off_is_not(
    storage: Storage, proxy: Proxy, large: Path
) -> None:
    storage.upload(large, "raw/part")
    proxy.fail(ANSWER_LOST, 2, POSTS)
    storage.extend("raw/part", b"tail", "staging/part")
    assert storage.read("staging/part") == large.read_bytes() + b"tail"
    storage.files.filesystem.retries = 1  # type: ignore[attr-defined]
    proxy.fail(GONE, 2, PUTS)
    with pytest.raises(StorageError, match=r"can't write .*staging/other"):
        storage.extend("raw/part", b"tail", "staging/other")
    proxy.fail(None)
    assert storage.size("staging/other") is None


def test_an_extension_that_the_store_refuses_leaves_no_pieces(storage: Storage, proxy: Proxy, large: Path) -> None:
    storage.upload(large, "raw/part")
    storage.files.filesystem.retries = 1  # type: ignore[attr-defined]
    proxy.fail(NOT_IMPLEMENTED, 2, PUTS)
    with pytest.raises(StorageError, match=r"can't write .*staging/other"):
        storage.extend("raw/part", b"tail", "staging/other")
    bucket = storage.url.removeprefix("s3://").partition("/")[0]
    found = storage.files.filesystem.call_s3("list_multipart_uploads", Bucket=bucket)  # type: ignore[attr-defined]
    assert not found.get("Uploads")


def test_the_rows_of_a_parquet_file_cost_one_request_beside_its_size(
    storage: Storage, proxy: Proxy, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": range(100_000)}), tmp_path / "file")
    storage.upload(tmp_path / "file", "raw/file")
    proxy.passed.clear()
    assert rows_of(storage, "raw/file") == 100_000
    assert [request.method for request in proxy.passed] == ["HEAD", "GET"]
    assert bytes_on_the_wire(proxy.passed) < 80_000


def test_an_upload_that_is_cut_off_leaves_nothing(storage: Storage, proxy: Proxy, large: Path) -> None:
    storage.files.filesystem.retries = 1  # type: ignore[attr-defined]
    proxy.fail(GONE, 3, PUTS)
    with pytest.raises(StorageError, match=r"can't write .*staging/part"):
        storage.upload(large, "staging/part")
    proxy.fail(None)
    assert storage.size("staging/part") is None
    assert storage.list("") == []


def test_an_upload_whose_last_answer_gets_lost_has_arrived(storage: Storage, proxy: Proxy, large: Path) -> None:
    proxy.fail(ANSWER_LOST, 2, POSTS)  # the first one opens the upload, the second one makes the pieces an object
    storage.upload(large, "staging/part")
    assert storage.read("staging/part") == large.read_bytes()


def bytes_on_the_wire(passed: list[Passed]) -> int:
    return sum(request.sent + request.received for request in passed)


def test_a_move_does_not_read_the_object(storage: Storage, proxy: Proxy, large: Path) -> None:
    storage.upload(large, "staging/part")
    proxy.passed.clear()
    storage.move("staging/part", "raw/part")
    assert bytes_on_the_wire(proxy.passed) < 10_000
    assert storage.size("staging/part") is None
    assert storage.read("raw/part") == large.read_bytes()


def test_a_move_of_what_one_request_can_not_copy_does_not_read_it_either(
    storage: Storage, proxy: Proxy, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("s3fs.core.MANAGED_COPY_THRESHOLD", PIECE_BYTES)
    content = large.read_bytes() * 2
    large.write_bytes(content)
    storage.upload(large, "staging/part")
    proxy.passed.clear()
    storage.move("staging/part", "raw/part")
    copies = [request for request in proxy.passed if "x-amz-copy-source-range" in request.headers]
    assert len(copies) == 2
    assert bytes_on_the_wire(proxy.passed) < 10_000
    assert storage.read("raw/part") == content


def test_what_spark_puts_for_a_folder_is_removed_with_the_folder(storage: Storage, s3: S3) -> None:
    bucket = storage.url.removeprefix("s3://")
    files = s3.filesystem()
    for key in ("staging/run/", "staging/run/lines/_temporary/0/", "staging/run/lines/part", "staging/runner"):
        files.call_s3("put_object", Bucket=bucket, Key=key, Body=b"")
    assert [file.path for file in storage.list("staging/run")] == ["staging/run/lines/part"]
    storage.delete_all("staging/run")
    left = files.call_s3("list_objects_v2", Bucket=bucket)["Contents"]
    assert [each["Key"] for each in left] == ["staging/runner"]


def test_a_store_that_honours_conditions_passes_the_check(storage: Storage) -> None:
    storage.create("lock", b"mine")
    storage.check_conditions("lock", b"another's")
    assert storage.read("lock") == b"mine"


@pytest.mark.parametrize(
    ("stripped", "told"),
    [
        ({"if-none-match"}, "in spite of If-None-Match:"),
        ({"if-match"}, "in spite of If-Match:"),
        ({"if-none-match", "if-match"}, "in spite of If-None-Match and If-Match:"),
    ],
)
def test_a_store_that_ignores_a_condition_is_found_out(moto: S3, stripped: set[str], told: str) -> None:
    with running(moto.endpoint, frozenset(stripped)) as proxy:
        storage = Storage(moto.new_bucket(), options(proxy, moto))
        storage.create("lock", b"mine")
        with pytest.raises(StorageError, match=f"{told}.* accept_unconditional_storage"):
            storage.check_conditions("lock", b"another's")


def test_a_store_that_knows_no_conditions_is_refused_by_a_clear_word(storage: Storage, proxy: Proxy) -> None:
    proxy.fail(NOT_IMPLEMENTED, 1, PUTS)
    with pytest.raises(StorageError, match="So says the proxy") as caught:
        storage.create("lock", b"mine")
    assert "accept_unconditional_storage" in str(caught.value)


def test_a_kind_of_store_without_conditional_put_is_refused_by_a_clear_word() -> None:
    with pytest.raises(StorageError, match=r"memory:// offers no conditional put.* accept_unconditional_storage"):
        Storage("memory://refused").create("a", b"1")


def unconditional(kind: str, moto: S3, stripped: Proxy) -> Storage:
    if kind == "memory":
        return Storage("memory://accepted", accept_unconditional=True)
    return Storage(moto.new_bucket(), options(stripped, moto), accept_unconditional=True)


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_who_takes_the_risk_gets_a_store_that_looks_and_then_writes(
    moto: S3, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(moto.endpoint, frozenset({"if-none-match", "if-match"})) as proxy:
        storage = unconditional(kind, moto, proxy)
        assert storage.create("lock", b"mine")
        assert not storage.create("lock", b"another's")
        storage.check_conditions("lock", b"another's")
        assert storage.read("lock") == b"mine"
        assert "never start two runs at once" in caplog.text
        assert storage.exchange("state", None, b"1")
        assert not storage.exchange("state", None, b"2")
        assert not storage.exchange("state", b"0", b"2")
        assert storage.exchange("state", b"1", b"2")
        assert storage.read("state") == b"2"
