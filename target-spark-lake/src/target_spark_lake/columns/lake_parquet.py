"""Writing of the lake's Parquet files by Arrow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from singer_spark.singer.arrow_schema import arrow_schema
from singer_spark.singer.lake_type import Struct
from singer_spark.storage.repeating_columns import bounded, repeating

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class LakeFile:
    """A new Parquet file, written one row group at a time in a `with` block; it exists even if it gets no rows.

    Attributes:
        schema: Arrow schema of its rows.
    """

    def __init__(self, path: Path, columns: Struct, codec: str) -> None:
        self.schema = arrow_schema(columns)
        self._path = path
        self._codec = codec
        self._writer: pyarrow.parquet.ParquetWriter | None = None

    def write_table(self, rows: pa.Table) -> None:
        """Add rows; the first ones decide which columns have a dictionary and statistics."""
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pyarrow.parquet.ParquetWriter(
                self._path,
                self.schema,
                compression=self._codec,
                use_dictionary=repeating(rows),
                write_statistics=bounded(rows),
                store_decimal_as_integer=True,
            )
        self._writer.write_table(rows)

    def __enter__(self) -> LakeFile:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if self._writer is None and failure is None:
            self.write_table(self.schema.empty_table())
        if self._writer is not None:
            self._writer.close()


def unopenable(columns: Struct) -> dict[str, str]:
    """The columns of which Arrow can write a file, but not open it (they are nested too deeply), with its words."""
    found = {}
    for each in columns:
        file = io.BytesIO()
        pyarrow.parquet.write_table(arrow_schema(Struct((each,))).empty_table(), file)
        try:
            pyarrow.parquet.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            found[each.name] = str(error)
    return found


def gathered(batches: Iterable[pa.RecordBatch], enough: int) -> Iterator[pa.Table]:
    """The batches combined into tables of at least `enough` bytes, except the last one."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= enough:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
