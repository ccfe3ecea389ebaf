"""Reading of rows with their places by Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from singer_spark.singer.arrow_schema import arrow_type
from singer_spark.singer.lake_type import Field, Struct
from singer_spark.spark.lake_columns import spark_columns
from target_spark_lake.columns.partitioning import value_of
from target_spark_lake.columns.spark_columns import column, fitted_columns
from target_spark_lake.columns.staged_metadata import POSITION
from target_spark_lake.formats.merging.rules import PLACE, ROW_BITS
from target_spark_lake.staging.place import spark_urls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, SparkSession

    from singer_spark.storage.storage import Storage
    from target_spark_lake.formats.merging.placed_files import PlacedFile

FILE = "_spark_lake_file"


@dataclass(frozen=True)
class PlacedRows:
    """Reads rows with their places; `copies` is a local folder for files that Spark can't reach."""

    session: SparkSession
    storage: Storage
    copies: Path

    def read(self, files: Sequence[PlacedFile], columns: Struct) -> DataFrame:
        """Read these columns of the rows, widened if a file is older, and `PLACE`; other columns are not read."""
        frames = [
            self._read([file for file in files if file.kind == kind], columns)
            for kind in dict.fromkeys(file.kind for file in files)
        ]
        if not frames:
            # Not from an empty list, for which Spark would start Python workers.
            nothing = fitted_columns({}, Struct(()), columns)
            return self.session.range(0).select(*nothing, F.col("id").alias(PLACE))
        return reduce(DataFrame.unionByName, frames)

    def _read(self, files: Sequence[PlacedFile], columns: Struct) -> DataFrame:
        """Read files of one kind."""
        first = files[0]
        wanted = Struct(tuple(each for each in first.columns if each.name in columns.types))
        inside = spark_columns(wanted.without(first.folder_texts))
        schema = StructType([*inside.fields, StructField(POSITION, LongType())]) if first.positioned else inside
        urls = spark_urls(self.session, self.storage, [file.path for file in files], self.copies)
        rows = self.session.read.schema(schema).parquet(*map(_literally, urls))
        position = column(POSITION) if first.positioned else F.col("_metadata.row_index")
        in_parts = len(first.numbers) > 1
        starts = [[{"row": row, "place": number << ROW_BITS} for row, number in file.numbers] for file in files]
        about = {
            FILE: _spelled(urls, rows.inputFiles()),
            PLACE: starts if in_parts else [start[0]["place"] for start in starts],
            **{each.name: _values(files, each) for each in wanted if each.name in first.folder_texts},
        }
        # Sending an Arrow table needs no job.
        known = F.broadcast(self.session.createDataFrame(pa.table(about)))
        lost = F.raise_error(F.concat(F.lit("no place is known for "), FILE)).cast("bigint")
        placed = (
            rows.select(*map(column, inside.names), position.alias(POSITION), F.col("_metadata.file_path").alias(FILE))
            .join(known, FILE, "left")
            .withColumn(PLACE, F.coalesce(_place_in_part() if in_parts else F.col(PLACE) + F.col(POSITION), lost))
        )
        found = {each.name: column(each.name) for each in wanted}
        return placed.select(*fitted_columns(found, wanted, columns), PLACE)


def _place_in_part() -> Column:
    begun = F.filter(PLACE, lambda part: part["row"] <= F.col(POSITION))
    return F.element_at(begun, -1)["place"] + F.col(POSITION) - F.element_at(begun, -1)["row"]


def _spelled(urls: Sequence[str], found: Sequence[str]) -> list[str]:
    """The URLs as Spark spells them in `_metadata`: it normalizes them in its own way, and reports the result."""
    known = {_plain(unquote(url)): _plain(url) for url in found}
    return [known[_plain(url)] for url in urls]


def _plain(url: str) -> str:
    return re.sub("^file:/+", "file:/", url)


def _literally(url: str) -> str:
    """A URL with glob characters escaped."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", url)


def _values(files: Sequence[PlacedFile], field: Field) -> pa.Array:
    return pa.array([value_of(file.folder_texts[field.name], field.type) for file in files], arrow_type(field.type))
