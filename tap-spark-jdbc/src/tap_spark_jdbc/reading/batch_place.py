"""Where the batch files of a run lie, and how messages name them (plain Python)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.state.run_log import folder_name, new_run_id
from singer_spark.storage.parquet_footer import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from singer_spark.storage.files import FileInfo
    from singer_spark.storage.storage import Storage
    from tap_spark_jdbc.config.batch_settings import BatchSettings


@dataclass(frozen=True)
class BatchFile:
    """A whole file.

    Attributes:
        url: As messages name it; local ones as `file:///…`, nothing in it encoded, as fsspec reads it.
        rows: That it holds.
        size: In bytes.
        folder: The one that it is alone in, relative to the root.
    """

    url: str
    rows: int
    size: int
    folder: str


class BatchPlace:
    """The folder of one run's batch files, and in it one for each slice of each stream."""

    def __init__(self, settings: BatchSettings, storage: Storage, *, metadata: bool = True) -> None:
        """Makes nothing yet; the run starts now.

        Args:
            settings: What the user says of batches.
            storage: At their root.
            metadata: Whether the files get metadata columns, where their format has columns.

        Raises:
            ConfigurationError: the prefix leads out of the root.
        """
        self.settings = settings
        self.storage = storage
        self.started = datetime.now(UTC)
        self.metadata = metadata and settings.format == "parquet"
        self.folder = f"{settings.prefix.lstrip('/')}{new_run_id(self.started)}"
        if {".", "..", ""} & set(self.folder.split("/")):
            raise ConfigurationError(
                f"batch_config.storage.prefix: {settings.prefix!r} must not have '.', '..' or '//' in it"
            )
        self._named = False
        self._counts: Counter[str] = Counter()
        self._open: set[str] = set()
        self._lock = Lock()

    def new_folder(self, stream: str) -> str:
        """The folder of one attempt to write a slice, relative to the root; no other attempt has it."""
        with self._lock:
            folder = f"{self.folder}/{folder_name(stream)}/{self._counts[stream]:06d}"
            self._counts[stream] += 1
            self._open.add(folder)
        return folder

    def told_as(self, folder: str) -> str:
        """A folder, for people."""
        return f"{self.storage.url}/{folder}"

    def url_for_spark(self, folder: str) -> str:
        """The URL by which Spark writes to a folder."""
        return self.storage.url_for_spark(folder)

    def file(self, folder: str, rows: int) -> BatchFile:
        """The one file of a folder that was written.

        Raises:
            StorageError: it is not there, or not alone.
        """
        found = self._only(folder)
        place = f"{self.storage.url}/{found.path}"
        return BatchFile(f"file://{place}" if self.storage.local else place, rows, found.size, folder)

    def rows(self, folder: str) -> int:
        """The rows of the one Parquet file of a folder that was written.

        Raises:
            StorageError: it is not there, not alone, or not whole.
        """
        return rows_of(self.storage, self._only(folder).path)

    def _only(self, folder: str) -> FileInfo:
        found = [each for each in self.storage.list(folder) if each.path.rpartition("/")[2].startswith("part-")]
        if len(found) != 1:
            raise StorageError(
                f"{len(found)} files where one was written to, {self.storage.url}/{folder}; run it again"
            )
        return found[0]

    def name(self, files: Iterable[BatchFile]) -> None:
        """A message names them: from now on they are whoever's who reads it."""
        self._named = True
        with self._lock:
            self._open.difference_update(file.folder for file in files)

    def discard(self, folder: str) -> None:
        """Removes a folder whose file no message names."""
        self.storage.delete_all(folder)
        with self._lock:
            self._open.discard(folder)

    def finish(self) -> None:
        """The run is over, and nothing is written any more: what no message names of it does not stay."""
        for folder in sorted(self._open) if self._named else [self.folder]:
            self.storage.delete_all(folder)
