"""A server that takes notices, and answers as configured."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from servers.serving import serving

SILENT, ENDLESS = "no answer comes", "an answer without an end"
SECRET = "T0123456/B9876543/xoxb-of-the-webhook"


@dataclass
class Webhook:
    """A running one.

    Attributes:
        root: Its URL without a path.
        answer: A status, `SILENT` or `ENDLESS`.
        location: Where a redirect leads to.
        paths: What was asked for, in its order.
        notices: What was posted; of those alone that were answered by 200.
        types: The types that their contents were said to have.
    """

    root: str
    answer: int | str = 200
    location: str = ""
    paths: list[str] = field(default_factory=list)
    notices: list[dict[str, Any]] = field(default_factory=list)
    types: list[str | None] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.root}/services/{SECRET}"

    def outcomes(self) -> list[tuple[str, str]]:
        """Outcome and text of each notice."""
        return [(each["outcome"], each["text"]) for each in self.notices]


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[Webhook]:
    """Serves for a while, under TLS where a context is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.paths.append(self.path)
            if hook.answer == SILENT:
                hook.over.wait()
                return
            if hook.answer == 200:
                hook.notices.append(json.loads(body))
                hook.types.append(self.headers["Content-Type"])
            code = hook.answer if isinstance(hook.answer, int) else 200
            # Only once: where it leads to all is well.
            hook.answer = 200 if code in (307, 308) else hook.answer
            self.send_response(code, "no good, says " + SECRET)
            if 300 <= code < 400:
                self.send_header("Location", hook.location)
            self.end_headers()
            with suppress(OSError):
                while hook.answer == ENDLESS and not hook.over.is_set():
                    self.wfile.write(b"." * 100_000)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Whoever asks may go away."""

    with serving(Server(("127.0.0.1", 0), Handler), tls) as url:
        hook = Webhook(url)
        try:
            yield hook
        finally:
            hook.over.set()
