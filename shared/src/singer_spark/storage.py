"""Small objects and file moves on a local disk or any bucket that fsspec knows.

Paths are relative to the storage's root, in POSIX spelling, without a leading slash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class FileInfo:
    """A file or object: path relative to the storage's root, size in bytes."""

    path: str
    size: int


class Storage:
    """Where a lake lies, with the few operations that a commit needs.

    All methods raise StorageError with the path, the cause and what to do.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """Knows the place; nothing is read or made yet.

        Args:
            url: Directory or URL (`./lake`, `file:///lake`, `s3://bucket/prefix`).
            options: fsspec's storage options; the same values configure Spark's S3A.
        """
        raise NotImplementedError

    def read(self, path: str) -> bytes | None:
        """The content, or None where nothing is."""
        raise NotImplementedError

    def create(self, path: str, data: bytes) -> bool:
        """Creates an object with all of its content, unless one stands there.

        Returns:
            True when it stands with these very bytes (also if an earlier answer got lost, so make them
            unique to their writer); False when another one was there first.
        """
        raise NotImplementedError

    def replace(self, path: str, data: bytes) -> None:
        """Writes an object; readers meet the old content or the new."""
        raise NotImplementedError

    def move(self, source: str, target: str) -> None:
        """Moves a file without reading it; done already when only the target is there."""
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """Removes an object; a missing one is fine."""
        raise NotImplementedError

    def delete_all(self, prefix: str) -> None:
        """Removes a folder with all that is below it; a missing one is fine."""
        raise NotImplementedError

    def list(self, prefix: str) -> list[FileInfo]:
        """All files below a folder, sorted by path; none for a missing one."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        """Whether a file or object stands there."""
        raise NotImplementedError

    def size(self, path: str) -> int | None:
        """Its size in bytes, None where nothing is."""
        raise NotImplementedError

    def flush(self, paths: Iterable[str]) -> None:
        """Makes files and their folders survive a power cut (local disk; object stores do so by themselves)."""
        raise NotImplementedError

    def url_for_spark(self, path: str) -> str:
        """The URL under which Spark's executors reach a path: `file:///…`, `s3a://…`."""
        raise NotImplementedError

    def hadoop_conf(self) -> dict[str, str]:
        """Hadoop's settings (`fs.s3a.…`) that say the same as the storage options."""
        raise NotImplementedError


def open_url(url: str, options: Mapping[str, Any] | None = None) -> tuple[Storage, str]:
    """The storage around a single file, and the file's path in it."""
    raise NotImplementedError
