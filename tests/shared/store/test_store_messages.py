"""What a store that can't be reached, or does not serve, is said to lack; and what to do."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from servers.postgresql import free_port
from servers.proxy import CLOCK_IS_OFF, running
from servers.s3 import S3
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


def certify(folder: Path, begins: datetime, ends: datetime) -> None:
    """A certificate of localhost, and its key."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]),
    )
    builder = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    )
    builder = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    (folder / "certificate").write_bytes(
        builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    )
    (folder / "key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


@contextmanager
def with_certificate(folder: Path, age: timedelta = timedelta(0)) -> Iterator[int]:
    """A server with a certificate of its own, which is valid for a day; the port."""
    begins = datetime.now(UTC) - age - timedelta(hours=1)
    certify(folder, begins, begins + timedelta(days=1))
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "certificate", folder / "key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


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
