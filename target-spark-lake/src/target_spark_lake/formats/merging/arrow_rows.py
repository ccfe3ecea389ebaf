"""Reading of rows with their places in this process, one row group at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from singer_spark.singer.arrow_schema import arrow_type
from singer_spark.storage.parquet_footer import open_parquet
from target_spark_lake.columns.arrow_columns import fitted
from target_spark_lake.columns.partitioning import value_of
from target_spark_lake.columns.staged_metadata import POSITION
from target_spark_lake.formats.merging.rules import PLACE, ROW_BITS
from target_spark_lake.tables.file_statistics import ColumnRange, FileStatistics, column_places, group_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from singer_spark.singer.lake_type import Struct
    from singer_spark.storage.storage import Storage
    from target_spark_lake.formats.merging.placed_files import PlacedFile


@dataclass(frozen=True)
class ArrowRows:
    """Reads rows with their places."""

    storage: Storage

    def read(
        self, file: PlacedFile, columns: Struct, may_hold: Callable[[FileStatistics], bool] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read these columns of the rows, widened if the file is older, and `PLACE`.

        Row groups of which `may_hold` is false, by their statistics of these columns, are left out.
        """
        inside = [
            each.name for each in file.columns if each.name in columns.types and each.name not in file.folder_texts
        ]
        wanted = [*inside, POSITION] if file.positioned else inside
        with open_parquet(self.storage, file.path) as source:
            # Spark's old INT96 times hold nanoseconds, for which Arrow by default covers only the years 1677 to 2262.
            parquet = pyarrow.parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
            metadata, first = parquet.metadata, 0
            places = column_places(metadata)
            present = set(parquet.schema_arrow.names)
            names = [name for name in wanted if name in present]
            for group in range(metadata.num_row_groups):
                count = metadata.row_group(group).num_rows
                if may_hold is None or may_hold(_statistics(metadata, group, places, names)):
                    rows = parquet.read_row_group(group, columns=names).select(names).combine_chunks()
                    yield from self._placed(file, rows, first, count, columns)
                first += count

    def table(self, files: list[PlacedFile], columns: Struct) -> pa.Table:
        """All rows of several files, with these columns and `PLACE`."""
        schema = pa.schema([*(pa.field(each.name, arrow_type(each.type)) for each in columns), (PLACE, pa.int64())])
        return pa.Table.from_batches([rows for file in files for rows in self.read(file, columns)], schema)

    def _placed(
        self, file: PlacedFile, rows: pa.Table, first: int, count: int, columns: Struct
    ) -> Iterator[pa.RecordBatch]:
        for name in (name for name in file.folder_texts if name in columns.types):
            kind = file.columns.types[name]
            value = pa.scalar(value_of(file.folder_texts[name], kind), arrow_type(kind))
            rows = rows.append_column(name, pa.repeat(value, count))
        if not rows.num_columns:
            # Of a file that has none of the columns, the number of rows is all that counts.
            rows = pa.table({PLACE: pa.nulls(count, pa.int64())})
        start = 0
        for batch in rows.to_batches():
            if file.positioned:
                positions = batch.column(POSITION)
            else:
                positions = pa.array(range(first + start, first + start + batch.num_rows), pa.int64())
            start += batch.num_rows
            places = _places(file, positions)
            yield fitted(batch, columns).append_column(PLACE, places)


def _places(file: PlacedFile, positions: pa.Array) -> pa.Array:
    """The places of rows at these positions in the file."""
    (begun, number), *others = file.numbers
    places = pc.add(positions, (number << ROW_BITS) - begun)
    for row, number in others:
        places = pc.if_else(pc.greater_equal(positions, row), pc.add(positions, (number << ROW_BITS) - row), places)
    return places


def _statistics(
    metadata: pyarrow.parquet.FileMetaData, group: int, places: dict[str, int | None], names: list[str]
) -> FileStatistics:
    found: dict[str, ColumnRange] = {}
    for name in names:
        place = places.get(name)
        found[name] = ColumnRange() if place is None else group_range(metadata, group, place)
    return FileStatistics(metadata.row_group(group).num_rows, 0, found)
