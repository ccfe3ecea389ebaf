"""A batch's lines as files that Spark's executors read, which on a cluster reach the bucket alone."""

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
    """The URL of a folder with the lines in pieces, each named by the number of its first line; gone afterwards.

    Args:
        session: Whose executors read them.
        storage: The bucket.
        folder: The batch's staging folder there.
        lines: The spooled file.
    """
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
