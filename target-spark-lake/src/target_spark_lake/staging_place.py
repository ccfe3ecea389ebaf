"""Where a batch is written: the staging folder, or the local disk first where only Python reaches the bucket.

Spark on this machine needs no S3 connector of its own then; a cluster's executors write to the bucket directly.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from singer_spark.storage import Storage


@dataclass(frozen=True)
class StagingPlace:
    """The staging folder of one batch.

    Attributes:
        storage: The bucket.
        folder: The batch's folder, relative to the bucket.
        local: A folder on this machine that is written instead, until `bring`; None where Spark writes to the bucket.
    """

    storage: Storage
    folder: str
    local: Path | None

    @classmethod
    def of(cls, session: SparkSession, storage: Storage, folder: str, local: Path) -> StagingPlace:
        """The place that this session can write to; `local` is a path that is free."""
        master = str(session.conf.get("spark.master", ""))
        return cls(storage, folder, local if master.startswith("local") and not storage.local else None)

    @classmethod
    def of_python(cls, storage: Storage, folder: str, local: Path) -> StagingPlace:
        """The place that this process can write files to."""
        return cls(storage, folder, None if storage.local else local)

    def path(self, name: str) -> Path:
        """The path of a file inside, of a place that this process can write to."""
        if self.local is not None:
            return self.local / name
        return Path(url2pathname(urlsplit(self.storage.url_for_spark(f"{self.folder}/{name}")).path))

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
            self.storage.replace(f"{self.folder}/{file.relative_to(self.local).as_posix()}", file.read_bytes())
            file.unlink()
        shutil.rmtree(self.local, ignore_errors=True)
