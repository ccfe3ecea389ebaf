"""The setting `notify`: receivers of run outcomes, each with a URL that is secret except for scheme
and host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from singer_spark.errors import LONG_LINE, register_secret

FAILED, RECOVERED, SUCCEEDED = "failed", "recovered", "succeeded"
# Beside the outcome: a run changed the columns or the key of a table; a lag passed its bound.
SCHEMA, LAG = "schema", "lag"
OUTCOMES = (FAILED, RECOVERED, SUCCEEDED, SCHEMA, LAG)
USUAL = (FAILED, RECOVERED)
SCHEMES = ("http", "https")
_NOT_IN_URLS = re.compile(r"[^!-~]|[<>\"\\^`{|}]")


@dataclass(frozen=True)
class Receiver:
    """A receiver of notifications.

    Attributes:
        url: Where to post; anyone who knows it can post there.
        on: The outcomes of which it is notified.
    """

    url: str = field(repr=False)
    on: tuple[str, ...] = USUAL

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Receiver:
        """Read one entry of the config."""
        return cls(given["url"], tuple(given.get("on", USUAL)))

    @property
    def location(self) -> str:
        """The part of the URL that may be shown: scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def receiver_problems(given: object, max_lag: object) -> list[str]:
    """Problems of the setting, apart from its types; never shows any part of a URL.

    `max_lag` is the bound for notices of a lag; None if there is none.
    """
    entries = given if isinstance(given, list) else ()
    wants_lag = [each.get("on") for each in entries if isinstance(each, Mapping)]
    problems = [
        f"notify.{number}.on: lag needs max_lag_minutes, the bound to be notified of"
        for number, on in enumerate(wants_lag)
        if isinstance(on, list) and LAG in on and max_lag is None
    ]
    for number, url in _urls(given):
        if problem := _url_problem(url):
            problems.append(f"notify.{number}.url: {problem}")
    return problems


def register_urls(given: object) -> None:
    """Register the URLs as secrets, with what follows the host, and its possible tokens."""
    for _, url in _urls(given):
        behind = re.sub(r"^\w+://[^/?#]*", "", url)
        if behind.strip("/"):
            tokens = [part for part in re.split(r"[/?#&=;]", behind) if len(part) >= LONG_LINE]
            for secret in (url, behind, *tokens):
                register_secret(secret)


def _urls(given: object) -> Iterator[tuple[int, str]]:
    """Number and URL of each entry that has a URL."""
    for number, entry in enumerate(given) if isinstance(given, list | tuple) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("url"), str):
            yield number, entry["url"]


def _url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        known = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        return "must be an http or https URL with a host"
    if _NOT_IN_URLS.search(url):
        return "has spaces or other characters that a URL writes with percent signs"
    if "@" in parts.netloc:
        return "has a login before its host, which is not supported"
    return None
