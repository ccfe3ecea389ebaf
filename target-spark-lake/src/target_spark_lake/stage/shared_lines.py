"""A batch's lines in files readable by Spark's executors, which on a cluster reach only the
bucket.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.engine.cluster import shares_disk
from singer_spark.errors import StorageError
from singer_spark.store.storage import Storage
from target_spark_lake.intake.spool import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SharedLines:
    """Pieces of whole lines in files, which are named by the numbers of their first lines.

    Attributes:
        storage: Where they are.
        folder: Their folder there.
        firsts: The numbers of their first lines.
    """

    storage: Storage
    folder: str
    firsts: tuple[int, ...]

    def piece(self, number: int) -> bytes:
        """The lines of a piece."""
        path = f"{self.folder}/{_name(self.firsts[number])}".lstrip("/")
        content = self.storage.read(path)
        if content is None:
            raise StorageError(f"{path} in {self.storage.url} is gone while Spark reads it")
        return content


@contextmanager
def shared_lines(
    session: SparkSession, storage: Storage, folder: str, lines: Path
) -> Iterator[SharedLines]:
    """Yield a batch's lines where the session's tasks reach them; they are removed afterwards."""
    here, there = lines.with_suffix(".pieces"), f"{folder}/pieces"
    here.mkdir()
    is_shared = shares_disk(session)
    firsts, first = [], 0
    try:
        for content in pieces(lines):
            path = here / _name(first)
            path.write_bytes(content)
            firsts.append(first)
            first += content.count(b"\n")
            if not is_shared:
                storage.upload(path, f"{there}/{path.name}")
                path.unlink()
        place = (Storage(str(here)), "") if is_shared else (storage, there)
        yield SharedLines(*place, tuple(firsts))
    finally:
        shutil.rmtree(here, ignore_errors=True)
        if not is_shared:
            storage.delete_all(there)


def _name(first: int) -> str:
    return f"{first:012d}"
