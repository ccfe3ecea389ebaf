"""The storage operations on an object store."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from singer_spark.store.bucket import (
    ABSENT,
    PIECE_BYTES,
    Bucket,
    Entry,
    FileInfo,
    LostAnswerError,
    UnconditionalStoreError,
    UndecidedError,
)

# The footers of most Parquet files fit in, so one request brings the footer, and the size, too.
END_BYTES = 1 << 16
# Small reads fetch this much at once.
AHEAD_BYTES = 4 << 20


class ObjectFile(io.RawIOBase):
    """One object; its end is read on opening, which raises FileNotFoundError if there is none."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        super().__init__()
        self._bucket = bucket
        self._key = key
        self._end, self._size = bucket.read_end(key, END_BYTES)
        self._offset = 0
        self._ahead = b""
        self._ahead_at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = max(base + offset, 0)
        return self._offset

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._offset, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._part(self._offset, wanted) if wanted else b""
        self._offset += len(data)
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _part(self, start: int, length: int) -> bytes:
        if start >= (end_at := self._size - len(self._end)):
            return self._end[start - end_at : start - end_at + length]
        inside = start - self._ahead_at
        if 0 <= inside and inside + length <= len(self._ahead):
            return self._ahead[inside : inside + length]
        if length >= AHEAD_BYTES:
            return self._bucket.read_range(self._key, start, length)
        # The bytes right after those read are likely to be read next.
        more = AHEAD_BYTES if start == 0 or start == self._ahead_at + len(self._ahead) else length
        self._ahead = self._bucket.read_range(
            self._key, start, min(max(more, length), self._size - start)
        )
        self._ahead_at = start
        return self._ahead[:length]


# A condition that no object meets, valid for any store.
NO_OBJECT_HAS_THIS_VERSION = {
    "If-Match": '"00000000000000000000000000000000"',
    "ifGenerationMatch": "1",
}
TRIES = 6
FIRST_PAUSE_SECONDS = 0.05
MOST_SECONDS = 60


class ObjectFiles:
    """Objects below a prefix of a bucket."""

    def __init__(self, bucket: Bucket, root: str, kind: str, *, conditional: bool = True) -> None:
        """Nothing is requested yet; `kind`, the URL's scheme, is for messages.

        If `conditional`, the store must decide which writer is first; otherwise we look, then
        write.
        """
        self.bucket = bucket
        self.root = root.rstrip("/")
        self.kind = kind
        self.conditional = conditional

    def _key(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root and path else path or self.root

    def read(self, path: str) -> bytes:
        """The content; FileNotFoundError if there is none."""
        return self.bucket.read(self._key(path))[0]

    def open(self, path: str) -> ObjectFile:
        """The object as a file; only what is read is transferred."""
        return ObjectFile(self.bucket, self._key(path))

    def open_writer(self, path: str) -> IO[bytes]:
        """A stream whose bytes become an object when it is closed."""
        return self.bucket.open_writer(self._key(path))

    def create(self, path: str, data: bytes) -> None:
        """Create an object by a conditional put; FileExistsError if there is one."""
        if not self.conditional:
            with suppress(FileNotFoundError):
                self.bucket.size(self._key(path))
                raise FileExistsError(path)
            self.replace(path, data)
            return
        if not self.bucket.conditions:
            raise UnconditionalStoreError(
                f"{self.kind}:// offers no conditional put, so two runs could both win"
            )
        self._write_if(path, data, ABSENT)

    def replace(self, path: str, data: bytes) -> None:
        """Write an object; a put is atomic."""
        self.bucket.write(self._key(path), data)

    def exchange(self, path: str, seen: bytes | None, data: bytes) -> None:
        """Replace exactly the content `seen`; FileExistsError if there is another."""
        if seen is None:
            self.create(path, data)
            return
        try:
            present, version = self.bucket.read(self._key(path))
        except FileNotFoundError:
            raise FileExistsError(path) from None
        if present != seen:
            raise FileExistsError(path)
        if self.conditional and self.bucket.conditions:
            self._write_if(path, data, version)
        else:
            self.replace(path, data)

    def _write_if(self, path: str, data: bytes, version: str) -> None:
        """Write on a condition; retry if no writer has won yet, or the answer was lost.

        In the latter case the condition may fail because of our own first request: the caller
        compares the content.

        Raises:
            FileExistsError: the condition does not hold.
            OSError: the store failed, or is still undecided: no writer has won.
        """
        until = time.monotonic() + MOST_SECONDS
        for attempt in range(TRIES):
            try:
                self.bucket.write(self._key(path), data, version)
                return
            except (UndecidedError, LostAnswerError):
                if attempt == TRIES - 1 or time.monotonic() > until:
                    raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)

    def ignored_conditions(self, path: str, other: bytes) -> tuple[str, ...]:
        """Try writes of `other` that must be refused; returns the conditions ignored."""
        if not self.conditional or not self.bucket.conditions:
            return ()
        creation, exchange = self.bucket.conditions
        ignored = []
        for name, version in ((creation, ABSENT), (exchange, NO_OBJECT_HAS_THIS_VERSION[exchange])):
            with suppress(FileExistsError):
                self._write_if(path, other, version)
                ignored.append(name)
        return tuple(ignored)

    def upload(self, source: Path, path: str) -> None:
        """Copy a file of this machine, in pieces that become an object only once all are there."""
        self.bucket.upload(source, self._key(path))

    def extend(self, source: str, tail: bytes, target: str) -> None:
        """Copy an object with bytes appended; a large one inside the store, if it supports that."""
        here, there = self._key(source), self._key(target)
        size = self.bucket.size(here)
        if self.bucket.extend(here, size, tail, there):
            return
        if size < 2 * PIECE_BYTES:
            self.bucket.write(there, self.bucket.read(here)[0] + tail)
            return
        stream = self.bucket.open_writer(
            there
        )  # closed only when complete: otherwise no object is created
        for start in range(0, size, PIECE_BYTES):
            stream.write(self.bucket.read_range(here, start, min(PIECE_BYTES, size - start)))
        stream.write(tail)
        stream.close()

    def move(self, source: str, target: str) -> None:
        """Copy inside the store and remove the source; FileNotFoundError if it is missing."""
        self.bucket.copy(self._key(source), self._key(target))
        self.bucket.delete([self._key(source)])

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is fine."""
        self.bucket.delete([self._key(path)])

    def delete_all(self, prefix: str) -> None:
        """Remove all objects below a prefix, including Spark's empty ones for folders."""
        found = list(self._entries(prefix))
        # On Azure a folder may be a real one, which can't be removed before its content.
        own = self._key(prefix)
        real = {own}
        if not self.bucket.folders_are_listed:
            real |= {above for each in found for above in _above(each.key)}
        keys = [each.key for each in found if not (each.maybe_folder and each.key in real)]
        folders = [f"{each.key}/" for each in found if each.maybe_folder]
        if found:
            # In such a store the folder's own object is not listed among those below it; in others
            # it was found if it exists.
            outer = [] if self.bucket.folders_are_listed else [f"{own}/"]
            self.bucket.delete([*keys, *sorted(folders, reverse=True), *outer])

    def remove_empty(self, folders: Iterable[str]) -> None:
        """Remove the empty objects that Spark makes for folders, if nothing else is below them."""
        wanted = sorted(set(folders))
        outer = [
            each for each in wanted if not any(each.startswith(f"{other}/") for other in wanted)
        ]
        for top in outer:
            found = list(self._entries(top))
            present = {f"{each.key}/" if each.maybe_folder else each.key for each in found}
            if not self.bucket.folders_are_listed:
                with suppress(FileNotFoundError):
                    present |= (
                        {f"{self._key(top)}/"} if self.bucket.is_folder(self._key(top)) else set()
                    )
            for marker in sorted((f"{self._key(each)}/" for each in wanted), reverse=True):
                if marker in present and not any(
                    key != marker and key.startswith(marker) for key in present
                ):
                    self.bucket.delete([marker])
                    present.discard(marker)

    def list(self, prefix: str) -> list[FileInfo]:
        """All objects below a prefix, without folder markers."""
        start = len(self.root) + 1 if self.root else 0
        found = list(self._entries(prefix))
        return [
            FileInfo(each.key[start:], each.size, each.modified)
            for each in found
            if not each.key.endswith("/")
            and not (each.maybe_folder and self._is_folder(each.key, found))
        ]

    def _is_folder(self, key: str, found: Sequence[Entry]) -> bool:
        """Whether an empty object is a folder marker: others are below it, or the store says so."""
        if any(each.key.startswith(f"{key}/") for each in found):
            return True
        return self.bucket.is_folder(key)

    def _entries(self, prefix: str) -> Iterator[Entry]:
        folder = self._key(prefix)
        return self.bucket.entries(f"{folder}/" if folder else "")

    def size(self, path: str) -> int:
        """Size in bytes; FileNotFoundError if it is missing."""
        return self.bucket.size(self._key(path))

    def flush(self, paths: Iterable[str]) -> None:
        """Do nothing: an object store answers once the object is durable."""

    def flush_folders(self, paths: Iterable[str]) -> None:
        """Do nothing."""

    def sweep(self) -> None:
        """Do nothing: a put leaves nothing half done."""


def _above(key: str) -> list[str]:
    """The folders above an object."""
    parts = key.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
