"""Files whose rows have places: those of the run in the order in which they came, those of the table below them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from singer_spark.singer.metadata_columns import DELETED_AT
from target_spark_lake.columns.arrow_columns import arrow_type
from target_spark_lake.columns.lake_type import Field, Struct
from target_spark_lake.columns.partitioning import said_by, value_of
from target_spark_lake.columns.spark_columns import column, fitted_columns, spark_columns
from target_spark_lake.formats.merging.contest import PLACE, ROW_BITS
from target_spark_lake.formats.merging.spark_merge import read_rows
from target_spark_lake.layout import table_folders
from target_spark_lake.staging.spark_files import SparkFiles
from target_spark_lake.tables.row_order import Parts, numbered, own_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from singer_spark.storage.storage import Storage
    from target_spark_lake.tables.changes import StagedFile
    from target_spark_lake.tables.table_index import TableIndex


@dataclass(frozen=True)
class PlacedFile:
    """A file with the place of its rows.

    Attributes:
        numbers: What stands above the row's bits in the places of its rows: of its first row, and from later ones on.
        path: Relative to the bucket.
        rows: Rows in it.
        bytes: Its size.
        positioned: Its rows say their positions.
        columns: Those that it was written under, or more.
        folders: Its hive folders, which say some of the columns.
    """

    numbers: tuple[tuple[int, int], ...]
    path: str
    rows: int
    bytes: int
    columns: Struct
    positioned: bool = False
    folders: str = ""

    @cached_property
    def said(self) -> Mapping[str, str | None]:
        """The columns that its folders say, with their texts."""
        return {name: text for name, text in said_by(self.folders).items() if name in self.columns.types}

    @property
    def kind(self) -> tuple[Struct, bool, frozenset[str], bool]:
        """Files of one kind are read together."""
        return self.columns, self.positioned, frozenset(self.said), len(self.numbers) > 1


def brought_files(staged: Sequence[StagedFile], columns: Struct) -> list[PlacedFile]:
    """The staged files, written under these columns: those of a batch whose rows say their positions share a number."""
    placed: list[PlacedFile] = []
    number, batch = -1, ""
    for file in staged:
        # Spark writes a batch as `<batch>/lines/part-…` and `<batch>/rewritten/part-…`.
        folder = file.path.rsplit("/", 2)[0] if file.positioned else file.path
        number += folder != batch
        batch = folder
        placed.append(PlacedFile(((0, number),), file.path, file.rows, file.bytes, columns, file.positioned))
    return placed


def table_files(
    table: str, paths: Sequence[str], parts: Mapping[str, Parts], index: TableIndex, columns: Struct
) -> list[PlacedFile]:
    """Files of the table, which has these columns: all places lie below 0, those of older rows lower."""
    first = -sum(len(parts.get(path) or own_parts(path)) for path in paths)
    known = index.files
    return [
        PlacedFile(numbers, path, known[path].rows, known[path].bytes, columns, folders=table_folders(table, path))
        for path, numbers in numbered(paths, parts, first).items()
    ]


def living_rows(files: Sequence[PlacedFile], index: TableIndex) -> tuple[int, list[PlacedFile]]:
    """How many rows of the table's files are not marked as deleted, and the files of which only a look can tell."""
    nulls = {file: index.files[file.path].columns[DELETED_AT].nulls for file in files}
    unknown = [file for file, number in nulls.items() if number is None]
    return sum(number or 0 for number in nulls.values()), unknown


def _values(files: Sequence[PlacedFile], said: Field) -> pa.Array:
    return pa.array([value_of(file.said[said.name], said.type) for file in files], arrow_type(said.type))


class PlacedRows:
    """Reads rows with their places."""

    def __init__(self, session: SparkSession, storage: Storage, copies: Path) -> None:
        """Reads nothing yet; `copies` is a folder of this machine, for files that Spark does not reach."""
        self._session = session
        self._files = SparkFiles(session, storage, copies)

    def read(self, files: Sequence[PlacedFile], columns: Struct) -> DataFrame:
        """These columns of the rows, widened where a file is older, and `PLACE`; nothing else of the files is read."""
        frames = [
            self._read([file for file in files if file.kind == kind], columns)
            for kind in dict.fromkeys(file.kind for file in files)
        ]
        if not frames:
            # Not of an empty list, for which Spark would start Python workers.
            nothing = fitted_columns({}, Struct(()), columns)
            return self._session.range(0).select(*nothing, F.col("id").alias(PLACE))
        return reduce(DataFrame.unionByName, frames)

    def _read(self, files: Sequence[PlacedFile], columns: Struct) -> DataFrame:
        first = files[0]
        urls = self._files.urls([file.path for file in files])
        places = {
            url: [(row, number << ROW_BITS) for row, number in file.numbers]
            for url, file in zip(urls, files, strict=True)
        }
        asked = Struct(tuple(each for each in first.columns if each.name in columns.types))
        inside = asked.without(first.said)
        said = {each.name: _values(files, each) for each in asked if each.name in first.said}
        rows = read_rows(self._session, places, spark_columns(inside), said, positioned=first.positioned)
        found = {each.name: column(each.name) for each in asked}
        return rows.select(*fitted_columns(found, asked, columns), PLACE)
