"""The storage operations on an object store, through fsspec."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from singer_spark.files import FileInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# fsspec answers create-if-absent with a conditional put on these; elsewhere it checks, then writes.
CONDITIONAL_PROTOCOLS = ("s3", "s3a", "gs", "gcs")
LOST_RACE_CODES = ("PreconditionFailed", "412")
# Another write of that object is under way: nobody has won yet.
CONFLICT_CODES = ("ConditionalRequestConflict", "409")
CONFLICT_TRIES = 6
FIRST_PAUSE_SECONDS = 0.05


class ObjectFiles:
    """Objects below a prefix of a bucket."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")

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
        if not any(name in CONDITIONAL_PROTOCOLS for name in names):
            raise OSError(f"{names[0]}:// offers no conditional put, so two runs could both win; use s3:// or gs://")
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
        condition = {"IfMatch": tag} if "s3" in self._protocols() and tag else {}
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

    def move(self, source: str, target: str) -> None:
        """Copies inside the store and removes the source; FileNotFoundError where it is not."""
        self.filesystem.cp_file(self._key(source), self._key(target))
        self.filesystem.rm_file(self._key(source))

    def delete(self, path: str) -> None:
        """Removes an object; a missing one is fine."""
        try:
            self.filesystem.rm_file(self._key(path))
        except FileNotFoundError as error:
            if error_code(error) == "NoSuchBucket":
                raise

    def delete_all(self, prefix: str) -> None:
        """Removes all objects below a prefix."""
        keys = [self._key(file.path) for file in self.list(prefix)]
        if keys:
            self.filesystem.rm(keys)

    def list(self, prefix: str) -> list[FileInfo]:
        """All objects below a prefix, folder markers left out."""
        try:
            found: Mapping[str, Mapping[str, Any]] = self.filesystem.find(self._key(prefix) + "/", detail=True)
        except FileNotFoundError as error:
            if error_code(error) == "NoSuchBucket":
                raise
            return []
        start = len(self.root) + 1
        return [
            FileInfo(key[start:], int(info["size"] or 0))
            for key, info in found.items()
            if info["type"] == "file" and not key.endswith("/")
        ]

    def size(self, path: str) -> int:
        """Size in bytes; FileNotFoundError where nothing is."""
        return int(self.filesystem.info(self._key(path))["size"])

    def flush(self, paths: Iterable[str]) -> None:
        """Nothing to do: an object store answers when the object is durable."""

    def flush_folders(self, paths: Iterable[str]) -> None:
        """Nothing to do either."""

    def sweep(self) -> None:
        """Nothing to do: a put leaves nothing half done."""


@contextmanager
def _lost_race_told(path: str) -> Iterator[None]:
    """Turns the store's answer that its condition no longer holds into FileExistsError."""
    try:
        yield
    except OSError as error:
        if error_code(error) in LOST_RACE_CODES:
            raise FileExistsError(path) from error
        raise


def error_code(error: BaseException | None) -> str:
    """The store's own code of a failure (`NoSuchBucket`), or empty."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""
