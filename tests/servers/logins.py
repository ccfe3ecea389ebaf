"""The endpoints where programs get their logins from in the clouds, all on one server, and stores
that take any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from servers.serving import self_signed, serving

KEY, SECRET, TOKEN = "ASIAOFTHETESTS", "a-secret-of-a-login", "a-token-of-a-login"
ROLE = "role-of-the-machine"


@dataclass
class Logins:
    """A running server, and what it was asked: method, path with query, headers in lower case,
    body.
    """

    endpoint: str
    asked: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)

    def signatures(self) -> list[tuple[str, str]]:
        """For the requests to a store: which key signed them, and the token of a temporary
        login.
        """
        headers = [each[2] for each in self.asked if "/lake/" in each[1] or "/lake?" in each[1]]
        return [
            (each.get("authorization", ""), each.get("x-amz-security-token", ""))
            for each in headers
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    logins: Logins

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.logins.asked.append((self.command, self.path, headers, body))
        status, kind, text = _answer(urlsplit(self.path).path, body or urlsplit(self.path).query)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("Metadata-Flavor", "Google")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _answer(path: str, body: str) -> tuple[int, str, str]:
    until = datetime.now(UTC) + timedelta(hours=1)
    end = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    action = body.partition("Action=")[2].partition("&")[0]
    if action:  # Amazon's STS
        keys = f"<AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
        keys += f"<SessionToken>{TOKEN}</SessionToken><Expiration>{end}</Expiration>"
        result = f"<{action}Result><Credentials>{keys}</Credentials></{action}Result>"
        return 200, "text/xml", f"<{action}Response>{result}</{action}Response>"
    if path == "/latest/api/token":
        return 200, "text/plain", "a-session"
    if path == "/latest/meta-data/iam/security-credentials/":
        return 200, "text/plain", ROLE
    if path in (f"/latest/meta-data/iam/security-credentials/{ROLE}", "/container"):
        login = {"Code": "Success", "AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": TOKEN}
        return (
            200,
            "application/json",
            json.dumps({**login, "Expiration": end, "LastUpdated": "2026-01-01T00:00:00Z"}),
        )
    if path.endswith("/token") or path == "/managed":  # OAuth's, of Google and Azure
        given = {
            "access_token": TOKEN,
            "token_type": "Bearer",
            "expires_in": 3600,
            "issued_token_type": "x",
        }
        return (
            200,
            "application/json",
            json.dumps({**given, "expires_on": str(int(until.timestamp()))}),
        )
    if path.startswith("/computeMetadata") or path in ("", "/", "/storage/v1/b/lake"):
        return (
            200,
            "application/json",
            json.dumps({"email": "machine@x", "scopes": [], "aliases": ["default"]}),
        )
    return 404, "application/xml", "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>"


@contextmanager
def running(certificate: Path | None = None) -> Iterator[Logins]:
    """The server, on a free port; with a certificate, which is written there with its key, it
    speaks TLS.
    """
    handler = type("Handler", (_Handler,), {})
    tls = None if certificate is None else self_signed(certificate)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler), tls) as url:
        handler.logins = Logins(url)
        yield handler.logins
