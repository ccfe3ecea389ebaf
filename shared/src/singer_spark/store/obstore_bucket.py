"""A bucket of S3 or Azure, through obstore, and obstore's HTTP options: timeouts, proxy,
certificates and retries.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from urllib.parse import quote

from singer_spark.store.bucket import (
    ABSENT,
    MOST_PIECES,
    PIECE_BYTES,
    PIECES_AT_ONCE,
    Entry,
    MissingError,
    NoLoginError,
    RefusedError,
    StoreFailure,
    UndecidedError,
    UnreachableError,
)

CONNECT_SECONDS, READ_SECONDS, WHOLE_SECONDS = 20.0, 60.0, 1200.0
RETRIES = 8
Result = TypeVar("Result")
_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_STATUS = re.compile(r"status code: (\d{3})")
# A store that is overloaded; obstore itself retries for a few seconds.
_BUSY = "SlowDown ServerBusy TooManyRequests RequestLimitExceeded Throttling 503 429".split()
BUSY_SECONDS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 180.0, 0.5, 8.0
# Why there is no connection, recognised by obstore's description of the failure, and what to do.
_NAME_OF_HOST = re.compile(r"https?://([^/\s]+)")
_UNREACHABLE = {
    "dns error": (
        "its host {host} is not known to DNS",
        "correct endpoint_url, or check this machine's DNS",
    ),
    "ConnectionRefused": ("nothing listens at {host}", "start the store, or correct endpoint_url"),
    "Expired": (
        "the certificate of {host} has expired",
        "renew it, or check this machine's clock",
    ),
    "NotValidYet": ("the certificate of {host} is not valid yet", "look at this machine's clock"),
    "InvalidCertificate": (
        "the certificate of {host} is not trusted",
        "name its authority in AWS_CA_BUNDLE, or in storage_options as client_kwargs.verify",
    ),
    "TimedOut": ("{host} does not answer", "check the network path to it, or correct endpoint_url"),
}
# Without any keys in the options, this machine's role is asked for some here.
_METADATA_SERVICE = "169.254.169.254"
_UNDECIDED = ("ConditionalRequestConflict", "OperationAborted")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")


def client_options(
    endpoint: str,
    *,
    connect: float | None = None,
    read: float | None = None,
    verify: bool | str | None = None,
    proxy: str = "",
) -> Any:
    """Options of an HTTP client; `verify` as in requests: False, or the path of certificates."""
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=connect or CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=read or READ_SECONDS),
        "timeout": timedelta(seconds=WHOLE_SECONDS),
    }
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    certificates = verify if isinstance(verify, str) else os.environ.get("AWS_CA_BUNDLE")
    if verify is False:
        options["allow_invalid_certificates"] = True
    elif certificates:
        options["root_certificate"] = Path(certificates).read_bytes()
    if proxy:
        options["proxy_url"] = proxy
    return options


def retry_config(retries: int | None = None) -> Any:
    """How often, and after which pauses, a request is retried that a busy store refused."""
    pauses = {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    }
    return {
        "max_retries": RETRIES if retries is None else retries,
        "retry_timeout": timedelta(minutes=3),
        "backoff": pauses,
    }


class ObstoreBucket:
    """Objects of one bucket or container.

    obstore's keys neither begin nor end with a slash, so a folder's marker (`a/b/`) is seen as
    `a/b`, and is removed as the root of a store of its own.
    """

    conditions: tuple[str, ...] = ("If-None-Match", "If-Match")
    folders_are_listed = True

    def _made(self, below: str = "", *, single: bool = False) -> Any:
        """Make an obstore store.

        Args:
            below: Appended to the bucket's name: with a leading slash, a key whose folder marker is
                the empty path.
            single: Whether objects are removed by one request each.
        """
        raise NotImplementedError

    @cached_property
    def _store(self) -> Any:
        return self._made()

    @cached_property
    def _single(self) -> Any:
        return self._made(single=True)

    def read(self, key: str) -> tuple[bytes, str]:
        import obstore

        def get() -> tuple[bytes, str]:
            found = obstore.get(self._store, key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

        return patiently(get, key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        import obstore

        return patiently(
            lambda: bytes(obstore.get_range(self._store, key, start=start, length=length)), key
        )

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        import obstore

        def get() -> tuple[bytes, int]:
            found = obstore.get(self._store, key, options={"range": {"suffix": length}})
            return bytes(found.bytes()), int(found.meta["size"])

        return patiently(get, key)

    def size(self, key: str) -> int:
        import obstore

        try:
            return patiently(lambda: int(obstore.head(self._store, key)["size"]), key)
        except FileNotFoundError:
            # The answer to a HEAD does not show whether it is the bucket that is missing.
            self.read_range(key, 0, 1)
            raise

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        import obstore

        plain = {None: "overwrite", ABSENT: "create"}
        mode: Any = plain.get(version, {"e_tag": version})
        patiently(lambda: obstore.put(self._store, key, data, mode=mode, use_multipart=False), key)

    def upload(self, source: Path, key: str) -> None:
        import obstore

        size = source.stat().st_size
        piece = max(PIECE_BYTES, ceil(size / MOST_PIECES))
        with source.open("rb") as file:

            def put() -> None:
                file.seek(0)
                obstore.put(
                    self._store,
                    key,
                    file,
                    use_multipart=size >= 2 * PIECE_BYTES,
                    chunk_size=piece,
                    max_concurrency=PIECES_AT_ONCE,
                )

            patiently(put, key)

    def open_writer(self, key: str) -> IO[bytes]:
        import obstore

        stream = obstore.open_writer(
            self._store, key, buffer_size=PIECE_BYTES, max_concurrency=PIECES_AT_ONCE
        )
        return cast("IO[bytes]", _Writer(stream, key))

    def copy(self, source: str, target: str) -> None:
        import obstore

        patiently(lambda: obstore.copy(self._store, source, target), source)

    def is_folder(self, key: str) -> bool:
        try:
            self.size(key)
        except FileNotFoundError:
            return True
        return False

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        return False

    def delete(self, keys: Sequence[str]) -> None:
        import obstore

        plain = [key for key in keys if not key.endswith("/")]
        if len(plain) == 1:
            self._remove(self._single, plain[0])
        elif plain:
            patiently(lambda: obstore.delete(self._store, plain), plain[0])
        for key in keys:
            if key.endswith("/"):
                self._remove_folder(key.rstrip("/"))

    def _remove_folder(self, key: str) -> None:
        """Remove a folder's marker."""
        self._remove(self._made(quote(f"/{key}", safe="/-_.~"), single=True), "")

    def _remove(self, store: Any, path: str) -> None:
        import obstore

        try:
            patiently(lambda: obstore.delete(store, path), path)
        except FileNotFoundError as error:
            if getattr(error, "code", "") == "NoSuchBucket":
                raise

    def entries(self, prefix: str) -> Iterator[Entry]:
        import obstore

        folder, last = prefix.rstrip("/") or None, None
        pages = obstore.list(self._store, folder)

        def page() -> Any:
            nonlocal pages
            try:
                return next(pages, None)
            except Exception:
                # A listing that failed can't be continued, but a new one can start after its last
                # object.
                pages = obstore.list(self._store, folder, offset=last)
                raise

        for entries in iter(lambda: patiently(page, prefix), None):
            for each in entries:
                last = each["path"]
                size, modified = int(each["size"]), each["last_modified"].timestamp()
                yield Entry(each["path"], size, modified, maybe_folder=size == 0)


class _Writer:
    """obstore's stream, with failures translated to ours."""

    def __init__(self, stream: Any, key: str) -> None:
        self._stream = stream
        self._key = key
        self._offset = 0
        self.closed = False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        answer_of(lambda: self._stream.write(data), self._key)
        self._offset += size
        return size

    def tell(self) -> int:
        return self._offset

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            answer_of(self._stream.close, self._key)


def answer_of(request: Callable[[], Result], key: str) -> Result:
    """Make a request, and handle signals meanwhile, although obstore would block them until the
    answer.
    """
    with _failures(key):
        if threading.current_thread() is not threading.main_thread():
            return request()
        answers: list[Result] = []
        failures: list[BaseException] = []

        def ask() -> None:
            try:
                answers.append(request())
            except BaseException as error:
                failures.append(error)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join()
        if failures:
            raise failures[0]
        return answers[0]


def patiently(request: Callable[[], Result], key: str) -> Result:
    """Make a request that may be repeated, for some minutes while the store is busy."""
    until, pause = time.monotonic() + BUSY_SECONDS, FIRST_PAUSE_SECONDS
    while True:
        try:
            return answer_of(request, key)
        except StoreFailure as error:
            if error.code not in _BUSY or time.monotonic() + pause > until:
                raise
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


@contextmanager
def _failures(key: str) -> Iterator[None]:
    """Turn obstore's exceptions into OSErrors with one line: the store's own message."""
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(*_text_and_code(error, key)) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        text, code = _text_and_code(error, key)
        if code in _UNDECIDED:
            raise UndecidedError(text) from error
        raise FileExistsError(text) from error
    except exceptions.BaseError as error:
        text, code = _text_and_code(error, key)
        if _METADATA_SERVICE in str(error):
            raise NoLoginError from error
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            raise RefusedError(text, code) from error
        if code in _NO_BUCKET:
            raise MissingError(text, "NoSuchBucket") from error
        if not _STATUS.search(str(error)) and "HTTP error" in str(error):
            raise _unreachable(str(error)) from error
        raise StoreFailure(text, code) from error


def _unreachable(account: str) -> UnreachableError:
    """Why there was no connection, or no answer."""
    found = _NAME_OF_HOST.search(account)
    host = found[1] if found else "the store"
    for sign, (reason, way_out) in _UNREACHABLE.items():
        if "kind: Connect" in account and sign in account:
            return UnreachableError(reason.format(host=host), way_out)
    return UnreachableError(
        f"{host} gave no answer", "check that the store runs, and check the network path to it"
    )


def _text_and_code(error: BaseException, key: str) -> tuple[str, str]:
    """What happened, in one line, and the store's error code."""
    whole = str(error).partition("\n\nDebug source")[0]
    code, message, status = _CODE.search(whole), _MESSAGE.search(whole), _STATUS.search(whole)
    name = code[1] if code else status[1] if status else ""
    if name in _NO_BUCKET:
        name = "NoSuchBucket"
    if message:
        return f"{name}: {message[1].strip().splitlines()[0]}", name
    return " ".join(whole.partition("<?xml")[0].split()), name
