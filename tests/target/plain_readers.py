"""What Spark, DuckDB and pandas find in a table's folder: no schemas merged, no union by name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.arrow_schema import columns_of_arrow
from singer_spark.core.lake_type import columns_to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
Seen = tuple[dict[str, str], list[Row]]


def seen_by_all(spark: SparkSession, folder: Path) -> tuple[dict[str, str], list[Row]]:
    """Column to type, and the rows by their columns' texts, on which the three readers agree."""
    by_spark, by_duckdb, by_pandas = (
        _by_spark(spark, folder),
        _by_duckdb(folder),
        _by_pandas(folder),
    )
    assert by_spark == by_duckdb
    assert by_spark == by_pandas
    return by_spark


def _by_spark(spark: SparkSession, folder: Path) -> Seen:
    # What it read is what it writes; collecting would bring instants as this process's wall clock.
    with tempfile.TemporaryDirectory() as copy:
        spark.read.parquet(folder.as_uri()).write.mode("append").parquet(Path(copy).as_uri())
        return _of_arrow(pyarrow.parquet.read_table(copy))


def _by_duckdb(folder: Path) -> Seen:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return _of_arrow(
            connection.sql(f"SELECT * FROM read_parquet('{folder}/**/*.parquet')").to_arrow_table()
        )


def _by_pandas(folder: Path) -> Seen:
    frame = pd.read_parquet(folder, dtype_backend="pyarrow")
    return _of_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def _of_arrow(table: pa.Table) -> Seen:
    columns = columns_of_arrow(table.schema)
    assert columns is not None, table.schema
    return columns_to_text(columns), _sorted(table.to_pylist())


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])
