"""A bucket of any other store known to fsspec; as it has no conditional writes, it looks first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.store.bucket import Entry

MODIFIED_NAMES = ("LastModified", "last_modified", "updated", "modified", "mtime", "created")


class FsspecBucket:
    """Files of an fsspec filesystem."""

    conditions: tuple[str, ...] = ()
    folders_are_listed = True

    def __init__(self, filesystem: Any) -> None:
        self._files = filesystem

    def read(self, key: str) -> tuple[bytes, str]:
        return bytes(self._files.cat_file(key)), ""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return bytes(self._files.cat_file(key, start=start, end=start + length))

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        size = self.size(key)
        return self.read_range(key, max(size - length, 0), length), size

    def size(self, key: str) -> int:
        return int(self._files.info(key)["size"])

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        self._files.pipe_file(key, data)

    def upload(self, source: Path, key: str) -> None:
        self._files.put_file(str(source), key)

    def open_writer(self, key: str) -> IO[bytes]:
        return cast("IO[bytes]", self._files.open(key, "wb"))

    def copy(self, source: str, target: str) -> None:
        self._files.cp_file(source, target)

    def is_folder(self, key: str) -> bool:
        return key.endswith("/")

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        return False

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                self._files.rm_file(key)

    def entries(self, prefix: str) -> Iterator[Entry]:
        found: Mapping[str, Mapping[str, Any]] = {}
        with suppress(FileNotFoundError):
            found = self._files.find(prefix, detail=True)
        for key, info in found.items():
            if info["type"] == "file" and key.startswith(prefix):
                yield Entry(key, int(info["size"] or 0), _modified(info))


def open_filesystem(url: str, options: Mapping[str, Any]) -> tuple[FsspecBucket, str]:
    """The bucket, and the URL's key in it.

    Raises:
        ConfigurationError: the kind is unknown to fsspec, or a package for it is missing.
    """
    import fsspec

    protocol = url.partition("://")[0]
    # A cached listing or instance could return what another process has long since changed.
    fresh: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    try:
        filesystem, root = fsspec.core.url_to_fs(url, **{**fresh, **options})
    except ImportError as error:
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING, f"{protocol}:// needs a package that is not installed: {error}"
        ) from error
    except ValueError as error:
        raise ConfigurationError(
            RunCode.BAD_BUCKET, f"{protocol}:// can't be used here: {error}"
        ) from error
    return FsspecBucket(filesystem), root


def _modified(info: Mapping[str, Any]) -> float | None:
    """When an object was written; each fsspec package has its own name for that."""
    modified = next((info[name] for name in MODIFIED_NAMES if info.get(name)), None)
    if isinstance(modified, int | float):
        return float(modified)
    if isinstance(modified, str):
        with suppress(ValueError):
            modified = datetime.fromisoformat(modified)
    return modified.timestamp() if isinstance(modified, datetime) else None
