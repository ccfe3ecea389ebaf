"""The certificate authorities that this machine trusts, as a Java trust store.

A packaged JDK only trusts public authorities. On a machine with its own authority (a company's
proxy or mirror), it could not fetch a driver or reach a database that everything else on that
machine reaches.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

# The paths on Debian, Fedora, SUSE, and Alpine or macOS.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
JKS_MAGIC, JKS_VERSION, TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2


def trusted_bundle() -> Path | None:
    """The PEM file of the machine's authorities: `SSL_CERT_FILE`, OpenSSL's own, or the
    distribution's.
    """
    named = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *BUNDLES)
    return next((Path(name) for name in named if name and Path(name).is_file()), None)


def trust_store(bundle: Path) -> bytes:
    """The certificates of a PEM file as a Java key store (JKS).

    Raises:
        OSError: the file can't be read, or contains no certificate (`ssl.SSLError`).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=bundle)
    return _java_key_store(context.get_ca_certs(binary_form=True))


def _java_key_store(certificates: Sequence[bytes]) -> bytes:
    entries = (
        struct.pack(">I", TRUSTED_CERTIFICATE)
        + _utf(f"authority-{number}")
        + struct.pack(">Q", 0)  # created at
        + _utf("X.509")
        + struct.pack(">I", len(certificate))
        + certificate
        for number, certificate in enumerate(certificates)
    )
    body = struct.pack(">III", JKS_MAGIC, JKS_VERSION, len(certificates)) + b"".join(entries)
    # The format's integrity check, here with an empty password: the store contains nothing secret.
    return body + hashlib.sha1(b"Mighty Aphrodite" + body, usedforsecurity=False).digest()


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
