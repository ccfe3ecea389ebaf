"""HTTP servers of tests: in a thread of their own, and by TLS with a certificate that no authority
signed.
"""

from __future__ import annotations

import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import HTTPServer
from pathlib import Path

# How often a server looks whether it is to end.
POLL_SECONDS = 0.01


@contextmanager
def serving(server: HTTPServer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of a server that answers meanwhile."""
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
    with server:
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def self_signed(path: Path, age: timedelta = timedelta(0)) -> ssl.SSLContext:
    """A server's context with a certificate of this machine, valid for a day from so long ago; the
    file holds it, and its key.
    """
    # Only here: most tests need no certificate.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, begins = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC) - age
    begins -= timedelta(hours=1)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder(
        name,
        name,
        key.public_key(),
        x509.random_serial_number(),
        begins,
        begins + timedelta(days=1),
    )
    here = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    signed = made.add_extension(here, critical=False).sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + signed.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
