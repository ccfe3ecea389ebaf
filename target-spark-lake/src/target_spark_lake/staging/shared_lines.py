"""Files of lines between this machine's disk and Spark's executors, which on a cluster reach the bucket alone."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.spark.cluster import shares_disk
from singer_spark.storage.parquet_footer import download

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from singer_spark.storage.storage import Storage


@dataclass(frozen=True)
class SharedLines:
    """The lines of one batch.

    Attributes:
        session: Whose executors read and write them.
        storage: The bucket.
        folder: The batch's staging folder there, for copies that both sides reach.
    """

    session: SparkSession
    storage: Storage
    folder: str

    @contextmanager
    def read(self, path: Path) -> Iterator[str]:
        """The URL by which executors read a local file; a copy is gone afterwards."""
        if shares_disk(self.session):
            yield path.as_uri()
            return
        place = f"{self.folder}/{path.name}"
        self.storage.upload(path, place)
        try:
            yield self.storage.url_for_spark(place)
        finally:
            self.storage.delete(place)

    @contextmanager
    def written(self, folder: Path) -> Iterator[str]:
        """The URL of a folder that executors write; its files are in the local folder afterwards."""
        if shares_disk(self.session):
            yield folder.as_uri()
            return
        place = f"{self.folder}/{folder.name}"
        try:
            yield self.storage.url_for_spark(place)
            folder.mkdir()
            for file in self.storage.list(place):
                download(self.storage, file.path, folder / file.path.rpartition("/")[2])
        finally:
            self.storage.delete_all(place)
