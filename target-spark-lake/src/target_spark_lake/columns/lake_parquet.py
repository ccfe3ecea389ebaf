"""How Arrow writes the lake's Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet

from target_spark_lake.columns.arrow_columns import arrow_schema

if TYPE_CHECKING:
    from pathlib import Path

    from target_spark_lake.columns.lake_type import Struct

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
