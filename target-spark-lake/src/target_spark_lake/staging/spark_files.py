"""The bucket's files for Spark to read: in place, or as local copies if only Python reaches the bucket.

The counterpart of `staging.place`, with the same rules for access.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from singer_spark.storage.parquet_footer import download
from target_spark_lake.staging.place import reaches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from singer_spark.storage.storage import Storage

COPIES_AT_ONCE = 8


class SparkFiles:
    """Provides Spark with URLs of files in the bucket."""

    def __init__(self, session: SparkSession, storage: Storage, folder: Path) -> None:
        """Create the object; nothing is copied yet.

        Args:
            session: The session that will read.
            storage: The bucket.
            folder: Local folder for copies; the caller removes it.
        """
        self._storage = storage
        self._folder = folder
        self._direct = reaches(session, storage)
        self._copies: dict[str, Path] = {}

    def urls(self, paths: Sequence[str]) -> list[str]:
        """URLs of files, in order."""
        if self._direct:
            return [self._storage.url_for_spark(path) for path in paths]
        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            return [copy.as_uri() for copy in pool.map(self._copy, paths, map(self._place, paths))]

    def _place(self, path: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._copies.setdefault(path, self._folder / f"{len(self._copies):05d}.parquet")

    def _copy(self, path: str, copy: Path) -> Path:
        if not copy.exists():
            download(self._storage, path, copy)
        return copy
