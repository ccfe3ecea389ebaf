"""The location of a run's batch files, and their names in messages (plain Python)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from singer_spark.core.messages import METADATA_COLUMNS
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.state.run_log import folder_name, new_run_id
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.slice_bounds import long_columns

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage
    from tap_spark_jdbc.config.batch_settings import BatchSettings
    from tap_spark_jdbc.extract.fingerprints import Found
    from tap_spark_jdbc.plan.stream_plan import StreamPlan


@dataclass(frozen=True)
class BatchFile:
    """A complete file, alone in its folder (relative to the root), and its size in bytes.

    Messages name it by its URL; local ones are `file:///…` without percent-encoding, as fsspec
    reads them.
    """

    url: str
    rows: int
    size: int
    folder: str


@dataclass(frozen=True)
class Written:
    """The result of writing a slice; the file may be empty.

    Attributes:
        width: Approximate bytes of a row as it was read; None if not measured.
    """

    found: Found
    file: BatchFile
    width: float | None = None


class BatchLocation:
    """The folder of one run's batch files, with a subfolder for each slice of each stream."""

    def __init__(self, settings: BatchSettings, storage: Storage, *, metadata: bool = True) -> None:
        """Nothing is created yet; the run starts now.

        `metadata`: files that have columns get metadata columns.

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
                TapCode.BATCH_LOCATION,
                f"batch_config.storage.prefix: {settings.prefix!r} must not have '.', '..' or '//' "
                "in it",
            )
        self._named = False
        self._counts: Counter[str] = Counter()
        self._open: set[str] = set()
        self._lock = Lock()

    def new_folder(self, stream: str) -> str:
        """A folder for one attempt to write a slice, relative to the root; no other attempt uses
        it.
        """
        with self._lock:
            folder = f"{self.folder}/{folder_name(stream)}/{self._counts[stream]:06d}"
            self._counts[stream] += 1
            self._open.add(folder)
        return folder

    def file(self, folder: str, rows: int, name: str) -> BatchFile:
        """This file in a written folder, unless it has no rows; StorageError: it is not there."""
        if rows == 0:
            return BatchFile(self.storage.url, 0, 0, folder)
        # A Spark task that was begun twice may have left another file.
        files = {each.path.rpartition("/")[2]: each for each in self.storage.list(folder)}
        if (file := files.get(name)) is None:
            raise StorageError(
                TapCode.BATCH_LOCATION,
                f"{self.storage.url}/{folder}/{name} was written, but no longer exists; run again",
            )
        location = f"{self.storage.url}/{file.path}"
        return BatchFile(
            f"file://{location}" if self.storage.local else location, rows, file.size, folder
        )

    def name(self, file: BatchFile) -> None:
        """Note that a message names the file: from now on it belongs to the message's reader."""
        self._named = True
        with self._lock:
            self._open.discard(file.folder)

    def discard(self, folder: str) -> None:
        """Remove a folder whose file no message names."""
        self.storage.delete_all(folder)
        with self._lock:
            self._open.discard(folder)

    def finish(self) -> None:
        """End the run, once nothing is written any more: remove the files that no message names."""
        for folder in sorted(self._open) if self._named else [self.folder]:
            self.storage.delete_all(folder)


_MICROSECOND = 1_000_000


@dataclass(frozen=True)
class BatchColumns:
    """The columns of one stream's files; its rows were read when `extracted`."""

    plan: StreamPlan
    location: BatchLocation
    extracted: datetime

    @property
    def metadata(self) -> bool:
        """Whether files have metadata columns; a source column of the same name is left to the
        target.
        """
        has_own = bool(METADATA_COLUMNS.keys() & self.plan.sent_columns.keys())
        return self.location.metadata and not has_own

    @cached_property
    def metadata_values(self) -> dict[str, int | None]:
        """The metadata columns' values, the same in all files: microseconds for a timestamp."""
        now = _microseconds(datetime.now(UTC))
        values = {
            "_sdc_extracted_at": _microseconds(self.extracted),
            "_sdc_received_at": now,
            "_sdc_batched_at": now,
            "_sdc_sequence": now // 1000,
            "_sdc_sync_started_at": _microseconds(self.location.started) // 1000,
        }
        return {name: values.get(name) for name in METADATA_COLUMNS} if self.metadata else {}

    @cached_property
    def long(self) -> list[str]:
        """Non-key columns that may hold long values; a key's bounds are kept in the footer, to find
        files by them.
        """
        keys = {*self.plan.key_properties}
        if self.plan.replication_key is not None:
            keys.add(self.plan.replication_key.column.name)
        names = (each.name for each in long_columns(self.plan) if each.name not in keys)
        return [*self.plan.sent_as(*names)]


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * _MICROSECOND)
