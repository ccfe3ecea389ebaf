"""Small objects and file moves on a local disk, in a bucket of S3, Google or Azure, or any other
known to fsspec.

Paths are relative to the storage's root, in POSIX spelling, without a leading slash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

from singer_spark.core.config_secrets import register_secrets
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.store.bucket import (
    CONDITIONAL_WAY_OUT,
    FileInfo,
    error_code,
    missing_is_fine,
    storage_errors,
)
from singer_spark.store.local_files import LocalFiles
from singer_spark.store.object_files import ObjectFiles
from singer_spark.store.store_kinds import (
    AZURE,
    GOOGLE,
    S3,
    delta_options,
    delta_url,
    kind_of,
    open_bucket,
)

logger = logging.getLogger(__name__)
SCRATCH = ".dataspoc/staging/tmp"
# If completing a multipart upload is retried after a lost answer, the upload no longer exists: the
# length is checked.
ENDED_CODES = ("NoSuchUpload", "InvalidBlockList")
REQUESTS_AT_ONCE = 16
Item = TypeVar("Item")
Result = TypeVar("Result")


def hadoop_url(url: str, options: Mapping[str, Any]) -> str:
    """A URL as Hadoop spells it: `s3a://…`, `gs://…`, `abfss://container@server/…`."""
    kind = kind_of(url)
    _, _, location = url.partition("://")
    if kind == AZURE:
        return _abfs_url(url, options)
    protocol = {S3: "s3a", GOOGLE: "gs"}.get(kind)
    return f"{protocol}://{location}" if protocol else url


def _abfs_url(url: str, options: Mapping[str, Any]) -> str:
    """A URL with the account's host, and without TLS if the endpoint has none."""
    from singer_spark.store.azure_bucket import AzureAccount, container_and_host

    account = AzureAccount.of(url, options)
    container, _ = container_and_host(url)
    _, _, path = url.partition("://")[2].partition("/")
    endpoint = urlsplit(account.endpoint)
    # The connector uses the Data Lake endpoint, which every account has.
    host = f"{account.name}.dfs.core.windows.net"
    if endpoint.netloc and not account.emulated:
        host = endpoint.netloc.replace(".blob.", ".dfs.")
    return f"{'abfs' if endpoint.scheme == 'http' else 'abfss'}://{container}@{host}/{path}".rstrip(
        "/"
    )


class Storage:
    """The location of a lake, with the few operations that a commit needs.

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
        """Nothing is read or created yet.

        Args:
            url: Directory or URL (`./lake`, `file:///lake`, `s3://bucket/prefix`).
            options: fsspec's storage options for that store; the same values configure Spark.
            accept_unconditional: If there is no reliable conditional put, look and then write: two
                concurrent runs may both win.
            files: Other operations below the same URL (tests inject faults by them).

        Raises:
            ConfigurationError: the URL's kind or an option is unknown, or a package for it is
                missing.
        """
        self.options = dict(options or {})
        register_secrets(self.options)
        folder = _local_folder(url)
        self.url = folder.as_posix() if folder else url.rstrip("/")
        self.local = folder is not None
        self.kind = "" if self.local else kind_of(self.url)
        self.accept_unconditional = accept_unconditional
        if files is None and folder is not None:
            files = LocalFiles(folder, SCRATCH)
        elif files is None:
            bucket, root = open_bucket(self.url, self.options)
            files = ObjectFiles(
                bucket, root, url.partition("://")[0], conditional=not accept_unconditional
            )
        self.files = files

    def __reduce__(self) -> tuple[Any, ...]:
        """Opened again where it is sent to."""
        opened = partial(Storage, accept_unconditional=self.accept_unconditional)
        return opened, (self.url, self.options)

    def read(self, path: str) -> bytes | None:
        """The content, or None if there is none."""
        with self._errors("read", path), missing_is_fine():
            return self.files.read(path)
        return None

    def create(self, path: str, data: bytes) -> bool:
        """Create an object with all of its content, unless there is one.

        Returns:
            True if it now has exactly these bytes (even if an earlier answer was lost, so make them
            unique to their writer); False if another one was there first.
        """
        with self._errors("create", path):
            try:
                self.files.create(path, data)
            except FileExistsError:
                return self.read(path) == data
            return True

    def replace(self, path: str, data: bytes) -> None:
        """Write an object; readers see the old content or the new."""
        with self._errors("write", path):
            self.files.replace(path, data)

    def exchange(self, path: str, seen: bytes | None, data: bytes) -> bool:
        """Replace exactly the content that was `seen`, None for a missing object.

        Returns:
            True if it now holds `data` (even if an earlier answer was lost); False if something
            else was written meanwhile.
        """
        if seen == data:
            return True
        with self._errors("write", path):
            try:
                self.files.exchange(path, seen, data)
            except FileExistsError:
                return self.read(path) == data
            return True

    def check_conditions(self, path: str, other: bytes) -> None:
        """Check that the store refuses to replace an object on a condition that does not hold.

        Args:
            path: An existing object.
            other: Different content. An untrustworthy store holds it afterwards.

        Raises:
            StorageError: the store wrote it all the same, so it can't decide between two runs.
        """
        if self.accept_unconditional and not self.local:
            logger.warning(
                "The storage's conditional puts are not relied on: never start two runs at once."
            )
            return
        with self._errors("check", path):
            ignored = self.files.ignored_conditions(path, other)
        if ignored:
            raise StorageError(
                RunCode.STORE_OVERWRITES,
                f"{self.url} overwrites an object in spite of {' and '.join(ignored)}: two runs "
                f"could both win there; {CONDITIONAL_WAY_OUT}",
            )

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """A file, opened for reading; only what is read is transferred.

        The caller's own errors pass unchanged.
        """
        with self._errors("read", path):
            file = self.files.open(path)
        with file:
            try:
                yield cast("BinaryIO", file)
            except OSError:
                with self._errors("read", path):
                    raise

    def open_writer(self, path: str) -> IO[bytes]:
        """A new file that nothing else writes to, opened for writing.

        In a bucket it appears once it is closed.
        """
        with self._errors("write", path):
            return self.files.open_writer(path)

    def upload(self, source: Path, path: str) -> None:
        """Copy a file of this machine to a path that nothing else writes to: completely or not at
        all, in pieces.
        """
        with self._errors("write", path):
            try:
                self.files.upload(source, path)
            except OSError as error:
                if error_code(error) not in ENDED_CODES or self.size(path) != source.stat().st_size:
                    raise

    def extend(self, source: str, tail: bytes, target: str) -> None:
        """Copy a file with bytes appended to a path that nothing else writes to, inside the store
        if it can.
        """
        with self._errors("write", target):
            try:
                self.files.extend(source, tail, target)
            except OSError as error:
                if error_code(error) not in ENDED_CODES:
                    raise
                if self.size(target) != (self.size(source) or 0) + len(tail):
                    raise

    def move(self, source: str, target: str) -> None:
        """Move a file without reading it; if only the target exists, it is done already."""
        with self._errors("move", f"{source} to {target}"):
            try:
                self.files.move(source, target)
            except FileNotFoundError:
                if self.size(target) is None:
                    raise

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is fine."""
        with self._errors("delete", path):
            self.files.delete(path)

    def delete_all(self, prefix: str) -> None:
        """Remove a folder with everything below it; a missing one is fine."""
        with self._errors("delete", prefix):
            self.files.delete_all(prefix)

    def remove_empty(self, folders: Iterable[str]) -> None:
        """Remove those of the folders that contain no file and no other folder.

        Never removes a file.
        """
        with self._errors("remove empty folders of", ""):
            self.files.remove_empty(folders)

    def list(self, prefix: str) -> list[FileInfo]:
        """All files below a folder, sorted by path; none for a missing one."""
        with self._errors("list", prefix):
            return sorted(self.files.list(prefix), key=lambda file: file.path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or object."""
        return self.size(path) is not None

    def size(self, path: str) -> int | None:
        """Its size in bytes, None if it is missing."""
        with self._errors("find the size of", path), missing_is_fine():
            return self.files.size(path)
        return None

    def flush(self, paths: Iterable[str]) -> None:
        """Make files and their folders survive a power cut (object stores do so by themselves)."""
        with self._errors("flush files in", ""):
            self.files.flush(paths)

    def flush_folders(self, paths: Iterable[str]) -> None:
        """Make the removal of files survive a power cut."""
        with self._errors("flush folders in", ""):
            self.files.flush_folders(paths)

    def sweep(self) -> None:
        """Remove half-done writes of dead processes; a living one writes again."""
        with self._errors("clean", SCRATCH):
            self.files.sweep()

    def url_for_spark(self, path: str) -> str:
        """The URL under which a Spark session reads a path: `file:///…`, `s3a://…`."""
        location = f"{self.url}/{path}".rstrip("/")
        return f"file://{location}" if self.local else hadoop_url(location, self.options)

    def delta_options(self) -> dict[str, str]:
        """delta-rs options equivalent to the storage options; they contain secrets."""
        return {} if self.local else delta_options(self.url, self.options)

    def delta_url(self, path: str) -> str:
        """The URL under which delta-rs reaches a path."""
        return f"{self.url}/{path}" if self.local else delta_url(f"{self.url}/{path}")

    def _errors(self, verb: str, path: str) -> AbstractContextManager[None]:
        return storage_errors(verb, f"{self.url}/{path}".rstrip("/"))


def open_url(url: str, options: Mapping[str, Any] | None = None) -> tuple[Storage, str]:
    """The storage around a single file, and the file's path in it.

    For a file in a lake's own folder, the storage's root is the folder that contains `.dataspoc`.
    """
    marker = "/.dataspoc/"
    location = _local_folder(url)
    text = location.as_posix() if location else url
    above, found, below = text.rpartition(marker)
    if found:
        return Storage(above or "/", options), marker[1:] + below
    above, _, name = text.rpartition("/")
    return Storage(above or "/", options), name


def _local_folder(url: str) -> Path | None:
    """The absolute folder of a path or `file:` URL; None for another kind of URL."""
    if not url:
        raise ConfigurationError(
            RunCode.BAD_BUCKET,
            "the bucket is empty: give a directory or a URL (./lake, s3://bucket/prefix)",
        )
    if "://" not in url and not url.startswith("file:"):
        return Path(url).expanduser().absolute()
    protocol, _, rest = url.partition(":")
    if protocol not in ("file", "local"):
        return None
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest).absolute()


def each(storage: Storage, action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Run the action for all items: one after another on a disk, in parallel in a bucket.

    The results are in the order of the items; if several fail, the error of the first one is
    raised.
    """
    if storage.local:
        return [action(item) for item in items]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return list(pool.map(action, items))
