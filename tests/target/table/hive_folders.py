"""A table in hive folders, and the rows that Spark, DuckDB and pandas find in it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from target.loading import JSON, Lake, record, schema

INT: JSON = {"type": ["integer", "null"]}
TEXT: JSON = {"type": ["string", "null"]}
NAIVE: JSON = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
DATE: JSON = {"type": ["string", "null"], "format": "date", "x-sql-datatype": "DATE"}
NESTED: JSON = {"type": ["object", "null"], "properties": {"x": INT}}
Rows = list[tuple[Any, ...]]


@pytest.fixture
def lake(spark, tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


def load(
    lake: Lake,
    by: list[str],
    properties: JSON,
    rows: Iterable[JSON],
    way: str = "local",
    **more: Any,
) -> None:
    options = {"partition_by": by, **more.pop("options", {})}
    keys, annotations = more.pop("keys", ()), more.pop("annotations", {})
    message = schema("s", {**properties, "nested": NESTED}, keys, **annotations)
    lake.load(
        message,
        *(record("s", **row) for row in rows),
        stream_options={"s": options},
        staging=way,
        **more,
    )


def folders(lake: Lake, stream: str = "s") -> set[str]:
    table = lake.folder / "raw" / stream
    return {path.parent.relative_to(table).as_posix() for path in table.rglob("*.parquet")}


def seen(spark: Any, table: Path, columns: str, said: dict[str, pa.DataType]) -> Rows:
    """The rows on which all readers agree that know the types of the values in folder names."""
    kinds = {
        pa.string(): ("STRING", "VARCHAR"),
        pa.int64(): ("LONG", "BIGINT"),
        pa.date32(): ("DATE", "DATE"),
    }
    names = [name.strip() for name in columns.split(",")]
    hive = pyarrow.dataset.partitioning(pa.schema(list(said.items())), flavor="hive")
    frame = pd.read_parquet(table, partitioning=hive, dtype_backend="pyarrow")
    by_pandas = _rows(pa.Table.from_pandas(frame, preserve_index=False), names)
    types = ", ".join(f"'{name}': {kinds[kind][1]}" for name, kind in said.items())
    files = f"{table}/**/*.parquet".replace("'", "''")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(
            f"FROM read_parquet('{files}', hive_partitioning = true, hive_types = {{{types}}})"
        )
        by_duckdb = _rows(found.to_arrow_table(), names)
    assert by_pandas == by_duckdb
    inside = spark.read.option("recursiveFileLookup", "true").parquet(table.as_uri()).schema
    for name, kind in said.items():
        inside = inside.add(name, kinds[kind][0].lower())
    with tempfile.TemporaryDirectory() as copy:
        spark.read.schema(inside).parquet(table.as_uri()).write.mode("append").parquet(
            Path(copy).as_uri()
        )
        assert _rows(pa.parquet.read_table(copy), names) == by_duckdb
    return by_duckdb


def _rows(table: pa.Table, names: list[str]) -> Rows:
    rows = [tuple(row[name] for name in names) for row in table.select(names).to_pylist()]
    return sorted(rows, key=lambda row: [str(value) for value in row])


def in_order(rows: Iterable[tuple[Any, ...]]) -> Rows:
    return sorted(rows, key=lambda row: [str(value) for value in row])


def collected(rows: Any) -> list[Any]:
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        return sorted(rows.collect())
