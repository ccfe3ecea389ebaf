"""Small objects and file moves on a local disk, in a bucket of S3, Google or Azure, or any other that fsspec knows.

Paths are relative to the storage's root, in POSIX spelling, without a leading slash.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from singer_spark.config.config_secrets import register_secrets
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.storage.engines.delta_options import delta_options, delta_url
from singer_spark.storage.engines.hadoop_conf import hadoop_conf, hadoop_url
from singer_spark.storage.files import FileInfo
from singer_spark.storage.local_files import LocalFiles
from singer_spark.storage.object_files import ObjectFiles
from singer_spark.storage.storage_errors import CONDITIONAL_WAY_OUT, error_code, missing_is_fine, told
from singer_spark.storage.stores.opening import kind_of, open_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager


__all__ = ["FileInfo", "Storage", "open_url"]

logger = logging.getLogger(__name__)

SCRATCH = ".dataspoc/staging/tmp"
# The end of an upload in pieces, asked for again because its answer got lost, knows of none any more: the length tells.
ENDED_CODES = ("NoSuchUpload", "InvalidBlockList")


class Storage:
    """Where a lake lies, with the few operations that a commit needs.

    All methods raise StorageError with the path, the cause and what to do.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        accept_unconditional: bool = False,
        files: LocalFiles | ObjectFiles | None = None,
    ) -> None:
        """Knows the place; nothing is read or made yet.

        Args:
            url: Directory or URL (`./lake`, `file:///lake`, `s3://bucket/prefix`).
            options: fsspec's storage options of that store; the same values configure Spark.
            accept_unconditional: Where the store has no conditional put, or none that is asked for, looks and then
                writes: two runs at once may both win there.
            files: Other operations below the same URL (tests put faults there).

        Raises:
            ConfigurationError: the URL's kind or an option is unknown, or a package for it is missing.
        """
        self.options = dict(options or {})
        register_secrets(self.options)
        folder = _local_folder(url)
        self.url = folder.as_posix() if folder else url.rstrip("/")
        self.local = folder is not None
        self.kind = "" if self.local else kind_of(self.url)
        self.accept_unconditional = accept_unconditional
        if files is None:
            conditional = not accept_unconditional
            files = LocalFiles(folder, SCRATCH) if folder else _objects(self.url, self.options, conditional=conditional)
        self.files = files

    def read(self, path: str) -> bytes | None:
        """The content, or None where nothing is."""
        with self._told("read", path), missing_is_fine():
            return self.files.read(path)
        return None

    def create(self, path: str, data: bytes) -> bool:
        """Creates an object with all of its content, unless one stands there.

        Returns:
            True when it stands with these very bytes (also if an earlier answer got lost, so make them
            unique to their writer); False when another one was there first.
        """
        with self._told("create", path):
            try:
                self.files.create(path, data)
            except FileExistsError:
                return self.read(path) == data
            return True

    def replace(self, path: str, data: bytes) -> None:
        """Writes an object; readers meet the old content or the new."""
        with self._told("write", path):
            self.files.replace(path, data)

    def exchange(self, path: str, seen: bytes | None, data: bytes) -> bool:
        """Writes an object over the very content that was seen, None for nothing.

        Returns:
            True when it stands with `data` (also if an earlier answer got lost); False when something else
            was written meanwhile.
        """
        if seen == data:
            return True
        with self._told("write", path):
            try:
                self.files.exchange(path, seen, data)
            except FileExistsError:
                return self.read(path) == data
            return True

    def check_conditions(self, path: str, other: bytes) -> None:
        """Asks the store to write over an object on a condition that does not hold: it must refuse.

        Args:
            path: An object that stands.
            other: What it does not hold. A store that can't be trusted has it there afterwards.

        Raises:
            StorageError: the store wrote it all the same, so it can't tell two runs apart.
        """
        if self.accept_unconditional and not self.local:
            logger.warning("The storage's conditional puts are not relied on: never start two runs at once.")
            return
        with self._told("check", path):
            ignored = self.files.ignored_conditions(path, other)
        if ignored:
            raise StorageError(
                f"{self.url} writes over an object in spite of {' and '.join(ignored)}: two runs could both win there; "
                f"{CONDITIONAL_WAY_OUT}"
            )

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """A file, opened for reading; only what is read of it travels. A bad content is no failure of the storage."""
        with self._told("read", path):
            file = self.files.open(path)
        with file:
            try:
                yield cast("BinaryIO", file)
            except OSError:
                with self._told("read", path):
                    raise

    def open_writer(self, path: str) -> IO[bytes]:
        """A new file that nothing else writes to, opened for writing; in a bucket it is there once it is closed."""
        with self._told("write", path):
            return self.files.open_writer(path)

    def upload(self, source: Path, path: str) -> None:
        """Copies a file of this machine to a path that nothing else writes to: whole or not at all, in pieces."""
        with self._told("write", path):
            try:
                self.files.upload(source, path)
            except OSError as error:
                if error_code(error) not in ENDED_CODES or self.size(path) != source.stat().st_size:
                    raise

    def extend(self, source: str, tail: bytes, target: str) -> None:
        """Copies a file with bytes behind it to a path that nothing else writes to; inside the store where it can."""
        with self._told("write", target):
            try:
                self.files.extend(source, tail, target)
            except OSError as error:
                if error_code(error) not in ENDED_CODES:
                    raise
                if self.size(target) != (self.size(source) or 0) + len(tail):
                    raise

    def move(self, source: str, target: str) -> None:
        """Moves a file without reading it; done already when only the target is there."""
        with self._told("move", f"{source} to {target}"):
            try:
                self.files.move(source, target)
            except FileNotFoundError:
                if self.size(target) is None:
                    raise

    def delete(self, path: str) -> None:
        """Removes an object; a missing one is fine."""
        with self._told("delete", path):
            self.files.delete(path)

    def delete_all(self, prefix: str) -> None:
        """Removes a folder with all that is below it; a missing one is fine."""
        with self._told("delete", prefix):
            self.files.delete_all(prefix)

    def remove_empty(self, folders: Iterable[str]) -> None:
        """Removes those of the folders that hold no file and no other folder, and never a file."""
        with self._told("remove empty folders of", ""):
            self.files.remove_empty(folders)

    def list(self, prefix: str) -> list[FileInfo]:
        """All files below a folder, sorted by path; none for a missing one."""
        with self._told("list", prefix):
            return sorted(self.files.list(prefix), key=lambda file: file.path)

    def exists(self, path: str) -> bool:
        """Whether a file or object stands there."""
        return self.size(path) is not None

    def size(self, path: str) -> int | None:
        """Its size in bytes, None where nothing is."""
        with self._told("look at", path), missing_is_fine():
            return self.files.size(path)
        return None

    def flush(self, paths: Iterable[str]) -> None:
        """Makes files and their folders survive a power cut (object stores do so by themselves)."""
        with self._told("flush files in", ""):
            self.files.flush(paths)

    def flush_folders(self, paths: Iterable[str]) -> None:
        """Makes the removal of files survive a power cut."""
        with self._told("flush folders in", ""):
            self.files.flush_folders(paths)

    def sweep(self) -> None:
        """Removes half-done writes of dead processes; a living one writes again."""
        with self._told("clean", SCRATCH):
            self.files.sweep()

    def url_for_spark(self, path: str) -> str:
        """The URL under which Spark's executors reach a path: `file:///…`, `s3a://…`."""
        place = f"{self.url}/{path}".rstrip("/")
        return f"file://{place}" if self.local else hadoop_url(place, self.options)

    def hadoop_conf(self) -> dict[str, str]:
        """Hadoop's settings (`fs.s3a.…`, `fs.gs.…`, `fs.azure.…`) that say what the options say; they hold secrets."""
        return {} if self.local else hadoop_conf(self.url, self.options)

    def delta_options(self) -> dict[str, str]:
        """delta-rs' options that say what the storage options say; they hold secrets."""
        return {} if self.local else delta_options(self.url, self.options)

    def delta_url(self, path: str) -> str:
        """The URL under which delta-rs reaches a path."""
        return f"{self.url}/{path}" if self.local else delta_url(f"{self.url}/{path}")

    def _told(self, verb: str, path: str) -> AbstractContextManager[None]:
        return told(verb, f"{self.url}/{path}".rstrip("/"))


def open_url(url: str, options: Mapping[str, Any] | None = None) -> tuple[Storage, str]:
    """The storage around a single file, and the file's path in it.

    The storage reaches up to the folder that holds `.dataspoc`, where the file lies in a lake's own folder.
    """
    marker = "/.dataspoc/"
    place = _local_folder(url)
    text = place.as_posix() if place else url
    above, found, below = text.rpartition(marker)
    if found:
        return Storage(above or "/", options), marker[1:] + below
    above, _, name = text.rpartition("/")
    return Storage(above or "/", options), name


def _local_folder(url: str) -> Path | None:
    """The absolute folder that a path or `file:` URL names; None for another kind of URL."""
    if not url:
        raise ConfigurationError("the bucket is empty: give a directory or a URL (./lake, s3://bucket/prefix)")
    if "://" not in url and not url.startswith("file:"):
        return Path(url).expanduser().absolute()
    protocol, _, rest = url.partition(":")
    if protocol not in ("file", "local"):
        return None
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest).absolute()


def _objects(url: str, options: Mapping[str, Any], *, conditional: bool) -> ObjectFiles:
    bucket, root = open_bucket(url, options)
    return ObjectFiles(bucket, root, url.partition("://")[0], conditional=conditional)
