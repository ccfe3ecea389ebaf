"""A stream to an object on Google's store, sent in pieces by a resumable upload."""

from __future__ import annotations

from typing import Any, Protocol

from singer_spark.storage.storage_errors import StoreFailure
from singer_spark.storage.stores.bucket import PIECE_BYTES


class ResumablePlace(Protocol):
    """Receives the pieces of uploads."""

    def begin(self, key: str) -> str:
        """Begin an upload; returns the URL for its pieces."""

    def send(self, place: str, start: int, piece: bytes, *, last: bool) -> int | None:
        """Send a piece; for the last one, returns the size of the object."""

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        """Write an object in one request."""


class ResumableUpload:
    """A stream whose bytes become an object when it is closed; it holds one piece of them."""

    def __init__(self, bucket: ResumablePlace, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._place = ""
        self._sent = 0
        self._held = bytearray()
        self.closed = False

    def __enter__(self) -> ResumableUpload:
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
        if not self._place:
            self._place = self._bucket.begin(self._key)
        size = self._bucket.send(self._place, self._sent, piece, last=last)
        self._sent += len(piece)
        if last and size != self._sent:
            raise StoreFailure(f"{self._key} has {size} bytes, {self._sent} were sent", "Size")

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._place:
            self._send(bytes(self._held), last=True)
        else:
            self._bucket.write(self._key, bytes(self._held))

    def tell(self) -> int:
        return self._sent + len(self._held)

    def flush(self) -> None:
        """Do nothing: pieces are sent when they are full."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
