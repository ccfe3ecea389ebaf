"""The storage operations on an object store, through fsspec."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any

from singer_spark.storage.files import FileInfo
from singer_spark.storage.s3_copy import LEAST_PART_BYTES, copy_and_append
from singer_spark.storage.storage_errors import UnconditionalStoreError, error_code, missing_is_fine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

# fsspec answers create-if-absent with a conditional put on these; elsewhere it checks, then writes.
CONDITIONAL_PROTOCOLS = ("s3", "s3a", "gs", "gcs")
MODIFIED_NAMES = ("LastModified", "last_modified", "updated", "modified")
LOST_RACE_CODES = ("PreconditionFailed", "412")
# Another write of that object is under way: nobody has won yet.
CONFLICT_CODES = ("ConditionalRequestConflict", "409")
CONFLICT_TRIES = 6
FIRST_PAUSE_SECONDS = 0.05
NO_OBJECT_HAS_THIS_TAG = '"00000000000000000000000000000000"'
# What an upload sends at once, and how much of it: together they bound its memory.
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
MOST_PIECES = 10_000


class ObjectFiles:
    """Objects below a prefix of a bucket."""

    def __init__(self, filesystem: Any, root: str, *, conditional: bool = True) -> None:
        """Knows the place.

        Args:
            filesystem: fsspec's.
            root: The bucket, and the prefix in it.
            conditional: Whether the store must decide who is first; else we look, then write.
        """
        self.filesystem = filesystem
        self.root = root.rstrip("/")
        self.conditional = conditional

    def _key(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _protocols(self) -> tuple[str, ...]:
        protocols = self.filesystem.protocol
        return (protocols,) if isinstance(protocols, str) else tuple(protocols)

    def read(self, path: str) -> bytes:
        """The content; FileNotFoundError where nothing is."""
        return bytes(self.filesystem.cat_file(self._key(path)))

    def create(self, path: str, data: bytes) -> None:
        """Creates an object by a conditional put; FileExistsError where one stands."""
        names = self._protocols()
        if not self.conditional:
            if self.filesystem.exists(self._key(path)):
                raise FileExistsError(path)
            self.replace(path, data)
            return
        if not any(name in CONDITIONAL_PROTOCOLS for name in names):
            raise UnconditionalStoreError(f"{names[0]}:// offers no conditional put, so two runs could both win")
        self._put_if(path, data, mode="create")

    def replace(self, path: str, data: bytes) -> None:
        """Writes an object; a put is whole or not at all."""
        self.filesystem.pipe_file(self._key(path), data)

    def exchange(self, path: str, seen: bytes | None, data: bytes) -> None:
        """Writes over the very content `seen`; FileExistsError where something else stands."""
        if seen is None:
            self.create(path, data)
            return
        key = self._key(path)
        try:
            tag = self.filesystem.info(key).get("ETag")
            present: bytes | None = self.read(path)
        except FileNotFoundError:
            present = None
        if present != seen:
            raise FileExistsError(path)
        # Elsewhere than on S3 the run lock alone must do.
        condition = {"IfMatch": tag} if self._takes_tags() and tag else {}
        self._put_if(path, data, **condition)

    def _put_if(self, path: str, data: bytes, **condition: str) -> None:
        """Puts on a condition; asks again while another write of that object is under way.

        Raises:
            FileExistsError: the condition does not hold.
            OSError: the store failed, or still could not say: nobody has won.
        """
        # In one request whatever its size: s3fs forgets IfMatch where it puts in pieces.
        whole = {"chunksize": len(data) + 1} if "s3" in self._protocols() else {}
        for attempt in range(CONFLICT_TRIES):
            try:
                with _lost_race_told(path):
                    self.filesystem.pipe_file(self._key(path), data, **whole, **condition)
                return
            except OSError as error:
                if error_code(error) not in CONFLICT_CODES or attempt == CONFLICT_TRIES - 1:
                    raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)

    def _takes_tags(self) -> bool:
        return self.conditional and "s3" in self._protocols()

    def ignored_conditions(self, path: str, other: bytes) -> tuple[str, ...]:
        """Asks for writes of `other` that must be refused; names the conditions that the store wrote in spite of."""
        ignored = []
        try:
            self.create(path, other)
            ignored.append("If-None-Match")
        except FileExistsError:
            pass
        if self._takes_tags():
            try:
                self._put_if(path, other, IfMatch=NO_OBJECT_HAS_THIS_TAG)
                ignored.append("If-Match")
            except FileExistsError:
                pass
        return tuple(ignored)

    def upload(self, source: Path, path: str) -> None:
        """Copies a file of this machine; on S3 in pieces, which are an object only once all are there."""
        pieces: dict[str, int] = {}
        if "s3" in self._protocols():
            piece_bytes = max(PIECE_BYTES, ceil(source.stat().st_size / MOST_PIECES))
            pieces = {"chunksize": piece_bytes, "max_concurrency": PIECES_AT_ONCE}
        self.filesystem.put_file(str(source), self._key(path), **pieces)

    def extend(self, source: str, tail: bytes, target: str) -> None:
        """Copies an object with bytes behind it; a large one on S3 inside the store."""
        size = self.size(source)
        if "s3" in self._protocols() and size >= LEAST_PART_BYTES:
            copy_and_append(self.filesystem, self._key(source), size, tail, self._key(target))
        else:
            self.replace(target, self.read(source) + tail)

    def move(self, source: str, target: str) -> None:
        """Copies inside the store and removes the source; FileNotFoundError where it is not."""
        self.filesystem.cp_file(self._key(source), self._key(target))
        self.filesystem.rm_file(self._key(source))

    def delete(self, path: str) -> None:
        """Removes an object; a missing one is fine."""
        with missing_is_fine():
            self.filesystem.rm_file(self._key(path))

    def delete_all(self, prefix: str) -> None:
        """Removes all objects below a prefix, the empty ones that Spark makes for folders too."""
        keys = list(self._found(prefix))
        markers = [key for key in keys if key.endswith("/")]
        for marker in markers:
            self.filesystem.rm_file(marker)
        if len(keys) > len(markers):
            self.filesystem.rm([key for key in keys if not key.endswith("/")])

    def remove_empty(self, folders: Iterable[str]) -> None:
        """Removes the empty objects that Spark makes for folders, where nothing else is below them."""
        wanted = sorted(set(folders))
        outer = [each for each in wanted if not any(each.startswith(f"{other}/") for other in wanted)]
        for top in outer:
            standing = set(self._found(top))
            for marker in sorted((f"{self._key(each)}/" for each in wanted), reverse=True):
                if marker in standing and not any(key != marker and key.startswith(marker) for key in standing):
                    self.filesystem.rm_file(marker)
                    standing.discard(marker)

    def list(self, prefix: str) -> list[FileInfo]:
        """All objects below a prefix, folder markers left out."""
        start = len(self.root) + 1
        return [
            FileInfo(key[start:], int(info["size"] or 0), _modified(info))
            for key, info in self._found(prefix).items()
            if info["type"] == "file" and not key.endswith("/")
        ]

    def _found(self, prefix: str) -> Mapping[str, Mapping[str, Any]]:
        folder = self._key(prefix) + "/"
        found: Mapping[str, Mapping[str, Any]] = {}
        with missing_is_fine():
            found = self.filesystem.find(folder, detail=True)
        # Of an empty folder s3fs gives the object that has the folder's own name.
        return {key: info for key, info in found.items() if key.startswith(folder)}

    def size(self, path: str) -> int:
        """Size in bytes; FileNotFoundError where nothing is."""
        return int(self.filesystem.info(self._key(path))["size"])

    def flush(self, paths: Iterable[str]) -> None:
        """Nothing to do: an object store answers when the object is durable."""

    def flush_folders(self, paths: Iterable[str]) -> None:
        """Nothing to do either."""

    def sweep(self) -> None:
        """Nothing to do: a put leaves nothing half done."""


def _modified(info: Mapping[str, Any]) -> float | None:
    """When an object was written, as fsspec's packages say it: each by a name of its own."""
    told = next((info[name] for name in MODIFIED_NAMES if info.get(name)), None)
    if isinstance(told, str):
        with suppress(ValueError):
            told = datetime.fromisoformat(told)
    return told.timestamp() if isinstance(told, datetime) else None


@contextmanager
def _lost_race_told(path: str) -> Iterator[None]:
    """Turns the store's answer that its condition no longer holds into FileExistsError."""
    try:
        yield
    except OSError as error:
        if error_code(error) in LOST_RACE_CODES:
            raise FileExistsError(path) from error
        raise
