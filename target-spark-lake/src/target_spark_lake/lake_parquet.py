"""How the lake's Parquet files are written and opened by Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pyarrow.parquet

from target_spark_lake.arrow_columns import arrow_schema

if TYPE_CHECKING:
    from pathlib import Path

    from singer_spark.storage import Storage
    from target_spark_lake.lake_type import Struct

_COMPRESSION_LEVELS = {"zstd": 3}


def parquet_writer(path: Path, columns: Struct, codec: str) -> pyarrow.parquet.ParquetWriter:
    """A writer of rows with these columns; its schema is `arrow_schema(columns)`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return pyarrow.parquet.ParquetWriter(
        path,
        arrow_schema(columns),
        compression=codec,
        compression_level=_COMPRESSION_LEVELS.get(codec),
        store_decimal_as_integer=True,
    )


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[tuple[IO[bytes], pyarrow.parquet.ParquetFile]]:
    """A Parquet file of the bucket: as a file, and as Arrow reads it piece by piece."""
    import fsspec

    with fsspec.open(f"{storage.url}/{path}", "rb", **storage.options) as file:
        yield file, pyarrow.parquet.ParquetFile(file)
