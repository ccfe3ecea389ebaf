"""What a store that can't be reached, or does not serve, is said to lack; and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from servers.postgresql import free_port
from servers.proxy import CLOCK_IS_OFF, running
from servers.s3 import S3
from servers.serving import self_signed, serving
from shared.store.patience import without_pauses
from singer_spark.errors import StorageError
from singer_spark.store import local_files
from singer_spark.store.storage import Storage

LOGIN = {"key": "a", "secret": "b"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


def reported(endpoint: str) -> str:
    with pytest.raises(StorageError) as caught:
        Storage("s3://bucket", {**LOGIN, "endpoint_url": endpoint}).read("x")
    return str(caught.value)


@contextmanager
def with_certificate(folder: Path, age: timedelta = timedelta(0)) -> Iterator[int]:
    """A server with a certificate of its own, which is valid for a day; the port."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.handle_error = lambda *_: None
    with serving(server, self_signed(folder / "certificate", age)):
        yield server.server_port


@pytest.mark.slow
def test_unknown_host() -> None:
    assert "is not known to DNS" in reported("http://no-such-host.invalid:9000")


@pytest.mark.slow
def test_closed_port() -> None:
    port = free_port()
    assert f"nothing listens at 127.0.0.1:{port}" in reported(f"http://127.0.0.1:{port}")


@pytest.mark.slow
def test_untrusted_certificate(tmp_path: Path) -> None:
    with with_certificate(tmp_path) as port:
        assert f"the certificate of localhost:{port} is not trusted" in reported(
            f"https://localhost:{port}"
        )


@pytest.mark.slow
def test_expired_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with with_certificate(tmp_path, timedelta(days=9)) as port:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate"))
        assert f"the certificate of localhost:{port} has expired" in reported(
            f"https://localhost:{port}"
        )


def test_clock_is_off(s3: S3) -> None:
    """A store that refuses a request's time is no matter of rights."""
    bucket = s3.new_bucket()
    with running(s3.endpoint) as proxy:
        proxy.fail(CLOCK_IS_OFF, times=100)
        with pytest.raises(StorageError, match="RUN-052"):
            Storage(bucket, s3.options_at(proxy.endpoint)).read("x")


def test_folder_locked_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "LONGEST_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(local_files, "_locked", lambda _: False)
    storage = Storage(str(tmp_path))
    with pytest.raises(StorageError, match="RUN-052"):
        storage.exchange("state", b"1", b"2") if storage.create("state", b"1") else None
