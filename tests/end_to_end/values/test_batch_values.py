"""What executors write as batches is, bit by bit and type by type, what the target stages from
RECORD lines.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from end_to_end.round_trip import RoundTrip
from end_to_end.values.test_values_postgresql import KINDS, Kind, source
from end_to_end.values.test_values_sqlite import columns, fill
from tap.batch_output import JSON, batch_config, paths_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["source"]


def bits(value: Any) -> Any:
    if isinstance(value, list):
        return [bits(each) for each in value]
    return struct.pack("d", value) if isinstance(value, float) else value


def by_duckdb(paths: list[Path]) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.read_parquet(
            [str(path) for path in paths], hive_partitioning=False
        ).order("id")
        return found.to_arrow_table()


def both_ways(
    folder: Path, config: JSON, *streams: str, batches: JSON | None = None
) -> Iterator[tuple[list[Path], list[Path]]]:
    """By stream the files of the table that the target made of RECORD lines, and the batches of the
    same rows.
    """
    trip = RoundTrip(folder / "lake", config)
    trip.run(add_record_metadata=True)
    batched = {**config, **(batches or {}), "batch_config": batch_config(folder / "batches")}
    messages = [
        json.loads(line) for line in RoundTrip(folder / "none", batched).tap_lines().splitlines()
    ]
    for stream in streams:
        table = sorted((folder / "lake" / "raw" / stream).rglob("*.parquet"))
        yield (
            table,
            paths_of(
                [each for each in messages if each["type"] == "BATCH" and each["stream"] == stream]
            ),
        )


def expect_the_same(records: list[Path], batches: list[Path]) -> None:
    assert records
    assert batches
    staged, written = pq.read_schema(records[0]), pq.read_schema(batches[0])
    assert [(each.name, each.type) for each in written] == [
        (each.name, each.type) for each in staged
    ]
    left, right = by_duckdb(records), by_duckdb(batches)
    assert right.schema.equals(left.schema)
    own = [name for name in left.column_names if not name.startswith("_sdc_")]
    for name in own:
        assert [bits(each) for each in right[name].to_pylist()] == [
            bits(each) for each in left[name].to_pylist()
        ], name
    assert all(isinstance(each, datetime) for each in right["_sdc_extracted_at"].to_pylist())


def test_every_type_of_postgresql_at_its_extremes(
    spark: SparkSession, source: Any, tmp_path: Path
) -> None:
    database, connection = source
    # A NaN with a sign, which processors make and no text shows.
    connection.execute(
        "create or replace view v as select id, 'Infinity'::float8 - 'Infinity' as n, c5 as x from "
        "t"
    )
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}

    for records, batches in both_ways(
        tmp_path, {**login, "reader": "jdbc"}, "public-t", "public-v"
    ):
        expect_the_same(records, batches)


def test_columnar_reader_matches_for_every_type(
    spark: SparkSession, source: Any, tmp_path: Path
) -> None:
    """The columnar reader gives the same values for every type that it reads."""
    database, connection = source
    read = {f"c{number}": kind for number, kind in enumerate(KINDS) if is_read_as_it_is(kind)}
    nan = "'Infinity'::float8 - 'Infinity'"
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    connection.execute("drop view if exists v")
    listed = ", ".join(["id", f"{nan} as n", f"array[1, {nan}, null] as m", *read])
    connection.execute(f"create view v as select {listed} from t")
    # Spark renders the records of the first run, Arrow those of the second one.
    for reader in ("jdbc", "arrow"):
        config = {**login, "tables": ["v"], "reader": reader}
        for records, batches in both_ways(
            tmp_path / reader, config, "public-v", batches={"reader": "arrow"}
        ):
            expect_the_same(records, batches)
            assert "parquet-cpp-arrow" in pq.read_metadata(batches[0]).created_by


def is_read_as_it_is(kind: Kind) -> bool:
    """Except for arrays whose elements Spark makes from their texts; a view forgets how many
    dimensions one has.
    """
    made = (pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp)
    return "[][]" not in kind.declared and not (
        pa.types.is_list(kind.arrow)
        and (any(each(kind.arrow.value_type) for each in made) or kind.declared.startswith("uuid"))
    )


def test_sqlite_batches_match_records(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("pragma encoding = 'UTF-16le'")
        connection.execute(
            f"create table t (id integer primary key, {columns()}, g int as (id * 2), s as (id) "
            "stored)"
        )
        fill(connection, "t")

    for records, batches in both_ways(tmp_path, {"jdbc_url": f"jdbc:sqlite:{path}"}, "t"):
        expect_the_same(records, batches)
