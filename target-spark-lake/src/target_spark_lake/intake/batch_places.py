"""Locates the files of BATCH messages, in the bucket or outside, and decides whether they may be
removed.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.errors import ProtocolError, SingerSparkError, StorageError
from singer_spark.state.run_log import BATCHES
from target_spark_lake.config.batch_address import shown
from target_spark_lake.intake.batch_roots import BatchRoots

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage
    from target_spark_lake.intake.batch_message import BatchFile

_RUN = r"[^/]*\d{8}T\d{12}Z-[0-9a-f]{8}"
# How our tap names the folder of one run's batches (possibly below a prefix), and the files in it.
_BATCH_RUN = re.compile(rf"((?:.*?/)?{_RUN})/.*")
_BATCH_FILE = re.compile(rf"(?:.*/)?{_RUN}/[^/]+/\d{{6}}/part-[^/]+")


@dataclass(frozen=True)
class BatchPlace:
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


class BatchPlaces:
    """Locates the files of manifests; each may be named once per run."""

    def __init__(self, roots: BatchRoots, bucket: Storage) -> None:
        self._roots = roots
        self._bucket = bucket
        self._named: set[tuple[str, str]] = set()
        # Several threads look for the files of a manifest.
        self._lock = threading.Lock()

    def find(self, stream: str, file: BatchFile) -> BatchPlace:
        """Locate a file.

        Raises:
            ProtocolError: naming it is not allowed, it was named before in this run, or its size is
                not the tap's.
            StorageError: it is missing, or can't be reached.
        """
        try:
            places, refusal = self._roots.places(stream, file.url)
        except ProtocolError:
            raise
        except Exception as error:
            raise _unreachable(stream, file.url, error) from error
        for storage, path in places:
            size = _size(storage, path, stream, file.url)
            if size is not None:
                self._name(storage, path, stream, file.url)
                if file.bytes not in (None, size):
                    raise ProtocolError(
                        f"stream {stream}: batch file {file.shown} has {size} bytes, the tap wrote "
                        f"{file.bytes}: it is "
                        "not whole; nothing was published, run the tap again"
                    )
                inside = storage is self._bucket
                ours = (inside and path.startswith(f"{BATCHES}/")) or _BATCH_FILE.fullmatch(
                    path
                ) is not None
                return BatchPlace(storage, path, size, inside, ours)
        raise refusal or StorageError(
            f"stream {stream}: batch file {file.shown} is missing (a run takes the files that it "
            "loads, so none "
            "comes twice); nothing was published, run the tap again"
        )

    def _name(self, storage: Storage, path: str, stream: str, url: str) -> None:
        with self._lock:
            is_new = (storage.url, path) not in self._named
            self._named.add((storage.url, path))
        if not is_new:
            raise ProtocolError(
                f"stream {stream}: batch file {shown(url)} was named before in this run, its "
                "records would come twice; "
                "nothing was published"
            )


def _size(storage: Storage, path: str, stream: str, url: str) -> int | None:
    try:
        size = storage.size(path)
    except SingerSparkError as error:
        raise _unreachable(stream, url, error) from error
    if size is not None and storage.local and not Path(storage.url, path).is_file():
        raise ProtocolError(
            f"stream {stream}: batch file {shown(url)} is not a plain file; nothing was published"
        )
    return size


def _unreachable(stream: str, url: str, error: Exception) -> StorageError:
    cause = " ".join(str(error).split())
    return StorageError(
        f"stream {stream}: batch file {shown(url)} can't be reached with the target's "
        f"storage_options: {cause}; give "
        "tap and target the same ones, or let the tap write below the bucket"
    )
