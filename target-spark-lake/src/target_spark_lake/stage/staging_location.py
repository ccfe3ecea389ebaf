"""Where a batch is written: the staging folder, or the local disk first if the bucket is
elsewhere.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError, cut
from singer_spark.store.parquet_footer import open_parquet
from singer_spark.store.storage import Storage
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import StagedFile
from target_spark_lake.table.partitioning import folders_of
from target_spark_lake.table.table_index import FOOTERS_AT_ONCE

if TYPE_CHECKING:
    from target_spark_lake.table.partitioning import Partitioning


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
        local: A folder on this machine that is written first, until `bring`; None if the bucket is
            written directly.
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

    def bring(self, partitioning: Partitioning | None) -> tuple[StagedFile, ...]:
        """The Parquet files, including those without rows, uploaded first if they are not in the
        bucket yet.

        Raises:
            ConfigurationError: there are too many hive folders.
            StorageError: files can't be read or written.
        """
        here, above = (
            (self.storage, self.folder) if self.local is None else (Storage(str(self.local)), "")
        )
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
