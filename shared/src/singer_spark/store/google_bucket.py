"""A bucket of Google Cloud Storage, through its JSON API.

obstore uses Google's XML API, which supports neither conditional copies nor composing several
objects, and which no emulator has. It also supports fewer kinds of login than Google's own library.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

from singer_spark.errors import cut
from singer_spark.store.bucket import (
    ABSENT,
    PIECE_BYTES,
    Entry,
    LostAnswerError,
    MissingError,
    RefusedError,
    StoreFailure,
    UndecidedError,
)
from singer_spark.store.google_login import GoogleLogin

if TYPE_CHECKING:
    from pathlib import Path

    from requests import Response

GOOGLE = "https://storage.googleapis.com"
TRIES = 8
# Requests to a busy store are retried for longer.
BUSY_SECONDS = 180.0
REQUESTS_AT_ONCE = 16
LONGEST_PAUSE_SECONDS = 5.0
BUSY = (408, 429, 500, 502, 503, 504)
CONNECT_SECONDS, READ_SECONDS = 20.0, 60.0
CONDITION = "ifGenerationMatch"
MORE_TO_COME = 308


class GoogleBucket:
    """Objects of a bucket on Google's store; the version of an object is its generation."""

    conditions: tuple[str, ...] = (f"{CONDITION}=0", CONDITION)
    folders_are_listed = True

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """Nothing is requested yet; the options are those of gcsfs."""
        import requests

        self._name = name
        self._server = endpoint_of(options) or GOOGLE
        self._login = GoogleLogin(options, emulated=self._server != GOOGLE)
        self._session = requests.Session()
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=32))
        self._session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=32))
        self._patience = (
            CONNECT_SECONDS,
            float(options.get("timeout") or options.get("requests_timeout") or READ_SECONDS),
        )
        # Google takes the payer's project with each request.
        payer = options.get("requester_pays")
        self._payer = (
            {"userProject": str(options.get("project") if payer is True else payer)}
            if payer
            else {}
        )

    def read(self, key: str) -> tuple[bytes, str]:
        answer = self._ask("GET", self._object(key), {"alt": "media"})
        return answer.content, answer.headers.get("X-Goog-Generation", "")

    def read_range(self, key: str, start: int, length: int) -> bytes:
        end = start + length - 1
        return self._ask(
            "GET", self._object(key), {"alt": "media"}, headers={"Range": f"bytes={start}-{end}"}
        ).content

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        answer = self._ask(
            "GET", self._object(key), {"alt": "media"}, headers={"Range": f"bytes=-{length}"}
        )
        whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
        return answer.content, int(whole) if whole else len(answer.content)

    def size(self, key: str) -> int:
        return int(self._ask("GET", self._object(key), {"fields": "size"}).json()["size"])

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        condition = {} if version is None else {CONDITION: "0" if version == ABSENT else version}
        query = {"uploadType": "media", "name": key, **condition}
        # An unconditional write may be retried here; after a conditional one, the caller must find
        # out what happened.
        self._ask("POST", self._uploads(), query, data=data, again=version is None)

    def upload(self, source: Path, key: str) -> None:
        for attempt in range(TRIES):
            try:
                with source.open("rb") as file, _Upload(self, key) as target:
                    while piece := file.read(PIECE_BYTES):
                        target.write(piece)
                return
            except LostAnswerError:
                # It is started over, because it is unknown which pieces of that upload arrived.
                if attempt == TRIES - 1:
                    raise

    def open_writer(self, key: str) -> IO[bytes]:
        return cast("IO[bytes]", _Upload(self, key))

    def copy(self, source: str, target: str) -> None:
        bucket, name = quote(self._name, safe=""), quote(target, safe="")
        location = f"{self._object(source)}/rewriteTo/b/{bucket}/o/{name}"
        token: dict[str, str] = {}
        while True:
            done = self._ask("POST", location, token).json()
            if done.get("done", True):
                return
            token = {"rewriteToken": done["rewriteToken"]}

    def is_folder(self, key: str) -> bool:
        return key.endswith("/")

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        if size < PIECE_BYTES:
            return False
        piece = f"{target}.{uuid.uuid4().hex}.tail"
        self.write(piece, tail)
        try:
            body = {"sourceObjects": [{"name": source}, {"name": piece}], "destination": {}}
            headers = {"Content-Type": "application/json"}
            url, data = f"{self._object(target)}/compose", json.dumps(body).encode()
            self._ask("POST", url, {}, data=data, headers=headers)
        finally:
            self.delete([piece])
        return True

    def delete(self, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            self._remove(keys[0])
            return
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            list(pool.map(self._remove, keys))

    def _remove(self, key: str) -> None:
        try:
            self._ask("DELETE", self._object(key), {})
        except MissingError as error:
            if error.code == "NoSuchBucket":
                raise

    def entries(self, prefix: str) -> Iterator[Entry]:
        query = {"prefix": prefix, "fields": "items(name,size,updated),nextPageToken"}
        while True:
            page = self._ask("GET", self._bucket() + "/o", query).json()
            for each in page.get("items", ()):
                yield Entry(
                    each["name"],
                    int(each.get("size", 0)),
                    datetime.fromisoformat(each["updated"]).timestamp(),
                )
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def _bucket(self) -> str:
        return f"{self._server}/storage/v1/b/{quote(self._name, safe='')}"

    def _object(self, key: str) -> str:
        return f"{self._bucket()}/o/{quote(key, safe='')}"

    def _uploads(self) -> str:
        return f"{self._server}/upload/storage/v1/b/{quote(self._name, safe='')}/o"

    def begin(self, key: str) -> str:
        """Begin an upload in pieces; returns the URL for them."""
        answer = self._ask(
            "POST", self._uploads(), {"uploadType": "resumable", "name": key}, data=b""
        )
        return str(answer.headers["Location"])

    def send(self, location: str, start: int, piece: bytes, *, last: bool) -> int | None:
        """Send a piece of an upload; for the last one, returns the size of the object.

        Raises:
            LostAnswerError: it is unknown whether the piece arrived.
        """
        end = start + len(piece)
        bounds = f"{start}-{end - 1}" if piece else "*"
        headers = {"Content-Range": f"bytes {bounds}/{end if last else '*'}"}
        answer = self._ask("PUT", location, {}, data=piece, headers=headers, again=False)
        return int(answer.json()["size"]) if last else None

    def _ask(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
    ) -> Response:
        """Make a request, again to a busy store and, with `again`, after a lost answer."""
        import requests

        until = time.monotonic() + BUSY_SECONDS
        for attempt in itertools.count():
            signed = {**self._login.header(), **(headers or {})}
            try:
                answer = self._session.request(
                    method,
                    url,
                    params={**self._payer, **query},
                    data=data,
                    headers=signed,
                    timeout=self._patience,
                    allow_redirects=False,
                )
            except (
                requests.ConnectionError,
                requests.Timeout,
                requests.exceptions.ChunkedEncodingError,
            ) as error:
                if not again or attempt >= TRIES - 1:
                    raise LostAnswerError(
                        f"no answer from {self._server}: {type(error).__name__}"
                    ) from error
            else:
                if answer.status_code not in BUSY or (
                    attempt >= TRIES - 1 and time.monotonic() > until
                ):
                    _check(answer, partial(self._is_missing, signed))
                    return answer
            pause = min(0.1 * 2**attempt, LONGEST_PAUSE_SECONDS)
            time.sleep(pause * random.uniform(0.5, 1))
        raise AssertionError("unreachable")

    def _is_missing(self, signed: Mapping[str, str]) -> bool:
        """Whether the bucket does not exist; a bucket that denies access does."""
        answer = self._session.get(self._bucket(), headers=signed, timeout=self._patience)
        return answer.status_code == 404


class _Upload:
    """A stream of bytes, sent in pieces by a resumable upload.

    They become an object when it is closed.
    """

    def __init__(self, bucket: GoogleBucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._location = ""
        self._sent = 0
        self._held = bytearray()
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def write(self, data: Any) -> int:
        self._held += data
        while len(self._held) > PIECE_BYTES:
            self._send(bytes(self._held[:PIECE_BYTES]), last=False)
            del self._held[:PIECE_BYTES]
        return memoryview(data).nbytes

    def _send(self, piece: bytes, *, last: bool) -> None:
        if not self._location:
            self._location = self._bucket.begin(self._key)
        size = self._bucket.send(self._location, self._sent, piece, last=last)
        self._sent += len(piece)
        if last and size != self._sent:
            raise StoreFailure(f"{self._key} has {size} bytes, {self._sent} were sent", "Size")

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._location:
            self._send(bytes(self._held), last=True)
        else:
            self._bucket.write(self._key, bytes(self._held))

    def tell(self) -> int:
        return self._sent + len(self._held)


def endpoint_of(options: Mapping[str, Any]) -> str:
    """The server's URL, from the options or the environment; empty for Google's own."""
    found = str(
        options.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST") or ""
    ).rstrip("/")
    return found if not found or "://" in found else f"http://{found}"


def _check(answer: Response, no_bucket: Callable[[], bool]) -> None:
    """Raise the error in an answer, if any."""
    status = answer.status_code
    if status < 300 or status == MORE_TO_COME:
        return
    text = _message(answer)
    match status:
        case 404:
            raise MissingError(
                text, "NoSuchKey" if "No such object" in text or not no_bucket() else "NoSuchBucket"
            )
        case 401 | 403:
            raise RefusedError(text, str(status))
        case 409:
            raise UndecidedError(text)
        case 412:
            raise FileExistsError(text)
    raise StoreFailure(text, str(status))


def _message(answer: Response) -> str:
    text = answer.text.strip()
    with suppress(ValueError, KeyError, TypeError):
        text = str(answer.json()["error"]["message"])
    return f"{answer.status_code} {cut(text, 300)}".strip()
