"""A bucket of S3 or Azure, through obstore."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from urllib.parse import quote

from singer_spark.storage.storage_errors import MissingError, RefusedError, StoreFailure
from singer_spark.storage.stores.bucket import (
    ABSENT,
    MOST_PIECES,
    PIECE_BYTES,
    PIECES_AT_ONCE,
    Entry,
    LostAnswerError,
    UndecidedError,
)

Result = TypeVar("Result")

_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_STATUS = re.compile(r"status code: (\d{3})")
_UNDECIDED = ("ConditionalRequestConflict", "OperationAborted")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")


class ObstoreBucket:
    """Objects of one bucket or container.

    obstore's keys neither begin nor end with a slash, so a folder's marker (`a/b/`) is seen as `a/b`, and is removed as
    the root of a store of its own.
    """

    conditions: tuple[str, ...] = ("If-None-Match", "If-Match")
    folders_are_listed = True

    def _made(self, below: str = "", *, single: bool = False) -> Any:
        """Make an obstore store.

        Args:
            below: Appended to the bucket's name: with a leading slash, a key whose folder marker is the empty path.
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

        return answer_of(get, key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        import obstore

        return answer_of(lambda: bytes(obstore.get_range(self._store, key, start=start, length=length)), key)

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        import obstore

        def get() -> tuple[bytes, int]:
            found = obstore.get(self._store, key, options={"range": {"suffix": length}})
            return bytes(found.bytes()), int(found.meta["size"])

        return answer_of(get, key)

    def size(self, key: str) -> int:
        import obstore

        try:
            return answer_of(lambda: int(obstore.head(self._store, key)["size"]), key)
        except FileNotFoundError:
            # The answer to a HEAD does not show whether it is the bucket that is missing.
            self.read_range(key, 0, 1)
            raise

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        import obstore

        mode: Any = "overwrite" if version is None else "create" if version == ABSENT else {"e_tag": version}
        answer_of(lambda: obstore.put(self._store, key, data, mode=mode, use_multipart=False), key)

    def upload(self, source: Path, key: str) -> None:
        import obstore

        size = source.stat().st_size
        piece = max(PIECE_BYTES, ceil(size / MOST_PIECES))
        with source.open("rb") as file:
            answer_of(
                lambda: obstore.put(
                    self._store,
                    key,
                    file,
                    use_multipart=size >= 2 * PIECE_BYTES,
                    chunk_size=piece,
                    max_concurrency=PIECES_AT_ONCE,
                ),
                key,
            )

    def open_writer(self, key: str) -> IO[bytes]:
        import obstore

        stream = obstore.open_writer(self._store, key, buffer_size=PIECE_BYTES, max_concurrency=PIECES_AT_ONCE)
        return cast("IO[bytes]", _Writer(stream, key))

    def copy(self, source: str, target: str) -> None:
        import obstore

        answer_of(lambda: obstore.copy(self._store, source, target), source)

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
            answer_of(lambda: obstore.delete(self._store, plain), plain[0])
        for key in keys:
            if key.endswith("/"):
                self._remove_folder(key.rstrip("/"))

    def _remove_folder(self, key: str) -> None:
        """Remove a folder's marker."""
        self._remove(self._made(quote(f"/{key}", safe="/-_.~"), single=True), "")

    def _remove(self, store: Any, path: str) -> None:
        import obstore

        try:
            answer_of(lambda: obstore.delete(store, path), path)
        except FileNotFoundError as error:
            if getattr(error, "code", "") == "NoSuchBucket":
                raise

    def entries(self, prefix: str) -> Iterator[Entry]:
        import obstore

        pages = obstore.list(self._store, prefix.rstrip("/") or None)
        for page in iter(lambda: answer_of(lambda: next(pages, None), prefix), None):
            for each in page:
                size, modified = int(each["size"]), each["last_modified"].timestamp()
                yield Entry(each["path"], size, modified, maybe_folder=size == 0)


class _Writer:
    """obstore's stream, with failures translated to ours."""

    def __init__(self, stream: Any, key: str) -> None:
        self._stream = stream
        self._key = key
        self._place = 0
        self.closed = False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        answer_of(lambda: self._stream.write(data), self._key)
        self._place += size
        return size

    def tell(self) -> int:
        return self._place

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            answer_of(self._stream.close, self._key)


def answer_of(request: Callable[[], Result], key: str) -> Result:
    """Make a request; signals are handled meanwhile, although obstore would block them until the answer."""
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


@contextmanager
def _failures(key: str) -> Iterator[None]:
    """Turn obstore's exceptions into OSErrors with one line, the store's own message."""
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
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise RefusedError(*_text_and_code(error, key)) from error
    except exceptions.BaseError as error:
        text, code = _text_and_code(error, key)
        if code in _NO_BUCKET:
            raise MissingError(text, "NoSuchBucket") from error
        if not _STATUS.search(str(error)) and "HTTP error" in str(error):
            raise LostAnswerError(text) from error
        raise StoreFailure(text, code) from error


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
