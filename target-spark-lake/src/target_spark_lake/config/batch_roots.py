"""The setting `batch_roots`: where BATCH messages may name files; nothing is read from elsewhere.
The names of files are parsed without accessing any storage.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from singer_spark.errors import ProtocolError
from singer_spark.state.run_log import BATCHES, LAKE_FOLDER
from singer_spark.store.storage import Storage
from target_spark_lake.error_codes import LakeCode

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


class OtherBucketError(ProtocolError):
    """The tap's config and the target's name different buckets."""


class BatchRoots:
    """Resolves names of BATCH files to allowed locations."""

    def __init__(
        self, bucket: Storage, roots: Sequence[str] | None, options: Mapping[str, Any]
    ) -> None:
        """Resolve the roots, by default the bucket.

        No file is accessed yet. fsspec's `options` are for all of them.
        """
        self._bucket = bucket
        self._own = DiskAddress((bucket.url,)) if bucket.local else address_of(bucket.url)
        self._spellings = [bucket.url] if roots is None else list(roots)
        self._roots = [self._own] if roots is None else [address_of(root) for root in roots]
        # With links resolved, as for each file, so that no link leads out. A root is taken as
        # spelled, like the bucket.
        self._folders = [
            os.path.realpath(each.readings[0])
            for each in self._roots
            if isinstance(each, DiskAddress)
        ]
        self._options = dict(options)
        self._disk = Storage("/")
        self._stores: dict[str, Storage] = {}
        # Several threads look for the files of a manifest.
        self._lock = threading.Lock()

    def locations(
        self, stream: str, url: str
    ) -> tuple[list[tuple[Storage, str]], ProtocolError | None]:
        """The locations that a name may mean, the likelier first, and the error to raise if no file
        is at any of them.

        There is such an error if one reading of the name is not allowed, because that reading must
        not reveal whether a file is there.

        Raises:
            ProtocolError: no reading of the name leads to an allowed location.
            ConfigurationError: the store of a root can't be used here.
        """
        try:
            address = address_of(url)
        except ValueError as error:
            raise self._refusal(stream, url, str(error)) from None
        readings = address.readings if isinstance(address, DiskAddress) else (address,)
        refusal, found = None, []
        for reading in readings:
            location = (
                self._on_disk(reading) if isinstance(reading, str) else self._in_store(reading)
            )
            if location is None:
                refusal = self._refusal(
                    stream, url, "it is in none of the places that BATCH messages may name"
                )
            elif _is_private(location[1]):
                reason = f"of a lake's own folder only files below {BATCHES} may be named"
                refusal = self._refusal(stream, url, reason)
            else:
                found.append(location)
        if refusal is not None and not found:
            raise refusal
        return found, refusal

    def _refusal(self, stream: str, url: str, reason: str) -> ProtocolError:
        roots = ", ".join(map(shown, self._spellings)) or "none"
        is_other = f"/{BATCHES}/" in url and self._bucket.url not in url
        way_out = (
            "The tap's config names another bucket than the target's: let "
            "batch_config.storage.root (tap) and bucket (target) name the same one"
            if is_other
            else "If its tap may write there, add that folder to the target's batch_roots"
        )
        return (OtherBucketError if is_other else ProtocolError)(
            LakeCode.BATCH_FILE_REFUSED,
            f"stream {stream}: batch file {shown(url)} is refused: {reason} (batch_roots: "
            f"{roots}); it was not read, and nothing was published. {way_out}",
        )

    def _on_disk(self, path: str) -> tuple[Storage, str] | None:
        whole = os.path.realpath(path)
        if not any(_below(whole, folder) for folder in self._folders):
            return None
        if self._bucket.local and (inside := _below(whole, os.path.realpath(self._bucket.url))):
            return self._bucket, inside
        return self._disk, whole.lstrip("/")

    def _in_store(self, address: StoreAddress) -> tuple[Storage, str] | None:
        for spelling, root in zip(self._spellings, self._roots, strict=True):
            if isinstance(root, StoreAddress) and (below := _key_below(address, root)):
                if isinstance(self._own, StoreAddress) and (
                    inside := _key_below(address, self._own)
                ):
                    return self._bucket, inside
                return self._store(spelling), below
        return None

    def _store(self, root: str) -> Storage:
        with self._lock:
            if root not in self._stores:
                self._stores[root] = Storage(root, self._options)
            return self._stores[root]


def _below(path: str, folder: str) -> str:
    """The path relative to a folder; empty if it is not below that folder."""
    inside = path != folder and Path(path).is_relative_to(folder)
    return Path(path).relative_to(folder).as_posix() if inside else ""


def _key_below(address: StoreAddress, root: StoreAddress) -> str:
    prefix = root.path.rstrip("/") + "/" if root.path.strip("/") else ""
    if (address.protocol, address.location) != (root.protocol, root.location):
        return ""
    return address.path.removeprefix(prefix) if address.path.startswith(prefix) else ""


def _is_private(path: str) -> bool:
    """Whether a path is in a lake's own folder, except where taps write their batches."""
    parts = path.lower().split("/")  # some disks ignore case
    own = [parts[number : number + 3] for number, part in enumerate(parts) if part == LAKE_FOLDER]
    return any(each != BATCHES.split("/") for each in own)
