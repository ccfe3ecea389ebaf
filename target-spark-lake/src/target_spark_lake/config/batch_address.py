"""Parsing of batch file names into a local path or an object key, without accessing any storage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
# Surrogates too: no UTF-8 file name contains one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ALIASES = {"s3a": "s3", "gcs": "gs"}
DISK = ("file", "local")
HTTP = ("http", "https")
_LONGEST_SHOWN = 300


@dataclass(frozen=True)
class DiskAddress:
    """A file on this machine.

    Attributes:
        readings: The possible paths: the percent signs of a `file:` URL may or may not be escapes.
    """

    readings: tuple[str, ...]


@dataclass(frozen=True)
class StoreAddress:
    """An object in a store; aliases of a scheme are unified, everything else is kept as spelled."""

    protocol: str
    location: str
    path: str


Address = DiskAddress | StoreAddress


def address_of(text: str) -> Address:
    """Parse a path or URL.

    Raises:
        ValueError: it can't name a file that is accepted; the text says why.
    """
    if not text or _CONTROL.search(text):
        raise ValueError("it is empty, or has characters that no name of a file has")
    found = _SCHEME.fullmatch(text)
    if found is None:
        return DiskAddress((_plain_path(_at_home(text)),))
    protocol, rest = found[1].lower(), found[2]
    if protocol in DISK:
        return DiskAddress(_readings(rest))
    if protocol in HTTP:
        raise ValueError("http(s) is never followed")
    if not rest.startswith("//"):
        raise ValueError("it is neither a path nor a URL")
    location, _, path = rest[2:].partition("/")
    if not location:
        raise ValueError("it names no bucket")
    if {".", ".."} & {unquote(part) for part in path.split("/")} or "?versionId=" in path:
        raise ValueError("its key has '.', '..' or a version in it")
    return StoreAddress(_ALIASES.get(protocol, protocol), location, path)


def shown(text: str) -> str:
    """A name for display: one line, of limited length, without possible secrets."""
    text = re.sub(r"//[^/@:]*:[^/@]*@", "//*****@", text)
    found = _SCHEME.fullmatch(text)
    if found is not None and found[1].lower() not in DISK:
        text = text.partition("?")[0]
    text = _CONTROL.sub("?", text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def root_problems(roots: object) -> list[str]:
    """Problems of the setting `batch_roots`, apart from its type."""
    problems = []
    for root in roots if isinstance(roots, list | tuple) else ():
        try:
            if isinstance(root, str):
                address_of(root)
        except ValueError as error:
            problems.append(f"batch_roots: {shown(root)} can't be one: {error}")
    return problems


def _readings(rest: str) -> tuple[str, ...]:
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise ValueError("it names another machine")
        rest = f"/{path}"
    decoded = unquote(rest)
    spellings = (rest,) if _CONTROL.search(decoded) else (rest, decoded)
    return tuple(dict.fromkeys(map(_plain_path, spellings)))


def _at_home(path: str) -> str:
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError:
        raise ValueError("it does not name an existing user's home") from None


def _plain_path(path: str) -> str:
    """The path with a single leading slash: POSIX leaves the meaning of two open."""
    return f"/{path.lstrip('/')}" if path.startswith("/") else path
