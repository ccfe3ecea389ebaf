"""Files whose rows have places: those of the run in the order in which they came, those of the table below them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from target_spark_lake.contest import PLACE, ROW_BITS
from target_spark_lake.merge import read_rows, stored_columns
from target_spark_lake.record_metadata import DELETED_AT
from target_spark_lake.spark_files import SparkFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from singer_spark.storage import Storage
    from target_spark_lake.changes import StagedFile
    from target_spark_lake.table_index import TableIndex


@dataclass(frozen=True)
class PlacedFile:
    """A file with the place of its rows.

    Attributes:
        number: What stands above the row's bits in the places of its rows.
        path: Relative to the bucket.
        rows: Rows in it.
        bytes: Its size.
        positioned: Its rows say their positions.
    """

    number: int
    path: str
    rows: int
    bytes: int
    positioned: bool = False


def brought_files(staged: Sequence[StagedFile]) -> list[PlacedFile]:
    """The staged files: those of a batch whose rows say their positions share a number."""
    placed: list[PlacedFile] = []
    number, batch = -1, ""
    for file in staged:
        # Spark writes a batch as `<batch>/lines/part-…` and `<batch>/rewritten/part-…`.
        folder = file.path.rsplit("/", 2)[0] if file.positioned else file.path
        number += folder != batch
        batch = folder
        placed.append(PlacedFile(number, file.path, file.rows, file.bytes, file.positioned))
    return placed


def table_files(paths: Sequence[str], index: TableIndex) -> list[PlacedFile]:
    """Files of the table, the older ones first."""
    first = -len(paths)
    known = index.files
    return [
        PlacedFile(number, path, known[path].rows, known[path].bytes) for number, path in enumerate(paths, start=first)
    ]


def living_rows(files: Sequence[PlacedFile], index: TableIndex) -> tuple[int, list[PlacedFile]]:
    """How many rows of the table's files are not marked as deleted, and the files of which only a look can tell."""
    nulls = {file: index.files[file.path].columns[DELETED_AT].nulls for file in files}
    unknown = [file for file, number in nulls.items() if number is None]
    return sum(number or 0 for number in nulls.values()), unknown


class PlacedRows:
    """Reads rows with their places."""

    def __init__(self, session: SparkSession, storage: Storage, copies: Path) -> None:
        """Reads nothing yet.

        Args:
            session: A running session.
            storage: The bucket.
            copies: A folder of this machine, for files that Spark does not reach.
        """
        self._session = session
        self._files = SparkFiles(session, storage, copies)

    def read(self, files: Sequence[PlacedFile], types: Mapping[str, DataType]) -> DataFrame:
        """These columns of the rows, and `PLACE`; nothing else of the files is read."""
        columns = StructType([StructField(name, kind) for name, kind in types.items()])
        frames: list[DataFrame] = []
        for positioned in (False, True):
            chosen = [file for file in files if file.positioned == positioned]
            if chosen:
                urls = self._files.urls([file.path for file in chosen])
                places = {url: file.number << ROW_BITS for url, file in zip(urls, chosen, strict=True)}
                frames.append(read_rows(self._session, places, columns, positioned=positioned))
        if not frames:
            return self._session.createDataFrame([], StructType([*columns.fields, StructField(PLACE, LongType())]))
        return reduce(DataFrame.unionByName, frames)

    def stored(self, files: Sequence[PlacedFile]) -> StructType:
        """The columns that the files have, all together."""
        urls = self._files.urls([file.path for file in files])
        return stored_columns(self._session, urls)
