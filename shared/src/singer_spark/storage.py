"""Small objects and file moves on a local disk or any bucket that fsspec knows.

Paths are relative to the storage's root, in POSIX spelling, without a leading slash.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, SingerSparkError, StorageError, register_secret
from singer_spark.files import FileInfo
from singer_spark.local_files import LocalFiles
from singer_spark.object_files import ObjectFiles, error_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from singer_spark.files import Files

__all__ = ["FileInfo", "Storage", "open_url"]

SCRATCH = ".dataspoc/staging/tmp"
SECRET_OPTIONS = ("secret", "token", "password", "account_key", "sas_token", "connection_string")


class Storage:
    """Where a lake lies, with the few operations that a commit needs.

    All methods raise StorageError with the path, the cause and what to do.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, *, files: Files | None = None) -> None:
        """Knows the place; nothing is read or made yet.

        Args:
            url: Directory or URL (`./lake`, `file:///lake`, `s3://bucket/prefix`).
            options: fsspec's storage options; the same values configure Spark's S3A.
            files: Other operations below the same URL (tests put faults there).

        Raises:
            ConfigurationError: the URL's kind is unknown, or its fsspec package is missing.
        """
        self.options = dict(options or {})
        for name in SECRET_OPTIONS:
            register_secret(str(self.options.get(name) or ""))
        folder = _local_folder(url)
        self.url = folder.as_posix() if folder else url.rstrip("/")
        self.local = folder is not None
        self.files: Files = files or (LocalFiles(folder, SCRATCH) if folder else _objects(self.url, self.options))

    def read(self, path: str) -> bytes | None:
        """The content, or None where nothing is."""
        with self._told("read", path):
            try:
                return self.files.read(path)
            except FileNotFoundError as error:
                if error_code(error) == "NoSuchBucket":
                    raise
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

    def list(self, prefix: str) -> list[FileInfo]:
        """All files below a folder, sorted by path; none for a missing one."""
        with self._told("list", prefix):
            return sorted(self.files.list(prefix), key=lambda file: file.path)

    def exists(self, path: str) -> bool:
        """Whether a file or object stands there."""
        return self.size(path) is not None

    def size(self, path: str) -> int | None:
        """Its size in bytes, None where nothing is."""
        with self._told("look at", path):
            try:
                return self.files.size(path)
            except FileNotFoundError as error:
                if error_code(error) == "NoSuchBucket":
                    raise
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
        if self.local:
            return f"file://{place}"
        protocol, _, rest = place.partition("://")
        return f"{'s3a' if protocol == 's3' else protocol}://{rest}"

    def hadoop_conf(self) -> dict[str, str]:
        """Hadoop's settings (`fs.s3a.…`) that say the same as the storage options; they hold secrets."""
        return {} if self.local or not self.url.startswith("s3") else _s3a_conf(self.options)

    @contextmanager
    def _told(self, verb: str, path: str) -> Iterator[None]:
        """Turns any failure inside into one StorageError that names the place."""
        try:
            yield
        except SingerSparkError:
            raise
        except Exception as error:
            place = f"{self.url}/{path}".rstrip("/")
            raise StorageError(f"can't {verb} {place}: {_reason(error)}; {_way_out(error)}") from error


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


def _objects(url: str, options: Mapping[str, Any]) -> ObjectFiles:
    import fsspec

    protocol = url.partition("://")[0]
    # A cached listing or a cached instance could answer with what another process changed long ago.
    fresh = {"use_listings_cache": False, "skip_instance_cache": True}
    try:
        filesystem, root = fsspec.core.url_to_fs(url, **{**fresh, **options})
    except ImportError as error:
        raise ConfigurationError(f"{protocol}:// needs a package that is not installed: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{protocol}:// can't be used here: {error}") from error
    return ObjectFiles(filesystem, root)


def _s3a_conf(options: Mapping[str, Any]) -> dict[str, str]:
    client = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    region = options.get("region") or client.get("region_name")
    names = {"key": "access.key", "secret": "secret.key", "token": "session.token"}
    conf = {f"fs.s3a.{names[name]}": str(options[name]) for name in names if options.get(name)}
    if endpoint:
        conf["fs.s3a.endpoint"] = str(endpoint)
        conf["fs.s3a.path.style.access"] = "true"
        conf["fs.s3a.connection.ssl.enabled"] = str(not str(endpoint).startswith("http://")).lower()
    if region or endpoint:
        conf["fs.s3a.endpoint.region"] = str(region or "us-east-1")
    provider = "org.apache.hadoop.fs.s3a."
    if options.get("anon"):
        conf["fs.s3a.aws.credentials.provider"] = f"{provider}AnonymousAWSCredentialsProvider"
    elif options.get("token"):
        conf["fs.s3a.aws.credentials.provider"] = f"{provider}TemporaryAWSCredentialsProvider"
    elif options.get("key"):
        conf["fs.s3a.aws.credentials.provider"] = f"{provider}SimpleAWSCredentialsProvider"
    return conf


def _reason(error: Exception) -> str:
    """The cause without our own module's words: the system's text, or the store's."""
    if isinstance(error, OSError) and error.strerror and not error_code(error):
        return error.strerror
    return f"{type(error).__name__}: {error}"


def _way_out(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "free some space and run again"
    if isinstance(error, PermissionError) or number == errno.EROFS:
        return "check that this user, or storage_options' key, may read and write there"
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        return "give key and secret in storage_options or in the environment"
    if error_code(error) == "NoSuchBucket":
        return "make the bucket first, or correct its name"
    if isinstance(error, NotADirectoryError | IsADirectoryError):
        return "a file stands where a folder should be, or the reverse: correct the path"
    return "check the bucket's URL and storage_options and run again"
