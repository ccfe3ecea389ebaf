"""BATCH messages, as singer-sdk defines them, with the additions of our own tap, and their files:
located in the bucket or outside, and removed if they may be.

Files that no run took are removed a day after their tap wrote the last of them. A run moves or
reads a file as soon as a message names it, so no checkpoint or living run needs the files that are
still here. They belong to a living tap, unless nothing new has come from it for a day.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ProtocolError, SingerSparkError, StorageError
from singer_spark.state.run_log import BATCHES
from singer_spark.store.storage import Storage, each
from target_spark_lake.config.batch_roots import BatchRoots, shown
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from singer_spark.store.bucket import FileInfo
    from target_spark_lake.layout import Layout

JSONL, PARQUET = "jsonl", "parquet"
# A Parquet file itself records its compression; for JSON lines the first bytes show it.
COMPRESSIONS = {
    JSONL: ("gzip", "none"),
    PARQUET: ("zstd", "snappy", "gzip", "lz4", "brotli", "none"),
}
_RUN = r"[^/]*\d{8}T\d{12}Z-[0-9a-f]{8}"
# How our tap names the folder of one run's batches (possibly below a prefix), and the files in it.
_BATCH_RUN = re.compile(rf"((?:.*?/)?{_RUN})/.*")
_BATCH_FILE = re.compile(rf"(?:.*/)?{_RUN}/[^/]+/\d{{6}}/part-[^/]+")
logger = logging.getLogger("target-spark-lake")
KEPT_SECONDS = 24 * 60 * 60


@dataclass(frozen=True)
class BatchFile:
    """A file of a manifest, its URL as spelled there.

    Rows and bytes are None if the tap does not give them.
    """

    url: str
    rows: int | None = None
    bytes: int | None = None

    @cached_property
    def shown(self) -> str:
        """The URL for messages to users, without possible secrets."""
        return shown(self.url)

    def check_rows(self, stream: str, rows: int) -> None:
        """Refuse the file if its number of records differs from the tap's.

        Raises:
            ProtocolError: the counts differ.
        """
        if self.rows not in (None, rows):
            raise ProtocolError(
                LakeCode.BATCH_FILE_DAMAGED,
                f"stream {stream}: batch file {self.shown} holds {rows} records, but the tap "
                f"wrote {self.rows}; nothing was published. Run the tap again",
            )


@dataclass(frozen=True)
class BatchMessage:
    """One BATCH message.

    Attributes:
        format: `jsonl` or `parquet`.
        files: The files, in the order of the records.
        time_extracted: When the records were read, as in RECORD lines; None if the tap does not
            give it.
        version: Table version of the records; None if the tap does not give it.
    """

    stream: str
    format: str
    files: tuple[BatchFile, ...]
    time_extracted: str | None = None
    version: int | None = None

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> BatchMessage:
        """Read a BATCH message.

        Raises:
            ProtocolError: it is malformed, or its encoding is unknown.
        """
        stream = message.get("stream")
        if not isinstance(stream, str) or not stream:
            raise ProtocolError(LakeCode.BATCH_MESSAGE, "a BATCH message has no stream")
        extracted, version = message.get("time_extracted"), message.get("version")
        return cls(
            stream,
            _format(stream, message.get("encoding")),
            _files(stream, message.get("manifest"), message.get("files")),
            extracted if isinstance(extracted, str) else None,
            version if isinstance(version, int) and not isinstance(version, bool) else None,
        )


def _format(stream: str, encoding: object) -> str:
    details: Mapping[str, Any] = encoding if isinstance(encoding, Mapping) else {}
    name, compression = details.get("format"), details.get("compression")
    if not isinstance(name, str) or name not in COMPRESSIONS:
        raise _malformed(
            stream,
            f"a BATCH message has the format {name!r}; known are {', '.join(COMPRESSIONS)}: set "
            "batch_config of the tap (encoding, format) to one of them",
        )
    if compression not in (None, "", *COMPRESSIONS[name]):
        known = ", ".join(COMPRESSIONS[name])
        raise _malformed(
            stream,
            f"a BATCH message of format {name} has the compression {compression!r}; known are "
            f"{known}: set batch_config of the tap (encoding, compression) to one of them",
        )
    return name


def _files(stream: str, manifest: object, entries: object) -> tuple[BatchFile, ...]:
    if not isinstance(manifest, list) or not all(isinstance(url, str) and url for url in manifest):
        raise _malformed(stream, "the manifest of a BATCH message is not a list of URLs")
    if entries is None:
        return tuple(BatchFile(url) for url in manifest)
    if not isinstance(entries, list) or len(entries) != len(manifest):
        raise _malformed(
            stream,
            f"the list of files in a BATCH message does not match its manifest of {len(manifest)}",
        )
    return tuple(
        BatchFile(url, _count(stream, url, each, "rows"), _count(stream, url, each, "bytes"))
        for url, each in zip(manifest, entries, strict=True)
    )


def _count(stream: str, url: str, entry: object, name: str) -> int | None:
    count = entry.get(name) if isinstance(entry, Mapping) else None
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
        raise _malformed(
            stream, f"a BATCH message gives {name} {count!r} for {shown(url)}, which is not a count"
        )
    return count


def _malformed(stream: str, problem: str) -> ProtocolError:
    return ProtocolError(LakeCode.BATCH_MESSAGE, f"stream {stream}: {problem}")


@dataclass(frozen=True)
class BatchLocation:
    """A file of a manifest, located.

    Attributes:
        storage: The storage it is in.
        path: Its path there.
        size: Its size in bytes.
        in_bucket: Whether that storage is the lake's own bucket.
        is_ours: Whether it was written for this lake to consume; other files are only read.
    """

    storage: Storage
    path: str
    size: int
    in_bucket: bool
    is_ours: bool


def batch_run_folder(path: str) -> str | None:
    """The folder of one run of our tap that contains a file, at any depth; None for other files."""
    found = _BATCH_RUN.fullmatch(path)
    return found[1] if found else None


class BatchLocations:
    """Locates the files of manifests; each may be named once per run."""

    def __init__(self, roots: BatchRoots, bucket: Storage) -> None:
        self._roots = roots
        self._bucket = bucket
        self._named: set[tuple[str, str]] = set()
        # Several threads look for the files of a manifest.
        self._lock = threading.Lock()

    def find(self, stream: str, file: BatchFile) -> BatchLocation:
        """Locate a file.

        Raises:
            ProtocolError: naming it is not allowed, it was named before in this run, or its size is
                not the tap's.
            StorageError: it is missing, or can't be reached.
        """
        try:
            locations, refusal = self._roots.locations(stream, file.url)
        except ProtocolError:
            raise
        except Exception as error:
            raise _unreachable(stream, file.url, error) from error
        for storage, path in locations:
            size = _size(storage, path, stream, file.url)
            if size is not None:
                self._name(storage, path, stream, file.url)
                if file.bytes not in (None, size):
                    raise ProtocolError(
                        LakeCode.BATCH_FILE_DAMAGED,
                        f"stream {stream}: batch file {file.shown} has {size} bytes, but the tap "
                        f"wrote {file.bytes}: it is incomplete; nothing was published. Run the tap "
                        "again",
                    )
                inside = storage is self._bucket
                ours = (inside and path.startswith(f"{BATCHES}/")) or _BATCH_FILE.fullmatch(
                    path
                ) is not None
                return BatchLocation(storage, path, size, inside, ours)
        raise refusal or StorageError(
            LakeCode.BATCH_FILE_MISSING,
            f"stream {stream}: batch file {file.shown} is missing (a run removes the files that it "
            "loads, so that none is loaded twice); nothing was published. Run the tap again",
        )

    def _name(self, storage: Storage, path: str, stream: str, url: str) -> None:
        with self._lock:
            is_new = (storage.url, path) not in self._named
            self._named.add((storage.url, path))
        if not is_new:
            raise ProtocolError(
                LakeCode.BATCH_FILE_MISSING,
                f"stream {stream}: batch file {shown(url)} was named before in this run, so "
                "its records would be loaded twice; nothing was published",
            )


def _size(storage: Storage, path: str, stream: str, url: str) -> int | None:
    try:
        size = storage.size(path)
    except SingerSparkError as error:
        raise _unreachable(stream, url, error) from error
    if size is not None and storage.local and not Path(storage.url, path).is_file():
        raise ProtocolError(
            LakeCode.BATCH_FILE_MISSING,
            f"stream {stream}: batch file {shown(url)} is not a plain file; nothing was published",
        )
    return size


def _unreachable(stream: str, url: str, error: Exception) -> StorageError:
    cause = " ".join(str(error).split())
    return StorageError(
        LakeCode.BATCH_FILE_MISSING,
        f"stream {stream}: batch file {shown(url)} can't be reached with the target's "
        f"storage_options: {cause}; give "
        "tap and target the same ones, or let the tap write below the bucket",
    )


def sweep_batches(storage: Storage, layout: Layout) -> None:
    """Remove forgotten batch files."""
    for path, files in forgotten_batches(storage, layout).items():
        logger.info("%s: %d batch file(s) that no run took are removed", path, len(files))
        remove_batch_files(storage, [file.path for file in files])


def forgotten_batches(
    storage: Storage, layout: Layout, now: float | None = None
) -> dict[str, list[FileInfo]]:
    """Files forgotten by `now`, by the folder of their batch run.

    Without `now`, ages are measured by the storage's clock, which the pipeline's holder has just
    read with a heartbeat.
    """
    found = storage.list(BATCHES)
    if found and now is None:
        now = storage_time(storage, layout)
    if now is None:
        return {}
    groups: dict[str, list[FileInfo]] = {}
    for file in found:
        groups.setdefault(batch_run_folder(file.path) or file.path, []).append(file)
    # If a storage gives no times, nothing is removed.
    return {
        path: files
        for path, files in groups.items()
        if all(file.modified is not None and now - file.modified > KEPT_SECONDS for file in files)
    }


def storage_time(storage: Storage, layout: Layout) -> float | None:
    """Time of the last heartbeat of a pipeline holder by the storage's clock; None if the storage
    gives no times.
    """
    times = (file.modified for file in storage.list(layout.locks))
    return max((each for each in times if each is not None), default=None)


def remove_batch_files(storage: Storage, paths: Iterable[str]) -> None:
    """Remove these files and the folders of their batch run that become empty."""
    files, folders = set(paths), set()
    for path in list(files):
        folder, _, name = path.rpartition("/")
        if storage.local:
            files.add(f"{folder}/.{name}.crc")  # Hadoop writes one beside each file on a disk
        run = batch_run_folder(path)
        while run is not None and folder.startswith(run):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    each(storage, storage.delete, sorted(files))
    storage.remove_empty(folders)
