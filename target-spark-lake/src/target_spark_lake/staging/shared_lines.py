"""A batch's lines in files readable by Spark's executors, which on a cluster reach only the bucket."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from singer_spark.spark.cluster import shares_disk
from target_spark_lake.intake.spool import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from singer_spark.storage.storage import Storage


@contextmanager
def shared_pieces(session: SparkSession, storage: Storage, folder: str, lines: Path) -> Iterator[str]:
    """Yield the URL of a folder with the lines in pieces named by their first line's number; removed afterwards."""
    here, there = lines.with_suffix(".pieces"), f"{folder}/pieces"
    here.mkdir()
    is_shared = shares_disk(session)
    try:
        first = 0
        for piece in pieces(lines):
            path = here / f"{first:012d}"
            path.write_bytes(piece)
            first += piece.count(b"\n")
            if not is_shared:
                storage.upload(path, f"{there}/{path.name}")
                path.unlink()
        yield here.as_uri() if is_shared else storage.url_for_spark(there)
    finally:
        shutil.rmtree(here, ignore_errors=True)
        if not is_shared:
            storage.delete_all(there)
