"""A server of HTTP/1.1 before another one: it counts what passes, leaves headers out, and has a
fault on request.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from servers.serving import serving

ANSWER_LOST, SLOW_DOWN, NOT_IMPLEMENTED, SILENT, GONE = (
    "the work is done and the connection dropped",
    "503 SlowDown",
    "501 NotImplemented",
    "the work is done and no answer comes",
    "the work is done, and from there on every connection is dropped",
)
CLOCK_IS_OFF = "403 RequestTimeTooSkewed"
CONFLICT, TOO_MANY, TOO_LARGE = "409 Conflict", "429 TooManyRequests", "400 EntityTooLarge"
DROPPED = "what comes after all is gone"
REFUSALS = {
    SLOW_DOWN: (503, "SlowDown"),
    NOT_IMPLEMENTED: (501, "NotImplemented"),
    CLOCK_IS_OFF: (403, "RequestTimeTooSkewed"),
    CONFLICT: (409, "ConditionalRequestConflict"),
    TOO_MANY: (429, "TooManyRequests"),
    TOO_LARGE: (400, "EntityTooLarge"),
}
# What belongs to one connection, or is rewritten for the other.
OWN_HEADERS = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True)
class Passed:
    """A request that came: its method, path with query, headers in lower case, and how many bytes
    went each way.
    """

    method: str
    path: str
    headers: dict[str, str]
    sent: int
    received: int


@dataclass
class Proxy:
    """A running one.

    Attributes:
        endpoint: Its URL.
        upstream: Host and port of the server behind.
        stripped: Headers, in lower case, that requests lose on their way.
        passed: The requests so far.
        silent: Set once somebody waits for an answer that never comes.
    """

    endpoint: str
    upstream: str
    stripped: frozenset[str] = frozenset()
    passed: list[Passed] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    _fault: str | None = None
    _left: int = 0
    _times: int = 1
    _only: frozenset[str] | None = None
    _behind: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def fail(
        self,
        fault: str | None,
        nth: int = 1,
        only: frozenset[str] | None = None,
        behind: str | None = None,
        times: int = 1,
    ) -> None:
        """Have a fault at the n-th request from now on, the first being 1, and this many `times`;
        None: no more faults.

        If given, `only` these methods count, and only after (`behind`) the first request whose path
        contains this text.
        """
        with self._lock:
            self._fault, self._left, self._only, self._behind = fault, nth, only, behind
            self._times = times

    def next_fault(self, method: str, path: str) -> str | None:
        """The fault of the request that is just coming."""
        with self._lock:
            if self._fault == GONE and self._left <= 0:
                return DROPPED
            if self._only is not None and method not in self._only:
                return None
            if self._behind is not None:
                if self._behind in unquote(path):
                    self._behind = None
                return None
            self._left -= 1
            return self._fault if -self._times < self._left <= 0 else None

    def wait_for_end(self) -> None:
        """Blocks until the proxy ends."""
        self.silent.set()
        self._over.wait()

    def end(self) -> None:
        """Releases all requests that wait."""
        self._over.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a client may open many connections at once


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):  # the client went away
            super().handle_one_request()
            return
        self.close_connection = True

    def pass_on(self) -> None:
        fault = self.proxy.next_fault(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault in REFUSALS:
            status, code = REFUSALS[fault]
            text = f"<Error><Code>{code}</Code><Message>So says the proxy.</Message></Error>"
            self._answer(status, {"Content-Type": "application/xml"}, text.encode())
            return
        if fault == DROPPED:
            self.close_connection = True
            return
        status, headers, answer = self._ask(body)
        if fault == SILENT:
            self.proxy.wait_for_end()
        if fault is not None:
            self.close_connection = True
            return
        self._answer(status, headers, answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        left_out = OWN_HEADERS | {"content-length"} | self.proxy.stripped
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in left_out
        }
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        try:
            connection.request(
                self.command, self.path, body or None, {"Content-Length": str(len(body)), **headers}
            )
            response = connection.getresponse()
            answer = response.read()
            given = {
                name: value
                for name, value in response.getheaders()
                if name.lower() not in OWN_HEADERS
            }
        finally:
            connection.close()
        lowered = {name.lower(): value for name, value in self.headers.items()}
        self.proxy.passed.append(Passed(self.command, self.path, lowered, len(body), len(answer)))
        return response.status, given, answer

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        lengths = (value for name, value in headers.items() if name.lower() == "content-length")
        length = next(lengths, "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def running(upstream: str, stripped: frozenset[str] = frozenset()) -> Iterator[Proxy]:
    """A proxy before the server at a URL."""
    handler = type("Handler", (_Handler,), {})
    with serving(_Server(("127.0.0.1", 0), handler)) as url:
        proxy = Proxy(url, urlsplit(upstream).netloc, stripped)
        handler.proxy = proxy
        try:
            yield proxy
        finally:
            proxy.end()
