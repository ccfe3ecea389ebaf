"""Where a batch is written: the staging folder, or the local disk first where the writer can't reach the bucket.

Spark reaches disks and S3 by itself (and a cluster's executors whatever it has connectors for); Arrow writes to disks.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from singer_spark.storage import Storage


def reaches(session: SparkSession, storage: Storage) -> bool:
    """Whether Spark reads and writes the bucket by itself."""
    on_cluster = not str(session.conf.get("spark.master", "")).startswith("local")
    return storage.local or storage.on_s3 or on_cluster


@dataclass(frozen=True)
class StagingPlace:
    """The staging folder of one batch.

    Attributes:
        storage: The bucket.
        folder: The batch's folder, relative to the bucket.
        local: A folder on this machine that is written instead, until `bring`; None where the bucket itself is.
    """

    storage: Storage
    folder: str
    local: Path | None

    @classmethod
    def of(cls, session: SparkSession, storage: Storage, folder: str, local: Path) -> StagingPlace:
        """The place that this session can write to; `local` is a path that is free."""
        return cls(storage, folder, None if reaches(session, storage) else local)

    @classmethod
    def of_python(cls, storage: Storage, folder: str, local: Path) -> StagingPlace:
        """The place that this process can write files to."""
        return cls(storage, folder, None if storage.local else local)

    def path(self, name: str) -> Path:
        """The path of a file inside, of a place that this process can write to."""
        return (self.local or Path(self.storage.url, self.folder)) / name

    def url(self, name: str) -> str:
        """The URL, for Spark, of a folder inside."""
        if self.local is not None:
            return (self.local / name).as_uri()
        return self.storage.url_for_spark(f"{self.folder}/{name}")

    def bring(self) -> None:
        """Brings the Parquet files into the bucket, if they are not there yet; gives the disk space back."""
        if self.local is None:
            return
        for file in sorted(self.local.rglob("*.parquet")):
            self.storage.upload(file, f"{self.folder}/{file.relative_to(self.local).as_posix()}")
            file.unlink()
        shutil.rmtree(self.local, ignore_errors=True)
