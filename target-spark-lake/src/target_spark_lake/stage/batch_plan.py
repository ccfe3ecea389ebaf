"""How the rows of a stream are staged: their columns, the values common to all rows of a batch, and
where the batch is written: the staging folder, or the local disk first if the bucket is elsewhere.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import Field, Scalar, Struct
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from singer_spark.errors import StorageError, cut
from singer_spark.store.parquet_footer import open_parquet
from singer_spark.store.storage import Storage
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import CONTROL_COLUMNS, StagedFile, merging_columns
from target_spark_lake.table.partitioning import folders_of
from target_spark_lake.table.table_index import FOOTERS_AT_ONCE

if TYPE_CHECKING:
    from target_spark_lake.table.partitioning import Partitioning
    from target_spark_lake.validate.bulk_check import ValueCheck

EXTRACTED_AT = "_sdc_extracted_at"


@dataclass(frozen=True)
class BatchTimes:
    """The times of a batch, from which its metadata columns are filled.

    Attributes:
        received: When its first line was read.
        batched: When it was closed.
        sync_started: When the run started, in milliseconds since the epoch.
    """

    received: datetime
    batched: datetime
    sync_started: int


@dataclass(frozen=True)
class BatchPlan:
    """How the records of a stream become rows.

    Attributes:
        columns: The record's columns.
        found: The columns of the incoming rows: the record's, and the metadata columns.
        staged: The columns of the staged files: the table's, and for a merge those that decide it.
        check: Finds lines that are certainly valid; None if only the validator can.
        times: For the metadata columns; None if the user wants none.
        codec: Parquet codec.
        merging: Whether the rows are for a merge, which needs further columns staged with them.
        partitioning: The table's hive folders, if rows are staged in them; otherwise None.
    """

    columns: Struct
    found: Struct
    staged: Struct
    check: ValueCheck | None
    times: BatchTimes | None
    codec: str
    merging: bool = False
    partitioning: Partitioning | None = None

    @classmethod
    def of(
        cls,
        columns: Struct,
        check: ValueCheck | None,
        times: BatchTimes | None,
        codec: str,
        *,
        merging: bool = False,
        keeps_deletes: bool = False,
    ) -> BatchPlan:
        """A plan that stages the records' own columns.

        `keeps_deletes` if the mark of deleted rows is always one.
        """
        needed = {*(CONTROL_COLUMNS if merging else ()), *([DELETED_AT] if keeps_deletes else ())}
        names = METADATA_COLUMNS if times is not None else needed
        added = (
            Field(name, Scalar(kind)) for name, kind in METADATA_COLUMNS.items() if name in names
        )
        found = Struct((*columns.without(METADATA_COLUMNS), *added))
        return cls(columns, found, found, check, times, codec, merging)

    def into(
        self, table: Struct, check: ValueCheck | None, partitioning: Partitioning | None
    ) -> BatchPlan:
        """The plan with the table's columns and hive folders, and the check of its records."""
        staged = merging_columns(table) if self.merging else table
        return replace(self, staged=staged, check=check, partitioning=partitioning)

    def known(
        self, extracted: datetime | None = None, version: int | None = None
    ) -> dict[str, object]:
        """The metadata columns with the same value in all rows of a batch.

        `extracted` is when the records were read, if all at once; `version` their table's version.
        """
        known: dict[str, object] = {TABLE_VERSION: version}
        if self.times is not None:
            known |= {
                EXTRACTED_AT: extracted,
                "_sdc_received_at": self.times.received.astimezone(UTC),
                "_sdc_batched_at": self.times.batched.astimezone(UTC),
                "_sdc_sequence": int(self.times.received.timestamp() * 1000),
                "_sdc_sync_started_at": self.times.sync_started,
            }
        return known


def moment_of(text: object) -> datetime | None:
    """A message's timestamp; an invalid one counts as absent."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC) if moment else None
    except (ValueError, OverflowError):
        return None


def _rows_of(storage: Storage, path: str) -> int:
    """Number of rows of a staged file, which Arrow can open with its columns.

    Raises:
        StorageError: it is not a complete Parquet file, or one that readers can't open.
    """
    import pyarrow as pa
    import pyarrow.parquet

    with open_parquet(storage, path) as file:
        try:
            metadata = pa.parquet.read_metadata(file)
            metadata.schema.to_arrow_schema()
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                LakeCode.STAGED_INCOMPLETE,
                f"{storage.url}/{path}, which was just written, can't be opened "
                f"({cut(str(error), 200)}); nothing was published",
            ) from error
        return int(metadata.num_rows)


@dataclass(frozen=True)
class StagingLocation:
    """The staging folder of one batch.

    Attributes:
        storage: The bucket.
        folder: The batch's folder, relative to the bucket.
        local: A local folder written first, until `bring`; None to write the bucket directly.
    """

    storage: Storage
    folder: str
    local: Path | None

    @classmethod
    def of(cls, storage: Storage, folder: str, local: Path) -> StagingLocation:
        """The location this process can write files to."""
        return cls(storage, folder, None if storage.local else local)

    def path(self, name: str) -> Path:
        """The path of a file inside; only for a location this process can write to."""
        return (self.local or Path(self.storage.url, self.folder)) / name

    def bring_one(self, name: str) -> int:
        """Upload a file if it is not in the bucket yet; returns its size."""
        path = self.path(name)
        size = path.stat().st_size
        if self.local is not None:
            self.storage.upload(path, f"{self.folder}/{name}")
            path.unlink()
        return size

    def bring(self, partitioning: Partitioning | None) -> tuple[StagedFile, ...]:
        """The Parquet files, including those without rows, uploaded first if they are not in the
        bucket yet.

        Raises:
            ConfigurationError: there are too many hive folders.
            StorageError: files can't be read or written.
        """
        here, above = self.storage, self.folder
        if self.local is not None:
            here, above = Storage(str(self.local)), ""
        found = [file for file in here.list(above) if file.path.endswith(".parquet")]
        folders = ["" if partitioning is None else folders_of(file.path) for file in found]
        if partitioning is not None:
            partitioning.refuse_many(len(set(folders)))
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
            rows = list(pool.map(lambda file: _rows_of(here, file.path), found))
        paths = [file.path for file in found]
        if self.local is not None:
            paths = [f"{self.folder}/{path}" for path in paths]
            for file, path in zip(found, paths, strict=True):
                self.storage.upload(self.local / file.path, path)
                (self.local / file.path).unlink()
            shutil.rmtree(self.local, ignore_errors=True)
        sizes = [file.size for file in found]
        return tuple(map(StagedFile, paths, rows, sizes, folders))
