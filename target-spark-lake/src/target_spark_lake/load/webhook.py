"""Posting of JSON to several URLs at once, in bounded time, whatever the servers do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from http.client import HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from singer_spark.core.signals import seconds_left
from singer_spark.errors import redact

# For everything in one post: name look-up, connection, redirects, answer.
SECONDS = 5.0
# A process that a signal ends needs the rest of its time to end.
SECONDS_FOR_THE_END = 2.0
MOST_BYTES = 1 << 20
# Other redirects would turn the POST into a GET without content.
KEEP_THE_METHOD = (307, 308)
REDIRECTS = 3


class _SameScheme(HTTPRedirectHandler):
    """Posts again to the target of a redirect, but only within the scheme of the original URL."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if code not in KEEP_THE_METHOD or urlsplit(newurl).scheme != urlsplit(req.full_url).scheme:
            return None
        return Request(newurl, req.data, dict(req.headers), method="POST")


def post(contents: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str | None]:
    """Post each content to its URL, all at once.

    Returns:
        For each, why it was not accepted, without any part of its URL; None if it was.
    """
    seconds = min(SECONDS, max(0.0, seconds_left() - SECONDS_FOR_THE_END))
    deadline = time.monotonic() + seconds
    posts = [_started(url, json.dumps(content).encode()) for url, content in contents]
    done, _ = wait(posts, max(0.0, deadline - time.monotonic()))
    return [
        each.result() if each in done else f"no whole answer within {seconds:.0f} s"
        for each in posts
    ]


def _started(url: str, data: bytes) -> Future[str | None]:
    """A post in a thread of its own; the result is its problem."""
    problem: Future[str | None] = Future()
    # Nothing can stop a name look-up, so the end of the process must not wait for it, as it would
    # for an executor.
    thread = threading.Thread(
        target=lambda: problem.set_result(_problem(url, data)), name="notify", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:
        problem.set_result("no thread could be started")
    return problem


def _problem(url: str, data: bytes) -> str | None:
    headers = {"Content-Type": "application/json", "User-Agent": "target-spark-lake"}
    request = Request(url, data, headers, method="POST")
    try:
        # Longer than the post is waited for, so that each silence is reported in the same words.
        with build_opener(_SameScheme).open(request, timeout=2 * SECONDS) as answer:
            return "its answer has no end" if len(answer.read(MOST_BYTES)) == MOST_BYTES else None
    except Exception as error:
        return _in_words(error)


def _in_words(error: Exception) -> str:
    """The reason, without any part of the URL: messages of libraries may quote it."""
    if isinstance(error, HTTPError):
        error.close()
        redirects = error.code // 100 == REDIRECTS
        return (
            f"its answer is {error.code}{', a redirect that is not followed' if redirects else ''}"
        )
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, OSError):
        return " ".join(redact(reason.strerror or str(reason)).split())
    return type(reason).__name__
