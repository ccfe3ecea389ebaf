"""Locates the files of BATCH messages, in the bucket or outside, and decides whether they may be
removed.

Files that no run took are removed a day after their tap wrote the last of them. A run moves or
reads a file as soon as a message names it, so no checkpoint or living run needs the files that are
still here. They belong to a living tap, unless nothing new has come from it for a day.
"""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.errors import ProtocolError, SingerSparkError, StorageError
from singer_spark.state.run_log import BATCHES
from singer_spark.store.storage import each
from target_spark_lake.config.batch_address import shown
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.batch_roots import BatchRoots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.intake.batch_message import BatchFile
    from target_spark_lake.layout import Layout


_RUN = r"[^/]*\d{8}T\d{12}Z-[0-9a-f]{8}"
# How our tap names the folder of one run's batches (possibly below a prefix), and the files in it.
_BATCH_RUN = re.compile(rf"((?:.*?/)?{_RUN})/.*")
_BATCH_FILE = re.compile(rf"(?:.*/)?{_RUN}/[^/]+/\d{{6}}/part-[^/]+")


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
                        f"stream {stream}: batch file {file.shown} has {size} bytes, the tap wrote "
                        f"{file.bytes}: it is "
                        "not whole; nothing was published, run the tap again",
                    )
                inside = storage is self._bucket
                ours = (inside and path.startswith(f"{BATCHES}/")) or _BATCH_FILE.fullmatch(
                    path
                ) is not None
                return BatchLocation(storage, path, size, inside, ours)
        raise refusal or StorageError(
            LakeCode.BATCH_FILE_MISSING,
            f"stream {stream}: batch file {file.shown} is missing (a run takes the files that it "
            "loads, so none comes twice); nothing was published, run the tap again",
        )

    def _name(self, storage: Storage, path: str, stream: str, url: str) -> None:
        with self._lock:
            is_new = (storage.url, path) not in self._named
            self._named.add((storage.url, path))
        if not is_new:
            raise ProtocolError(
                LakeCode.BATCH_FILE_MISSING,
                f"stream {stream}: batch file {shown(url)} was named before in this run, its "
                "records would come twice; nothing was published",
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


logger = logging.getLogger("target-spark-lake")

KEPT_SECONDS = 24 * 60 * 60


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
    return max(
        (file.modified for file in storage.list(layout.locks) if file.modified is not None),
        default=None,
    )


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
