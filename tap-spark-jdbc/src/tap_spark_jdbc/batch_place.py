"""Where the batch files of a run lie, and how messages name them (plain Python)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.run_log import folder_name

if TYPE_CHECKING:
    from singer_spark.storage import Storage
    from tap_spark_jdbc.batch_settings import BatchSettings

RUN_ID_TIME = "%Y%m%dT%H%M%S%fZ"


@dataclass(frozen=True)
class BatchFile:
    """A whole file.

    Attributes:
        url: As messages name it; local ones as `file:///…`, nothing in it encoded, as fsspec reads it.
        rows: That it holds.
        size: In bytes.
    """

    url: str
    rows: int
    size: int


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
        self.folder = f"{settings.prefix.lstrip('/')}{self.started.strftime(RUN_ID_TIME)}-{secrets.token_hex(4)}"
        if {".", "..", ""} & set(self.folder.split("/")):
            raise ConfigurationError(
                f"batch_config.storage.prefix: {settings.prefix!r} must not have '.', '..' or '//' in it"
            )
        self._named = False

    def slice_folder(self, stream: str, number: int) -> str:
        """The folder of one attempt to write a slice, relative to the root."""
        return f"{self.folder}/{folder_name(stream)}/{number:06d}"

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
        found = [each for each in self.storage.list(folder) if each.path.rpartition("/")[2].startswith("part-")]
        if len(found) != 1:
            raise StorageError(
                f"{len(found)} files where one was written to, {self.storage.url}/{folder}; run it again"
            )
        place = f"{self.storage.url}/{found[0].path}"
        self._named = True
        return BatchFile(f"file://{place}" if self.storage.local else place, rows, found[0].size)

    def discard(self, folder: str) -> None:
        """Removes a folder whose file no message names."""
        self.storage.delete_all(folder)

    def finish(self) -> None:
        """The run is over: where no file of it is named, nothing of it stays."""
        if not self._named:
            self.storage.delete_all(self.folder)
