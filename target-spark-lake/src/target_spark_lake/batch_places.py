"""Where the files of BATCH messages lie: in the bucket or out of it, and whether they are there to be taken."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from singer_spark.errors import ProtocolError, SingerSparkError, StorageError
from singer_spark.storage import Storage
from target_spark_lake.layout import LAKE_FOLDER

if TYPE_CHECKING:
    from target_spark_lake.batch_message import BatchFile

BATCHES = f"{LAKE_FOLDER}/staging/batches"
# What our tap names the folder of one run's batches; a prefix may stand before it.
_BATCH_RUN = re.compile(r".*\d{8}T\d{12}Z-[0-9a-f]{8}")
_ALIASES = {"s3a": "s3"}


@dataclass(frozen=True)
class BatchPlace:
    """A file of a manifest, found.

    Attributes:
        storage: What it lies in.
        path: Relative to that.
        size: Its bytes.
        in_bucket: Whether that is the lake's own bucket.
        is_ours: Whether it was written for this lake to take; a file of somebody else's is only read.
    """

    storage: Storage
    path: str
    size: int
    in_bucket: bool
    is_ours: bool

    @property
    def batch_run(self) -> str | None:
        """The folder of all batches of one run of the tap, where its name says that it is one."""
        return batch_run_folder(self.path)


def batch_run_folder(path: str) -> str | None:
    """The folder of one run of our tap that a file lies in: `…/<run>/<stream>/<slice>/<file>`; None for any other."""
    folder, _, _ = path.rpartition("/")
    run = folder.rsplit("/", 2)[0] if folder.count("/") >= 2 else ""
    return run if _BATCH_RUN.fullmatch(run.rpartition("/")[2]) else None


class BatchPlaces:
    """Finds the files of manifests; each may be named once in a run."""

    def __init__(self, bucket: Storage, options: Mapping[str, Any]) -> None:
        """Looks at nothing yet.

        Args:
            bucket: The lake's.
            options: fsspec's storage options, for what lies outside of it too.
        """
        self._bucket = bucket
        self._options = dict(options)
        self._disk = Storage("/")
        self._named: set[tuple[str, str]] = set()
        self._others: dict[str, Storage] = {}
        # Files of a manifest are looked for by several threads.
        self._lock = threading.Lock()

    def find(self, stream: str, file: BatchFile) -> BatchPlace:
        """Looks for a file.

        Raises:
            ProtocolError: it was named before in this run, or is not of the size that the tap says.
            StorageError: it is missing, or can't be reached.
        """
        for storage, path in self._candidates(stream, file.url):
            size = _size(storage, path, stream, file.url)
            if size is not None:
                self._name(storage, path, stream, file.url)
                if file.bytes not in (None, size):
                    raise ProtocolError(
                        f"stream {stream}: batch file {file.url} has {size} bytes, the tap wrote {file.bytes}: it is "
                        "not whole; nothing was published, run the tap again"
                    )
                inside = storage is self._bucket
                ours = (inside and path.startswith(f"{BATCHES}/")) or batch_run_folder(path) is not None
                return BatchPlace(storage, path, size, inside, ours)
        raise StorageError(
            f"stream {stream}: batch file {file.url} is missing (a run takes the files that it loads, so none comes "
            "twice); nothing was published, run the tap again"
        )

    def _name(self, storage: Storage, path: str, stream: str, url: str) -> None:
        with self._lock:
            is_new = (storage.url, path) not in self._named
            self._named.add((storage.url, path))
        if not is_new:
            raise ProtocolError(
                f"stream {stream}: batch file {url} was named before in this run, its records would come twice; "
                "nothing was published"
            )

    def _candidates(self, stream: str, url: str) -> list[tuple[Storage, str]]:
        """What a URL may mean; of a `file:` URL nobody knows whether its percent signs are escapes."""
        protocol, found, rest = url.partition("://")
        protocol = _ALIASES.get(protocol, protocol)
        if not found and not url.startswith("file:"):
            return [self._on_disk(Path(url))]
        if protocol in ("file", "local") or not found:
            text = (rest if found else url.removeprefix("file:")).removeprefix("localhost/")
            spellings = dict.fromkeys((text, unquote(text)))
            return [self._on_disk(Path("/" + each.lstrip("/"))) for each in spellings]
        own, _, below = self._bucket.url.partition("://")
        if not self._bucket.local and _ALIASES.get(own, own) == protocol and rest.startswith(f"{below}/"):
            return [(self._bucket, rest[len(below) + 1 :])]
        root, _, path = rest.partition("/")
        return [(self._other(f"{protocol}://{root}", stream, url), path)]

    def _on_disk(self, path: Path) -> tuple[Storage, str]:
        # Links resolved on both sides: the SDK's taps do so, too.
        whole = path.expanduser().resolve()
        if self._bucket.local:
            bucket = Path(self._bucket.url).resolve()
            if whole.is_relative_to(bucket):
                return self._bucket, whole.relative_to(bucket).as_posix()
        return self._disk, whole.as_posix().lstrip("/")

    def _other(self, root: str, stream: str, url: str) -> Storage:
        with self._lock:
            if root not in self._others:
                try:
                    self._others[root] = Storage(root, self._options)
                except Exception as error:
                    raise _unreachable(stream, url, error) from error
            return self._others[root]


def _size(storage: Storage, path: str, stream: str, url: str) -> int | None:
    try:
        return storage.size(path)
    except SingerSparkError as error:
        raise _unreachable(stream, url, error) from error


def _unreachable(stream: str, url: str, error: Exception) -> StorageError:
    cause = " ".join(str(error).split())
    return StorageError(
        f"stream {stream}: batch file {url} can't be reached with the target's storage_options: {cause}; give tap and "
        "target the same ones, or let the tap write below the bucket"
    )
